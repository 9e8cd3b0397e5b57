#include <bs/nn/data/loader.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>

using namespace bs;
using namespace bs::test;
using data::Batch;
using data::Loader;
using data::TextDataset;

namespace {

/// A text whose byte at i is i mod 251, so that a window tells where it began.
TextDataset counting(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(i % 251);
  return TextDataset::from(text);
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

}  // namespace

TEST_CASE("loader: windows and what follows them") {
  for (DType dtype : {i32, i64}) {
    const std::vector<int64_t> starts{3, 0, 6};
    const Batch batch = data::windows(counting(10), starts, 3, dtype, test_device());
    CHECK(batch.inputs.dtype() == dtype);
    CHECK(batch.inputs.device() == test_device());
    CHECK(batch.inputs.shape() == Shape{3, 3});
    CHECK(values(batch.inputs) == std::vector<double>{3, 4, 5, 0, 1, 2, 6, 7, 8});
    CHECK(values(batch.targets) == std::vector<double>{4, 5, 6, 1, 2, 3, 7, 8, 9});
  }
  const std::vector<int64_t> late{7};
  CHECK_THROWS_WITH_AS(data::windows(counting(10), late, 3),
                       "loader: a window of 3 + 1 bytes at 7 of a text of 10", Error);
  CHECK_THROWS_AS(data::windows(counting(10), late, 2, f32), Error);
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t context : {most, most - 3, -most, int64_t{-1}})
    CHECK_THROWS_AS(data::windows(counting(10), late, context), Error);
}

TEST_CASE("loader: batches are random windows with their targets") {
  Loader loader(counting(100), {.batch = 5, .context = 7, .seed = 1, .device = test_device()});
  std::set<double> starts;
  for (int n = 0; n < 300; ++n) {
    const Batch batch = loader.next();
    REQUIRE(batch.inputs.shape() == Shape{5, 7});
    CHECK(batch.inputs.dtype() == i32);
    CHECK(batch.inputs.device() == test_device());
    const auto inputs = values(batch.inputs), targets = values(batch.targets);
    for (size_t i = 0; i < inputs.size(); ++i) CHECK(targets[i] == inputs[i] + 1);
    for (size_t row = 0; row < 5; ++row) starts.insert(inputs[row * 7]);
  }
  // 1500 draws out of the 93 places: all of them, with the first and the last.
  CHECK(starts.size() == 93);
  CHECK(*starts.rbegin() == 92);
}

TEST_CASE("loader: a batch depends on text, seed and number alone") {
  const auto series = [](uint64_t seed, int prefetch, int64_t from) {
    Loader loader(counting(200),
                  {.batch = 2, .context = 8, .seed = seed, .dtype = i64, .prefetch = prefetch});
    loader.seek(from);
    std::vector<double> all;
    for (int n = 0; n < 4; ++n)
      for (double v : values(loader.next().inputs)) all.push_back(v);
    CHECK(loader.cursor() == from + 4);
    return all;
  };
  CHECK(series(1, 0, 3) == series(1, 2, 3));
  CHECK(series(1, 2, 3) == series(1, 7, 3));
  CHECK(series(1, 2, 3) != series(2, 2, 3));
  CHECK(series(1, 2, 3) != series(1, 2, 4));
}

TEST_CASE("loader: seek goes anywhere and back") {
  Loader loader(counting(200), {.batch = 2, .context = 8});
  const auto first = values(loader.next().inputs);
  loader.next();
  loader.next();
  loader.seek(0);
  CHECK(loader.cursor() == 0);
  CHECK(values(loader.next().inputs) == first);
  CHECK_THROWS_WITH_AS(loader.seek(-1), "loader: a cursor of -1", Error);
}

TEST_CASE("loader: one window is text enough, less is not") {
  Loader loader(counting(5), {.batch = 1, .context = 4});
  CHECK(values(loader.next().inputs) == std::vector<double>{0, 1, 2, 3});
  CHECK_THROWS_WITH_AS(Loader(counting(4), {.batch = 1, .context = 4}),
                       "loader: a text of 4 bytes has no window of 4 + 1", Error);
  CHECK_THROWS_WITH_AS(Loader(counting(9), {.batch = 0, .context = 4}),
                       "loader: batch 0, context 4, prefetch 2", Error);
  CHECK_THROWS_AS(Loader(counting(9), {.batch = 1, .context = 4, .dtype = f32}), Error);
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  CHECK_THROWS_WITH_AS(
      Loader(counting(9), {.batch = most, .context = 4}),
      "loader: 9223372036854775807 windows of 4, over 1099511627776 tokens a batch", Error);
}

TEST_CASE("loader: no batch comes whose cursor could not be saved and sought again") {
  for (const int prefetch : {0, 2}) {
    Loader loader(counting(9), {.batch = 1, .context = 4, .prefetch = prefetch});
    loader.seek(data::Cursor::most - 1);
    loader.next();
    CHECK_THROWS_WITH_AS(loader.next(), "loader: 1099511627776 batches are the most", Error);
    CHECK(loader.cursor() == data::Cursor::most);
    loader.seek(loader.cursor());
    CHECK_THROWS_AS(loader.seek(loader.cursor() + 1), Error);
  }
}
