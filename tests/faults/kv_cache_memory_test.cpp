// Every allocation of an append to a cache with pages fails in turn: an error comes, the cache and
// its fork hold what they held, and the next try gives the same bits as if nothing had been.
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/nn/kv_cache.h>
#include <bs/tests/faults/memory_faults.h>
#include <doctest/doctest.h>

#include <string>

using namespace bs;
using namespace bs::test;

TEST_CASE("faults: memory missing at any point of a cache's append") {
  const auto tokens = [](int64_t count, double value) { return full({1, 2, count, 4}, value); };
  const auto begun = [&] {
    nn::KVCache cache({.heads = 2, .capacity = 40, .head_dim = 4, .page = 4});
    cache.append(tokens(6, 1), tokens(6, 2));
    return cache;
  };
  const auto bytes = [](const nn::KVCache& cache) {
    std::string all;
    for (const Tensor& x : {contiguous(cache.keys()), contiguous(cache.values())})
      all.append(static_cast<const char*>(x.data()), x.bytes());
    return all;
  };
  // Some pages are made, and the last one that is shared is copied.
  const Tensor keys = tokens(21, 3), values = tokens(21, 4);
  begun().append(keys, values);  // takes what threads keep
  nn::KVCache whole = begun();
  const std::string before = bytes(whole);
  const nn::KVCache fork = whole.fork();
  const int64_t points = allocations_of([&] { whole.append(keys, values); });
  const std::string after = bytes(whole);
  CHECK(points > 8);
  for (int64_t point = 0; point < points; ++point) {
    CAPTURE(point);
    nn::KVCache cache = begun();
    const nn::KVCache other = cache.fork();
    CHECK(runs_out(point, [&] { cache.append(keys, values); }));
    CHECK(cache.length() == 6);
    CHECK(cache.pages().table.size() == 2);
    CHECK(bytes(cache) == before);
    CHECK(bytes(other) == before);
    cache.append(keys, values);
    CHECK(bytes(cache) == after);
    CHECK(bytes(other) == before);
    CHECK(cache.pages_in_use() == 8);
  }
}
