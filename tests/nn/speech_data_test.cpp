#include <bs/lib/check.h>
#include <bs/nn/data/alphabet.h>
#include <bs/nn/data/manifest.h>
#include <bs/nn/data/resample.h>
#include <bs/nn/data/speech_loader.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

data::SpeechFeatures features() {
  return data::SpeechFeatures(
      {.mel = {.rate = 8000, .mels = 4, .dither = 1e-3}, .stack = 2, .stride = 2});
}

/// Utterance i has i tokens and i more windows than the first.
std::shared_ptr<const data::Utterances> utterances(int count) {
  auto all = std::make_shared<data::Utterances>();
  for (int i = 0; i < count; ++i) {
    data::Draws draws(7, static_cast<uint64_t>(i));
    data::Utterance u{.name = std::to_string(i)};
    u.samples.resize(static_cast<size_t>(800 + 80 * i));
    for (float& v : u.samples) v = static_cast<float>(draws.uniform() - 0.5);
    for (int k = 0; k < i; ++k) u.tokens.push_back(i);
    all->push_back(std::move(u));
  }
  return all;
}

}  // namespace

TEST_CASE("alphabet: characters of UTF-8 in the order of their code points") {
  const data::Alphabet a = data::Alphabet::of(std::vector<std::string>{"ban", "žába", ""});
  CHECK(a.text() == "abnáž");
  CHECK(a.size() == 5);
  CHECK(a.encode("žanb") == std::vector<int64_t>{4, 0, 2, 1});
  CHECK(a.decode(a.encode("bažán")) == "bažán");
  CHECK(data::Alphabet(a.text()).encode("á") == std::vector<int64_t>{3});
  CHECK(a.contains("nabž"));
  CHECK(!a.contains("c"));
  CHECK_THROWS_WITH_AS(a.encode("ax"), "alphabet: 'x' is not in it", Error);
  CHECK_THROWS_WITH_AS(a.decode(std::vector<int64_t>{5}), "alphabet: 5 is none of 5 characters",
                       Error);
  CHECK_THROWS_WITH_AS(data::Alphabet("aba"), "alphabet: 'a' comes twice", Error);
  for (const char* bad : {"\xc3", "a\x80", "\xff\xff", "\xe1\x80z", "\xc0\x80", "\xed\xa0\x80"})
    CHECK_THROWS_AS(data::characters_of(bad), Error);
  CHECK_THROWS_WITH_AS(data::characters_of("ab\xc3"), "alphabet: the text is not UTF-8 at byte 2",
                       Error);
}

TEST_CASE("manifest: paths count from its folder, mistakes name the line") {
  const Scratch scratch;
  const std::string path = scratch / "list.jsonl";
  std::ofstream(path) << R"({"path": "a/b.wav", "text": "hello", "speaker": 3})"
                      << "\n\n"
                      << R"({"text": "žába", "path": "/c.ogg"})"
                      << "\n";
  const auto entries = data::read_manifest(path);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].path == (scratch / "a/b.wav"));
  CHECK(entries[0].text == "hello");
  CHECK(entries[1].path == "/c.ogg");
  CHECK(entries[1].text == "žába");
  std::ofstream(path) << R"({"path": "a.wav", "text": "x"})"
                      << "\n"
                      << R"({"path": "b.wav"})";
  CHECK_THROWS_WITH_AS(data::read_manifest(path), (path + ":2: no member 'text'").c_str(), IoError);
  CHECK_THROWS_AS(data::read_manifest(scratch / "none"), IoError);
  CHECK_THROWS_AS(data::read_manifest(scratch / ""), IoError);  // a folder
}

TEST_CASE("collate: zeros fill up the shorter ones") {
  const data::Frames a{.width = 2, .values = {1, 2}}, b{.width = 2, .values = {3, 4, 5, 6}};
  const std::vector<std::vector<int64_t>> tokens{{7, 8, 9}, {}};
  const auto batch = data::collate(std::vector{a, b}, tokens, 0.5);
  CHECK(batch.features.shape() == Shape{2, 2, 2});
  CHECK(values(batch.features) == std::vector<double>{1, 2, 0, 0, 3, 4, 5, 6});
  CHECK(values(batch.lengths) == std::vector<double>{1, 2});
  CHECK(batch.targets.dtype() == i32);
  CHECK(values(batch.targets) == std::vector<double>{7, 8, 9, 0, 0, 0});
  CHECK(values(batch.target_lengths) == std::vector<double>{3, 0});
  CHECK(batch.seconds == 1.5);
  CHECK_THROWS_WITH_AS(data::collate(std::vector{a}, tokens, 1),
                       "collate: 1 recordings and 2 texts", Error);
  CHECK_THROWS_WITH_AS(
      data::collate(std::vector{a, b}, tokens, 1, {.frames = 0}),
      "collate: padding to multiples of 0 frames and 1 labels, expected 1 to 65536", Error);
}

