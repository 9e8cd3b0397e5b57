#include <bs/nn/data/speech_loader.h>

#include <bs/lib/integers.h>
#include <bs/lib/out_of_memory.h>
#include <bs/nn/data/prefetch.h>
#include <bs/nn/data/resample.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <new>
#include <numeric>

namespace bs::data {

namespace {

void check(const char* op, const SpeechPadding& padding) {
  constexpr int64_t most = 65536;
  BS_CHECK(
      padding.frames > 0 && padding.frames <= most && padding.labels > 0 && padding.labels <= most,
      "{}: padding to multiples of {} frames and {} labels, expected 1 to {}", op, padding.frames,
      padding.labels, most);
}

}  // namespace

SpeechBatch collate(std::span<const Frames> features, std::span<const std::vector<int64_t>> tokens,
                    double hop, const SpeechPadding& padding) {
  check("collate", padding);
  BS_CHECK(!features.empty() && features.size() == tokens.size(),
           "collate: {} recordings and {} texts", features.size(), tokens.size());
  const int64_t width = features.front().width;
  int64_t frames = 0;
  int64_t longest = 0;
  size_t total = 0;
  std::vector<int64_t> lengths, target_lengths;
  for (size_t i = 0; i < features.size(); ++i) {
    BS_CHECK(features[i].width == width && features[i].are_whole(),
             "collate: {} numbers of width {} among those of {}", features[i].values.size(),
             features[i].width, width);
    for (const int64_t token : tokens[i])
      BS_CHECK(token >= 0 && token <= INT32_MAX, "collate: token {}", token);
    lengths.push_back(features[i].count());
    target_lengths.push_back(static_cast<int64_t>(tokens[i].size()));
    frames = std::max(frames, features[i].count());
    longest = std::max(longest, target_lengths.back());
    total += static_cast<size_t>(features[i].count());
  }
  frames = round_up(frames, padding.frames);
  longest = round_up(longest, padding.labels);
  std::vector<float> values;
  std::vector<int32_t> targets;
  for (size_t i = 0; i < features.size(); ++i) {
    values.insert(values.end(), features[i].values.begin(), features[i].values.end());
    values.resize((i + 1) * static_cast<size_t>(frames * width));
    for (const int64_t token : tokens[i]) targets.push_back(static_cast<int32_t>(token));
    targets.resize((i + 1) * static_cast<size_t>(longest));
  }
  const auto batch = static_cast<int64_t>(features.size());
  const auto from = [](const auto& v, const Shape& shape) {
    return Tensor::from(std::span(v.data(), v.size()), shape);
  };
  return {.features = from(std::as_const(values), {batch, frames, width}),
          .lengths = from(std::as_const(lengths), {batch}),
          .targets = from(std::as_const(targets), {batch, longest}),
          .target_lengths = from(std::as_const(target_lengths), {batch}),
          .seconds = static_cast<double>(total) * hop};
}

namespace {

/// Keys of their own for what is drawn: the order of an epoch, and the changes to a recording.
constexpr uint64_t order_key = 0x6f72646572ULL, augment_key = 0x6175676dULL;

}  // namespace

struct SpeechLoader::Ahead {
  Prefetcher<SpeechBatch> batches;
};

/// The order of one epoch. It is kept, as making it takes as long as the epoch is. The thread that
/// works ahead asks for it, and so may any other.
struct SpeechLoader::Epoch {
  std::mutex mutex = {};
  int64_t number = -1;
  std::vector<int64_t> utterances = {};
  std::vector<int64_t> places = {};  ///< which piece of them each batch is
};

SpeechLoader::SpeechLoader(std::shared_ptr<const Utterances> utterances, SpeechFeatures features,
                           const SpeechLoaderOptions& options)
    : utterances_(std::move(utterances)),
      features_(std::move(features)),
      options_(options),
      epoch_(std::make_unique<Epoch>()) {
  const auto& o = options_;
  BS_CHECK(utterances_ && !utterances_->empty(), "speech_loader: no utterances");
  BS_CHECK(o.batch > 0 && o.buckets > 0 && o.prefetch >= 0 && o.workers > 0,
           "speech_loader: batch {}, buckets {}, prefetch {}, {} workers", o.batch, o.buckets,
           o.prefetch, o.workers);
  BS_CHECK(o.augment.slowest <= o.augment.fastest, "speech_loader: speeds from {} to {}",
           o.augment.slowest, o.augment.fastest);
  check("speech_loader", o.padding);
  if (o.augment.masks) detail::check_masks("speech_loader", o.augment.spec);
  by_length_.resize(utterances_->size());
  std::iota(by_length_.begin(), by_length_.end(), 0);
  std::ranges::stable_sort(by_length_, {}, [&](int64_t i) {
    return (*utterances_)[static_cast<size_t>(i)].samples.size();
  });
}

SpeechLoader::~SpeechLoader() = default;

int64_t SpeechLoader::batches_an_epoch() const {
  const auto count = static_cast<int64_t>(utterances_->size());
  return ceil_div(count, std::min(options_.batch, count));
}

void SpeechLoader::order(Epoch& epoch, int64_t number) const {
  if (epoch.number == number) return;
  epoch.number = -1;
  Draws draws(options_.seed ^ order_key, static_cast<uint64_t>(number));
  epoch.utterances = by_length_;
  const size_t count = epoch.utterances.size();
  const size_t buckets = std::min(static_cast<size_t>(options_.buckets), count);
  for (size_t i = 0; i < buckets; ++i) {
    const size_t begin = count * i / buckets, end = count * (i + 1) / buckets;
    shuffle(std::span(epoch.utterances).subspan(begin, end - begin), draws);
  }
  epoch.places.resize(static_cast<size_t>(batches_an_epoch()));
  std::iota(epoch.places.begin(), epoch.places.end(), 0);
  shuffle(epoch.places, draws);
  epoch.number = number;
}

std::vector<int64_t> SpeechLoader::indices(int64_t batch) const {
  BS_CHECK(batch >= 0, "speech_loader: batch {}", batch);
  const std::lock_guard lock(epoch_->mutex);
  order(*epoch_, batch / batches_an_epoch());
  const int64_t place = epoch_->places[static_cast<size_t>(batch % batches_an_epoch())];
  const auto begin = epoch_->utterances.begin() + place * options_.batch;
  return {begin, begin + std::min<int64_t>(options_.batch, epoch_->utterances.end() - begin)};
}

SpeechBatch SpeechLoader::make(int64_t number) const {
  const SpeechAugmentOptions& augment = options_.augment;
  const std::vector<int64_t> chosen = indices(number);
  std::vector<Frames> features(chosen.size());
  std::vector<std::vector<int64_t>> tokens(chosen.size());
  const size_t workers = std::min(static_cast<size_t>(options_.workers), chosen.size());
  const auto work = [&](size_t worker) {
    SpeechFeatures extractor = features_;
    for (size_t row = worker; row < chosen.size(); row += workers) {
      const Utterance& utterance = (*utterances_)[static_cast<size_t>(chosen[row])];
      Draws draws(options_.seed ^ augment_key,
                  static_cast<uint64_t>(number) * static_cast<uint64_t>(options_.batch) + row);
      const double speed = augment.slowest + (augment.fastest - augment.slowest) * draws.uniform();
      const uint64_t noise = draws.bits();
      features[row] =
          extractor.whole(speed == 1 ? utterance.samples : change_speed(utterance.samples, speed),
                          noise, augment.spec, augment.masks ? &draws : nullptr);
      tokens[row] = utterance.tokens;
    }
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < workers; ++i) others.push_back(std::async(std::launch::async, work, i));
  work(0);
  for (std::future<void>& other : others) other.get();
  return collate(features, tokens, features_.hop(), options_.padding);
}

SpeechBatch SpeechLoader::next() try {
  BS_CHECK(cursor_ < most, "speech_loader: {} batches are the most", most);
  SpeechBatch batch;
  if (options_.prefetch == 0) {
    batch = make(cursor_);
  } else {
    if (!ahead_)
      ahead_.reset(new Ahead{{[this](int64_t number) { return make(number); }, cursor_,
                              static_cast<size_t>(options_.prefetch)}});
    batch = ahead_->batches.next();
  }
  ++cursor_;
  batch.features = batch.features.to(options_.device);
  batch.targets = batch.targets.to(options_.device);
  return batch;
} catch (const std::bad_alloc&) {
  out_of_own_memory("speech_loader");
}

void SpeechLoader::seek(int64_t cursor) {
  BS_CHECK(cursor >= 0 && cursor <= most, "speech_loader: a cursor of {}", cursor);
  ahead_.reset();
  cursor_ = cursor;
}

}  // namespace bs::data
