#include <bs/kernels/arange.h>
#include <bs/kernels/random.h>
#include <bs/nn/data/data_loader.h>
#include <bs/nn/data/draws.h>
#include <bs/tests/support/beside.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <optional>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

/// The order of an epoch by Fisher and Yates, written anew.
std::vector<double> shuffled(int64_t size, uint64_t seed, uint64_t epoch) {
  std::vector<double> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0.0);
  data::Draws draws(seed, epoch);
  for (int64_t last = size - 1; last > 0; --last)
    std::swap(order[static_cast<size_t>(last)], order[static_cast<size_t>(draws.below(last + 1))]);
  return order;
}

/// So many samples, each its own number.
data::Dataset numbers(int64_t size) {
  return {size, [](int64_t i) { return std::vector<Tensor>{Tensor::from<int64_t>({i})}; }};
}

/// Seconds that this thread has computed.
double seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Ten rows [i, i] and their numbers.
data::Dataset ten() {
  return data::tensor_dataset({arange(10, f32).view({10, 1}).expand({10, 2}), arange(10)});
}

}  // namespace

TEST_CASE("batches in order") {
  data::DataLoader loader(ten(), {.batch = 4, .device = test_device()});
  CHECK(loader.batches() == 3);
  CHECK(values(loader.next()[1]) == std::vector<double>{0, 1, 2, 3});
  const auto second = loader.next();
  CHECK(second[0].shape() == Shape{4, 2});
  CHECK(second[0].device() == test_device());
  CHECK(values(second[0]) == std::vector<double>{4, 4, 5, 5, 6, 6, 7, 7});
  CHECK(values(loader.next()[1]) == std::vector<double>{8, 9});
  CHECK(loader.epoch() == 1);
  CHECK(values(loader.next()[1]) == std::vector<double>{0, 1, 2, 3});
  CHECK(data::DataLoader(ten(), {.batch = 4, .drop_last = true}).batches() == 2);
}

TEST_CASE("each epoch has every sample once, in an order of its own") {
  data::DataLoader loader(ten(), {.batch = 3, .shuffle = true, .seed = 5});
  std::vector<std::vector<double>> epochs(2);
  for (auto& epoch : epochs) {
    for (int64_t b = 0; b < loader.batches(); ++b)
      for (const double v : values(loader.next()[1])) epoch.push_back(v);
  }
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) {
    CHECK(!std::is_sorted(epoch.begin(), epoch.end()));
    std::sort(epoch.begin(), epoch.end());
    CHECK(epoch == values(arange(10)));
  }
}

TEST_CASE("parts drawn by chance have every sample once, the same for one seed") {
  const auto numbers = [](const data::Dataset& of) {
    std::vector<double> all;
    for (int64_t i = 0; i < of.size; ++i) all.push_back(of.sample(i)[1].item());
    return all;
  };
  const auto parts = data::random_split(ten(), {7, 0, 3}, 4);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size == 7);
  CHECK(parts[1].size == 0);
  std::vector<double> all = numbers(data::joined(parts[0], parts[2]));
  CHECK(!std::is_sorted(all.begin(), all.end()));
  CHECK(numbers(data::random_split(ten(), {10}, 4)[0]) == all);
  CHECK(numbers(data::random_split(ten(), {10}, 5)[0]) != all);
  std::sort(all.begin(), all.end());
  CHECK(all == values(arange(10)));
  CHECK(data::random_split(data::subset(ten(), {}), {}).empty());
  CHECK_THROWS_WITH_AS(data::random_split(ten(), {8, 3}),
                       "random_split: 3 of 10 samples, 2 of which are left", Error);
  CHECK_THROWS_WITH_AS(data::random_split(ten(), {8, 1}),
                       "random_split: 1 of 10 samples are in no part", Error);
  CHECK_THROWS_WITH_AS(data::random_split(ten(), {-1, 11}),
                       "random_split: -1 of 10 samples, 10 of which are left", Error);
  CHECK_THROWS_WITH_AS(data::joined({std::numeric_limits<int64_t>::max(), ten().sample}, ten()),
                       "joined: data sets of 9223372036854775807 and 10 samples", Error);
  CHECK_THROWS_WITH_AS(data::joined(ten(), {3, nullptr}), "joined: second.sample is no function",
                       Error);
}

TEST_CASE("a series goes on where it was left, whatever threads made it") {
  const auto series = [](const data::DataLoaderOptions& options, int64_t from) {
    data::DataLoader loader(ten(), options);
    loader.seek(from);
    std::vector<double> all;
    for (int i = 0; i < 9; ++i)
      for (const double v : values(loader.next()[1])) all.push_back(v);
    CHECK(loader.cursor() == from + 9);
    return all;
  };
  data::DataLoaderOptions options{.batch = 3, .shuffle = true, .seed = 2};
  const auto expected = series(options, 2);
  options.workers = 3;
  CHECK(series(options, 2) == expected);
  options.prefetch = 0;
  CHECK(series(options, 2) == expected);
}