TEST_CASE("collate: padding makes extents multiples, and changes nothing else") {
  const data::Frames a{.width = 1, .values = {1, 2}}, b{.width = 1, .values = {3}};
  const std::vector<std::vector<int64_t>> tokens{{7}, {8, 9}};
  const auto batch = data::collate(std::vector{a, b}, tokens, 0.5, {.frames = 4, .labels = 3});
  CHECK(batch.features.shape() == Shape{2, 4, 1});
  CHECK(values(batch.features) == std::vector<double>{1, 2, 0, 0, 3, 0, 0, 0});
  CHECK(values(batch.lengths) == std::vector<double>{2, 1});
  CHECK(batch.targets.shape() == Shape{2, 3});
  CHECK(values(batch.targets) == std::vector<double>{7, 0, 0, 8, 9, 0});
  CHECK(values(batch.target_lengths) == std::vector<double>{1, 2});
  CHECK(batch.seconds == 1.5);
}

TEST_CASE("speech_loader: an epoch has every utterance once, lengths close together") {
  const data::SpeechLoader loader(utterances(50), features(),
                                  {.batch = 4, .buckets = 5, .seed = 3, .prefetch = 0});
  REQUIRE(loader.batches_an_epoch() == 13);
  std::vector<int64_t> first_epoch;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 13; ++i) {
      const auto indices = loader.indices(13 * epoch + i);
      const auto [low, high] = std::ranges::minmax(indices);
      CHECK(high - low < 20);  // of two neighbouring buckets of ten
      all.insert(all.end(), indices.begin(), indices.end());
    }
    CHECK(std::set(all.begin(), all.end()).size() == 50);
    CHECK(all.size() == 50);
    CHECK(all != first_epoch);
    if (epoch == 0) first_epoch = all;
  }
}

TEST_CASE("speech_loader: the order is a function of the epoch, in whatever order it is asked") {
  const auto order_key = uint64_t{0x6f72646572};
  constexpr int64_t count = 23, batch = 4, buckets = 3, pieces = 6;
  const data::SpeechLoader loader(utterances(count), features(),
                                  {.batch = batch, .buckets = buckets, .seed = 7, .prefetch = 0});
  const auto shuffle = [](auto begin, auto end, data::Draws& draws) {
    for (auto left = end - begin; left > 1; --left)
      std::swap(begin[left - 1], begin[draws.below(left)]);
  };
  for (const int64_t number : {0, 1, 7, 6, 5, 23, 24, 0, 60}) {
    data::Draws draws(7 ^ order_key, static_cast<uint64_t>(number / pieces));
    std::vector<int64_t> order(count), places(pieces);  // utterance i is the i-th by length
    std::iota(order.begin(), order.end(), 0);
    std::iota(places.begin(), places.end(), 0);
    for (int64_t i = 0; i < buckets; ++i)
      shuffle(order.begin() + count * i / buckets, order.begin() + count * (i + 1) / buckets,
              draws);
    shuffle(places.begin(), places.end(), draws);
    const auto from = order.begin() + places[static_cast<size_t>(number % pieces)] * batch;
    CHECK(loader.indices(number) ==
          std::vector<int64_t>(from, from + std::min<int64_t>(batch, order.end() - from)));
  }
}

