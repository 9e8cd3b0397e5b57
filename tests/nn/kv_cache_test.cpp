// nn::KVCache, with pages and without, against lists of tokens; forks against caches that read all.
#include <bs/kernels/concat.h>
#include <bs/nn/multihead_attention.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <random>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 2, heads = 3, head_dim = 8, value_dim = 16;

nn::KVCacheOptions options(int64_t page) {
  return {.batch = batch,
          .heads = heads,
          .capacity = 40,
          .head_dim = head_dim,
          .value_dim = value_dim,
          .page = page,
          .device = test_device()};
}

/// A cache and what it should hold: tokens numbered by when they came.
struct Tracked {
  nn::KVCache cache;
  std::vector<uint32_t> tokens;

  static Tensor one(uint32_t token, int64_t width) {
    return random_reference({batch, heads, 1, width}, token).tensor(f32, test_device());
  }
  static Tensor all(const std::vector<uint32_t>& tokens, int64_t width) {
    std::vector<Tensor> parts;
    for (const uint32_t token : tokens) parts.push_back(one(token, width));
    return concat(parts, 2);
  }
  void append(const std::vector<uint32_t>& more) {
    cache.append(all(more, head_dim), all(more, value_dim));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  void check() const {
    CHECK(cache.length() == static_cast<int64_t>(tokens.size()));
    CHECK(cache.keys().shape() == Shape({batch, heads, cache.length(), head_dim}));
    CHECK(cache.values().shape() == Shape({batch, heads, cache.length(), value_dim}));
    if (tokens.empty()) return;
    CHECK(Reference::of(cache.keys()).values == Reference::of(all(tokens, head_dim)).values);
    CHECK(Reference::of(cache.values()).values == Reference::of(all(tokens, value_dim)).values);
  }
};

}  // namespace

TEST_CASE("nn::KVCache: appended, forked, cut and freed at random") {
  for (const int64_t page : {0, 1, 3, 8, 64}) {
    CAPTURE(page);
    std::mt19937 random(7);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
    std::vector<Tracked> caches;
    caches.push_back({nn::KVCache(options(page)), {}});
    uint32_t token = 0;
    for (int step = 0; step < 120; ++step) {
      const auto which = static_cast<size_t>(below(static_cast<int64_t>(caches.size())));
      Tracked& one = caches[which];
      const int64_t length = one.cache.length();
      const int64_t act = below(10);
      if (act < 6 && length < 40) {
        std::vector<uint32_t> more(
            static_cast<size_t>(1 + below(std::min<int64_t>(9, 40 - length))));
        for (uint32_t& number : more) number = ++token;
        one.append(more);
      } else if (act == 6) {
        const int64_t left = below(length + 1);
        one.cache.truncate(left);
        one.tokens.resize(static_cast<size_t>(left));
      } else if (act < 9 && caches.size() < 5) {
        Tracked other{one.cache.fork(), one.tokens};
        caches.push_back(std::move(other));
      } else if (caches.size() > 1) {
        caches.erase(caches.begin() + static_cast<std::ptrdiff_t>(which));
      }
      if (step % 4 == 0)
        for (const Tracked& each : caches) each.check();
    }
    for (const Tracked& each : caches) each.check();
  }
}

TEST_CASE("nn::KVCache: forks share pages until they go on") {
  Tracked first{nn::KVCache(options(8)), {}};
  CHECK(first.cache.pages_in_use() == 0);
  first.append({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(first.cache.pages_in_use() == 2);
  // Pages that lie side by side are read where they are.
  const Tensor once = first.cache.keys(), again = first.cache.keys();
  CHECK(once.data<float>() == again.data<float>());
  {
    Tracked second{first.cache.fork(), first.tokens};
    CHECK(first.cache.pages_in_use() == 2);
    second.append({11});
    CHECK(first.cache.pages_in_use() == 3);
    first.append({12});
    CHECK(first.cache.pages_in_use() == 3);
    first.check();
    second.check();
    second.cache.truncate(3);
    CHECK(first.cache.pages_in_use() == 2);
  }
  CHECK(first.cache.pages_in_use() == 2);
  first.cache.truncate(0);
  first.tokens.clear();
  CHECK(first.cache.pages_in_use() == 0);
  first.append({1});
  first.check();
}

TEST_CASE("nn::KVCache: the oldest tokens are dropped, and the others keep their places") {
  for (const int64_t page : {0, 4}) {
    CAPTURE(page);
    Tracked one{nn::KVCache(options(page)), {}};
    one.append({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    Tracked fork{one.cache.fork(), one.tokens};
    one.cache.drop(4);
    one.tokens.erase(one.tokens.begin(), one.tokens.begin() + 4);
    CHECK(one.cache.dropped() == 4);
    one.check();
    one.append({11, 12, 13});
    one.check();
    CHECK(fork.cache.dropped() == 0);
    fork.check();
    one.cache.drop(8);
    one.tokens.erase(one.tokens.begin(), one.tokens.begin() + 8);
    CHECK(one.cache.fork().dropped() == 12);
    one.append(std::vector<uint32_t>(39, 14));  // there is room again
    one.check();
    CHECK_THROWS_WITH_AS(one.cache.drop(41), "kv_cache: 41 of 40 tokens", Error);
  }
  Tracked paged{nn::KVCache(options(4)), {}};
  paged.append({1, 2, 3, 4, 5});
  CHECK_THROWS_WITH_AS(paged.cache.drop(3), "kv_cache: 3 tokens are no whole pages of 4", Error);
  paged.cache.drop(4);
  CHECK(paged.cache.pages_in_use() == 1);
}

TEST_CASE("nn::KVCache: attention over pages, behind a fork too") {
  const nn::MultiheadAttention layer({.width = 32,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .block = 8,
                                      .causal = true,
                                      .device = test_device()});
  const Tensor x = random_reference({batch, 21, 32}, 1).tensor(f32, test_device());
  const auto read = [&](nn::KVCache& cache, int64_t from, int64_t to) {
    return Reference::of(layer.forward(Variable(x.slice(1, from, to)), cache).data()).values;
  };
  nn::KVCache whole = layer.make_cache(batch, 24), paged = layer.make_cache(batch, 24, 4);
  CHECK(read(whole, 0, 10) == read(paged, 0, 10));
  nn::KVCache fork = paged.fork();
  CHECK(read(whole, 10, 13) == read(paged, 10, 13));
  whole.truncate(10);
  CHECK(read(whole, 15, 21) == read(fork, 15, 21));
  whole.truncate(10);
  CHECK(read(whole, 10, 11) != read(fork, 15, 16));
}

TEST_CASE("nn::KVCache: errors") {
  CHECK_THROWS_WITH_AS(
      nn::KVCache({.capacity = 4, .head_dim = 8, .page = -1}),
      "kv_cache: batch 1, 1 heads, capacity 4, head_dim 8, value_dim 0, pages of -1", Error);
  for (const int64_t page : {0, 8}) {
    nn::KVCache cache(options(page));
    const Tensor keys = Tracked::all({1, 2}, head_dim), values = Tracked::all({1, 2}, value_dim);
    CHECK_THROWS_AS(cache.append(keys, keys), Error);
    CHECK_THROWS_AS(cache.append(keys, values.slice(2, 0, 1)), Error);
    CHECK_THROWS_WITH_AS(cache.truncate(1), "kv_cache: 1 of 0 tokens", Error);
    cache.append(keys, values);
    CHECK(cache.length() == 2);
  }
}
