#include <bs/lib/philox.h>
#include <bs/lib/random.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

using namespace bs;

namespace {
template <int rounds = philox_rounds>
std::array<uint32_t, 4> words(uint64_t key, uint64_t low, uint64_t high) {
  const PhiloxBlock b = philox<rounds>(key, low, high);
  const PhiloxBlock keyed = philox(PhiloxKeys<rounds>(key), low, high);
  CHECK(std::ranges::equal(b.word, keyed.word));
  return {b.word[0], b.word[1], b.word[2], b.word[3]};
}
}  // namespace

// The vectors for philox4x32-10 and philox4x32-7 that Random123 publishes (kat_vectors).
TEST_CASE("philox gives the published answers") {
  using Words = std::array<uint32_t, 4>;
  CHECK(words(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(~0ULL, ~0ULL, ~0ULL) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(words<7>(0, 0, 0) == Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  CHECK(words<7>(~0ULL, ~0ULL, ~0ULL) == Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  CHECK(words<7>(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

TEST_CASE("generator counts operations and can be put back") {
  Generator g(7);
  CHECK(g.next() == RandomState{7, 0});
  const RandomState saved = g.state();
  CHECK(saved == RandomState{7, 1});
  CHECK(g.next() == RandomState{7, 1});
  g.set_state(saved);
  CHECK(g.next() == RandomState{7, 1});
  g.manual_seed(3);
  CHECK(g.next() == RandomState{3, 0});
  manual_seed(11);
  CHECK(default_generator().next() == RandomState{11, 0});
}

TEST_CASE("generator gives no sequence to two threads") {
  Generator g;
  std::vector<std::vector<uint64_t>> drawn(4);
  std::vector<std::thread> threads;
  for (auto& mine : drawn)
    threads.emplace_back([&g, &mine] {
      for (int i = 0; i < 1000; ++i) mine.push_back(g.next().offset);
    });
  for (std::thread& t : threads) t.join();
  std::vector<uint64_t> all;
  for (const auto& mine : drawn) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (uint64_t i = 0; i < all.size(); ++i) CHECK(all[i] == i);
}