TEST_CASE("speech_loader: an epoch is put in order once, for several threads") {
  const auto many = std::make_shared<data::Utterances>(200'000);
  const data::SpeechLoader loader(many, features(), {.batch = 2, .prefetch = 0});
  const auto seconds = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double start = seconds();
  const std::vector<int64_t> expected = loader.indices(0);
  const double first = seconds() - start;
  for (int i = 1; i < 20; ++i) loader.indices(i);
  CHECK(seconds() - start < 5 * first);
  const data::SpeechLoader few(utterances(9), features(), {.batch = 2, .prefetch = 0});
  std::vector<std::vector<int64_t>> alone;
  for (int i = 0; i < 20; ++i) alone.push_back(few.indices(i));
  std::vector<int> same(3);
  std::vector<std::thread> threads;
  for (int& s : same)
    threads.emplace_back([&] {
      for (size_t i = 0; i < alone.size(); ++i)
        s += few.indices(static_cast<int64_t>(i)) == alone[i];
    });
  for (std::thread& t : threads) t.join();
  CHECK(same == std::vector<int>(3, 20));
}

TEST_CASE("speech_loader: batches are a function of their number") {
  const data::SpeechLoaderOptions options{
      .batch = 3,
      .buckets = 2,
      .augment = {.slowest = 0.9, .fastest = 1.1, .masks = true},
      .seed = 5,
      .device = test_device(),
      .prefetch = 2};
  data::SpeechLoader loader(utterances(10), features(), options);
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < 9; ++i) {
    const data::SpeechBatch batch = loader.next();
    CHECK(batch.features.device() == test_device());
    const auto indices = loader.indices(i);
    REQUIRE(values(batch.target_lengths).size() == indices.size());
    for (size_t row = 0; row < indices.size(); ++row)
      CHECK(values(batch.target_lengths)[row] == static_cast<double>(indices[row]));
    CHECK(batch.seconds > 0);
    seen.push_back(values(batch.features));
  }
  loader.seek(4);
  CHECK(values(loader.next().features) == seen[4]);
  CHECK(loader.cursor() == 5);
  auto without_thread = options;
  without_thread.prefetch = 0;
  without_thread.workers = 1'000'000;  // no more of them start than there are recordings
  data::SpeechLoader other(utterances(10), features(), without_thread);
  other.seek(6);
  CHECK(values(other.next().features) == seen[6]);
  CHECK_THROWS_WITH_AS(loader.seek(-1), "speech_loader: a cursor of -1", Error);
  for (const int prefetch : {0, 2}) {
    auto large = options;
    large.batch = std::numeric_limits<int64_t>::max(), large.prefetch = prefetch;
    data::SpeechLoader last(utterances(10), features(), large);
    CHECK(last.batches_an_epoch() == 1);
    last.seek(data::Cursor::most - 1);
    CHECK(last.next().features.size(0) == 10);
    CHECK_THROWS_WITH_AS(last.next(), "speech_loader: 1099511627776 batches are the most", Error);
    CHECK(last.cursor() == data::Cursor::most);
    last.seek(last.cursor());
  }
  CHECK_THROWS_WITH_AS(data::SpeechLoader(utterances(0), features(), options),
                       "speech_loader: no utterances", Error);
}

TEST_CASE("speech_loader: without augmentation the features are those of the recording") {
  const auto all = utterances(4);
  auto clean = data::SpeechFeatures({.mel = {.rate = 8000, .mels = 4}, .stack = 2, .stride = 2});
  data::SpeechLoader loader(all, clean, {.batch = 1, .buckets = 1, .prefetch = 0});
  for (int64_t i = 0; i < 4; ++i) {
    const auto& samples = (*all)[static_cast<size_t>(loader.indices(i)[0])].samples;
    std::vector<double> expected;
    for (const float v : clean.whole(samples).values) expected.push_back(static_cast<double>(v));
    CHECK(values(loader.next().features) == expected);
  }
}

TEST_CASE("spec_augment: masks stay within the recording, others are refused") {
  for (const double share : {0.0, 0.5, 1.0})
    for (const int width : {0, 3, 100}) {
      data::Frames frames{.width = 8, .values = std::vector<float>(8 * 10, 1.0F)};
      data::Draws draws(3, 1);
      data::spec_augment(frames, {.frequency_width = width, .time_share = share}, draws);
      REQUIRE(frames.values.size() == 80);
      CHECK(std::ranges::all_of(frames.values, [](float v) { return v == 0 || v == 1; }));
    }
  data::Frames frames{.width = 8, .values = std::vector<float>(8 * 10, 1.0F)};
  const auto refuses = [&](const data::SpecAugmentOptions& options, const char* text) {
    data::Draws draws(1, 1);
    CHECK_THROWS_WITH_AS(data::spec_augment(frames, options, draws),
                         (std::string("spec_augment: ") + text).c_str(), Error);
    CHECK_THROWS_WITH_AS(data::SpeechLoader(utterances(2), features(),
                                            {.augment = {.masks = true, .spec = options}}),
                         (std::string("speech_loader: ") + text).c_str(), Error);
    CHECK(std::ranges::count(frames.values, 1.0F) == 80);
  };
  refuses({.time_share = 3}, "a time_share of 3 is not within [0, 1]");
  refuses({.time_share = -0.5}, "a time_share of -0.5 is not within [0, 1]");
  refuses({.time_share = std::numeric_limits<double>::quiet_NaN()},
          "a time_share of nan is not within [0, 1]");
  refuses({.frequency_masks = -1},
          "-1 masks of 20 features and 10 masks of frames, expected 0 or more");
  refuses({.frequency_width = -3},
          "2 masks of -3 features and 10 masks of frames, expected 0 or more");
  refuses({.time_masks = -2}, "2 masks of 20 features and -2 masks of frames, expected 0 or more");
  frames.values.pop_back();
  data::Draws draws(1, 1);
  CHECK_THROWS_WITH_AS(data::spec_augment(frames, {}, draws),
                       "spec_augment: 79 numbers are no rows of 8 features", Error);
}
