#pragma once
/** @file Philox4x32-10, the random function behind everything random here (Salmon, Moraes, Dror,
 *  Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011). A block of 128 random bits is a
 *  pure function of a key and a counter, so any element can be computed anywhere, at any time, by
 *  any thread. No library header: host compilers, nvcc and NVRTC all take this text. */
#include <bs/lib/host_device.h>

namespace bs {

/** @brief Four words of 32 random bits. */
struct PhiloxBlock {
  unsigned word[4];
};

/** @brief The block number `low` of the sequence `high` under `key`. */
BS_HOST_DEVICE inline PhiloxBlock philox(unsigned long long key, unsigned long long low,
                                         unsigned long long high) {
  auto k0 = static_cast<unsigned>(key);
  auto k1 = static_cast<unsigned>(key >> 32);
  auto c0 = static_cast<unsigned>(low);
  auto c1 = static_cast<unsigned>(low >> 32);
  auto c2 = static_cast<unsigned>(high);
  auto c3 = static_cast<unsigned>(high >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ULL * c0;
    const unsigned long long p1 = 0xCD9E8D57ULL * c2;
    c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<unsigned>(p1);
    c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<unsigned>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace bs
