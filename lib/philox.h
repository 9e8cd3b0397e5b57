#pragma once
/** @file Philox4x32, of ten rounds, the random function behind everything random here (Salmon,
 *  Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011). A block of 128 random
 * bits is a pure function of a key and a counter. So any element can be computed anywhere, at any
 * time, by any thread. No library header: host compilers, nvcc and NVRTC all take this text. */
#include <bs/lib/host_device.h>

namespace bs {

/** @brief Four words of 32 random bits. */
struct PhiloxBlock {
  unsigned word[4];
};

namespace detail {
/** @brief One round under its two keys. */
BS_HOST_DEVICE inline void philox_round(unsigned (&c)[4], unsigned k0, unsigned k1) {
  const unsigned long long p0 = 0xD2511F53ULL * c[0];
  const unsigned long long p1 = 0xCD9E8D57ULL * c[2];
  c[0] = static_cast<unsigned>(p1 >> 32) ^ c[1] ^ k0;
  c[1] = static_cast<unsigned>(p1);
  c[2] = static_cast<unsigned>(p0 >> 32) ^ c[3] ^ k1;
  c[3] = static_cast<unsigned>(p0);
}
}  // namespace detail

inline constexpr int philox_rounds = 10;
/** @brief The fewest that pass all of BigCrush (table 2 there). For the dropout of a transducer's
 *  joint, which their number bounds and which does not need the safety margin of ten. */
inline constexpr int philox_fewest_rounds = 7;

/** @brief The block number `low` of the sequence `high` under `key`. */
template <int rounds = philox_rounds>
BS_HOST_DEVICE inline PhiloxBlock philox(unsigned long long key, unsigned long long low,
                                         unsigned long long high) {
  auto k0 = static_cast<unsigned>(key);
  auto k1 = static_cast<unsigned>(key >> 32);
  unsigned c[4] = {static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
                   static_cast<unsigned>(high), static_cast<unsigned>(high >> 32)};
  for (int round = 0; round < rounds; ++round) {
    detail::philox_round(c, k0, k1);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

/** @brief The keys of all rounds, which a kernel's threads need not add up each for itself. */
template <int rounds = philox_rounds>
struct PhiloxKeys {
  unsigned even[rounds], odd[rounds];

  explicit PhiloxKeys(unsigned long long key) {
    for (unsigned i = 0; i < rounds; ++i) {
      even[i] = static_cast<unsigned>(key) + i * 0x9E3779B9U;
      odd[i] = static_cast<unsigned>(key >> 32) + i * 0xBB67AE85U;
    }
  }
};

/** @brief The same block as philox<rounds>(key, low, high). */
template <int rounds>
BS_HOST_DEVICE inline PhiloxBlock philox(const PhiloxKeys<rounds>& keys, unsigned long long low,
                                         unsigned long long high) {
  unsigned c[4] = {static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
                   static_cast<unsigned>(high), static_cast<unsigned>(high >> 32)};
  for (int round = 0; round < rounds; ++round)
    detail::philox_round(c, keys.even[round], keys.odd[round]);
  return {{c[0], c[1], c[2], c[3]}};
}

}  // namespace bs