TEST_CASE("the order of an epoch is a function of the seed and the epoch, wherever one begins") {
  constexpr int64_t size = 10, batch = 3;
  for (const int prefetch : {0, 2})
    for (const bool drop_last : {false, true}) {
      data::DataLoader loader(ten(), {.batch = batch,
                                      .shuffle = true,
                                      .seed = 9,
                                      .drop_last = drop_last,
                                      .prefetch = prefetch});
      // Forwards through epochs, within one, back, and into the same one again.
      for (const int64_t cursor : {0, 1, 2, 3, 4, 5, 11, 10, 2, 3, 1000, 1001, 0}) {
        if (cursor != loader.cursor()) loader.seek(cursor);
        const std::vector<double> order =
            shuffled(size, 9, static_cast<uint64_t>(cursor / loader.batches()));
        const int64_t from = cursor % loader.batches() * batch, to = std::min(from + batch, size);
        CHECK(values(loader.next()[1]) ==
              std::vector<double>(order.begin() + from, order.begin() + to));
      }
    }
}

TEST_CASE("an epoch is put in order once, not for each of its batches") {
  data::DataLoader loader(numbers(400'000), {.batch = 2, .shuffle = true, .prefetch = 0});
  const double start = seconds();
  loader.next();
  const double first = seconds() - start;
  for (int i = 0; i < 20; ++i) loader.next();
  CHECK(seconds() - start < 5 * first);
}

TEST_CASE("a data set that is not shuffled may have any size") {
  for (const int64_t size : {int64_t{1} << 45, std::numeric_limits<int64_t>::max()})
    for (const int prefetch : {0, 1}) {
      data::DataLoader loader(numbers(size), {.batch = 2, .prefetch = prefetch});
      loader.seek(data::Cursor::most - 1);
      const double number = static_cast<double>((data::Cursor::most - 1) % loader.batches() * 2);
      CHECK(values(loader.next()[0]) == std::vector<double>{number, number + 1});
    }
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  data::DataLoader halves(numbers(most), {.batch = most - 1, .drop_last = true});
  CHECK(halves.batches() == 1);
  data::DataLoader many(numbers(most), {.shuffle = true, .prefetch = 0});
  CHECK_THROWS_AS(many.next(), OutOfMemory);
}

TEST_CASE("samples may be mapped, chosen and collated") {
  std::atomic<int> calls = 0;
  const data::Dataset doubled = data::mapped(ten(), [&](std::vector<Tensor> sample, int64_t i) {
    ++calls;
    sample[1] = Tensor::from<int64_t>({2 * i}).view({});
    return sample;
  });
  data::DataLoader loader(data::subset(doubled, {9, 0, 4}),
                          {.batch = 2, .prefetch = 0, .workers = 2});
  CHECK(values(loader.next()[1]) == std::vector<double>{18, 0});
  CHECK(calls == 2);
  data::DataLoader sizes(
      ten(),
      {.batch = 4, .prefetch = 0, .collate = [](std::span<const std::vector<Tensor>> samples) {
         const auto n = static_cast<int64_t>(samples.size());
         return std::vector<Tensor>{Tensor::from<int64_t>({n})};
       }});
  CHECK(values(sizes.next()[0]) == std::vector<double>{4});
}

TEST_CASE("samples and batches are made on the stream of the thread that takes them") {
  std::optional<OtherStream> other;
  if (test_device().is_cuda()) other.emplace(test_device());
  const Stream here = current_stream(test_device());
  std::atomic<int> calls = 0;
  const auto on_stream = [&](const std::vector<Tensor>& batch) {
    calls += current_stream(test_device()) == here;
    return batch;
  };
  for (const int prefetch : {0, 2}) {
    calls = 0;
    data::DataLoader loader(
        data::mapped(ten(), [&](const auto& sample, int64_t) { return on_stream(sample); }),
        {.batch = 10,
         .prefetch = prefetch,
         .workers = 3,
         .device = test_device(),
         .collate = [&](const auto& samples) { return on_stream(data::stacked(samples)); }});
    loader.next();
    CHECK(calls >= 11);
  }
}

TEST_CASE("a loader passes on what a sample throws, and refuses what makes no batch") {
  for (const int prefetch : {0, 2}) {
    data::DataLoader loader(
        {3, [](int64_t i) -> std::vector<Tensor> { BS_THROW(Error, "sample {} is bad", i); }},
        {.batch = 2, .prefetch = prefetch, .workers = 2});
    CHECK_THROWS_AS(loader.next(), Error);
  }
  CHECK_THROWS_WITH_AS(data::DataLoader({}, {}), "data loader: 0 samples make no batch of 32",
                       Error);
  CHECK(data::DataLoader(ten(), {.batch = std::numeric_limits<int64_t>::max()}).batches() == 1);
  CHECK_THROWS_WITH_AS(data::DataLoader(ten(), {.batch = 0}),
                       "data loader: batch 0, prefetch 2, workers 1", Error);
  CHECK_THROWS_WITH_AS(data::DataLoader({-5, ten().sample}),
                       "data loader: -5 samples make no batch of 32", Error);
  CHECK_THROWS_WITH_AS(data::DataLoader({10, nullptr}),
                       "data loader: the dataset's sample is no function", Error);
  CHECK_THROWS_WITH_AS(data::mapped(ten(), nullptr), "mapped: map is no function", Error);
  CHECK_THROWS_WITH_AS(
      data::mapped({10, nullptr}, [](const auto& sample, int64_t) { return sample; }),
      "mapped: from.sample is no function", Error);
  CHECK_THROWS_WITH_AS(data::subset({10, nullptr}, {1}), "subset: from.sample is no function",
                       Error);
  CHECK_THROWS_WITH_AS(data::tensor_dataset({rand({2}), rand({3})}),
                       "dataset: shapes [2] and [3] of other lengths", Error);
  CHECK_THROWS_WITH_AS(data::subset(ten(), {10}), "subset: index 10 is outside [0, 10)", Error);
}
