#include <bs/nn/data/data_loader.h>

#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/lib/out_of_memory.h>
#include <bs/nn/data/draws.h>

#include <algorithm>
#include <exception>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace bs::data {

namespace {
/// The numbers of n samples in the order that the draws give.
void arrange_samples(int64_t n, Draws draws, std::vector<int64_t>& order) {
  order.resize(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  shuffle(order, draws);
}
}  // namespace

Dataset tensor_dataset(std::vector<Tensor> tensors) {
  BS_CHECK(!tensors.empty() && tensors[0].rank() > 0, "dataset: no tensors, or one without axes");
  const int64_t size = tensors[0].size(0);
  for (const Tensor& t : tensors)
    BS_CHECK(t.rank() > 0 && t.size(0) == size, "dataset: shapes {} and {} of other lengths",
             tensors[0].shape(), t.shape());
  return {size, [tensors = std::move(tensors)](int64_t index) {
            std::vector<Tensor> sample;
            for (const Tensor& t : tensors) sample.push_back(t.select(0, index));
            return sample;
          }};
}

Dataset mapped(Dataset from,
               std::function<std::vector<Tensor>(std::vector<Tensor> sample, int64_t index)> map) {
  BS_CHECK(from.sample && map, "mapped: {} is no function", from.sample ? "map" : "from.sample");
  const int64_t size = from.size;
  return {size, [from = std::move(from), map = std::move(map)](int64_t index) {
            return map(from.sample(index), index);
          }};
}

Dataset subset(Dataset from, std::vector<int64_t> indices) {
  for (const int64_t i : indices)
    BS_CHECK(i >= 0 && i < from.size, "subset: index {} is outside [0, {})", i, from.size);
  BS_CHECK(from.sample, "subset: from.sample is no function");
  const auto size = static_cast<int64_t>(indices.size());
  return {size, [from = std::move(from), indices = std::move(indices)](int64_t index) {
            return from.sample(indices[static_cast<size_t>(index)]);
          }};
}

Dataset joined(Dataset first, Dataset second) {
  int64_t size = 0;
  BS_CHECK(first.size >= 0 && second.size >= 0 &&
               !__builtin_add_overflow(first.size, second.size, &size),
           "joined: data sets of {} and {} samples", first.size, second.size);
  BS_CHECK(first.sample && second.sample, "joined: {}.sample is no function",
           first.sample ? "second" : "first");
  return {size, [first = std::move(first), second = std::move(second)](int64_t index) {
            return index < first.size ? first.sample(index) : second.sample(index - first.size);
          }};
}

std::vector<Dataset> random_split(const Dataset& from, const std::vector<int64_t>& sizes,
                                  uint64_t seed) {
  int64_t left = from.size;
  for (const int64_t size : sizes) {
    BS_CHECK(size >= 0 && size <= left, "random_split: {} of {} samples, {} of which are left",
             size, from.size, left);
    left -= size;
  }
  BS_CHECK(left == 0, "random_split: {} of {} samples are in no part", left, from.size);
  std::vector<int64_t> order;
  arrange_samples(from.size, Draws(seed, 0), order);
  std::vector<Dataset> parts;
  auto at = order.begin();
  for (const int64_t size : sizes) {
    parts.push_back(subset(from, {at, at + size}));
    at += size;
  }
  return parts;
}

std::vector<Tensor> stacked(std::span<const std::vector<Tensor>> samples) {
  BS_CHECK(!samples.empty(), "data loader: no samples");
  for (const std::vector<Tensor>& sample : samples)
    BS_CHECK(sample.size() == samples[0].size(), "data loader: samples of {} and {} tensors",
             samples[0].size(), sample.size());
  std::vector<Tensor> batch;
  for (size_t part = 0; part < samples[0].size(); ++part) {
    std::vector<Tensor> parts;
    parts.reserve(samples.size());
    for (const std::vector<Tensor>& sample : samples) parts.push_back(sample[part]);
    batch.push_back(stack(parts, 0));
  }
  return batch;
}

DataLoader::DataLoader(Dataset dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  const DataLoaderOptions& o = options_;
  BS_CHECK(o.batch >= 1 && o.prefetch >= 0 && o.workers >= 1,
           "data loader: batch {}, prefetch {}, workers {}", o.batch, o.prefetch, o.workers);
  batches_ = o.drop_last ? dataset_.size / o.batch
                         : dataset_.size / o.batch + (dataset_.size % o.batch != 0);
  BS_CHECK(dataset_.size >= 1 && batches_ >= 1, "data loader: {} samples make no batch of {}",
           dataset_.size, o.batch);
  BS_CHECK(dataset_.sample, "data loader: the dataset's sample is no function");
}

/// Which samples batch `number` has: those of the epoch's order.
std::vector<int64_t> DataLoader::indices(int64_t number) try {
  const int64_t from = number % batches_ * options_.batch;
  const int64_t count = std::min(options_.batch, dataset_.size - from);
  if (options_.shuffle) {
    arrange(number / batches_);
    return {order_.begin() + from, order_.begin() + from + count};
  }
  std::vector<int64_t> in_order(static_cast<size_t>(count));
  std::iota(in_order.begin(), in_order.end(), from);
  return in_order;
} catch (const std::bad_alloc&) {
  out_of_own_memory("data loader");
} catch (const std::length_error&) {
  out_of_own_memory("data loader");
}

/// Puts the samples in the epoch's order. This is kept: its other batches need it too, and it takes
/// as long as the epoch is.
void DataLoader::arrange(int64_t epoch) {
  if (ordered_ == epoch) return;
  ordered_ = -1;
  arrange_samples(dataset_.size, Draws(options_.seed, static_cast<uint64_t>(epoch)), order_);
  ordered_ = epoch;
}

/// On `stream`, which a thread of the loader would not have by itself.
std::vector<Tensor> DataLoader::make(int64_t number, Stream stream) {
  const StreamGuard on(stream);
  const std::vector<int64_t> chosen = indices(number);
  std::vector<std::vector<Tensor>> samples(chosen.size());
  const size_t workers = std::min(static_cast<size_t>(options_.workers), chosen.size());
  std::vector<std::exception_ptr> errors(workers);
  const auto work = [&](size_t worker) {
    try {
      const StreamGuard on_worker(stream);
      for (size_t i = worker; i < chosen.size(); i += workers)
        samples[i] = dataset_.sample(chosen[i]);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(workers);
  // Where the system gives no more threads, this one does their share too.
  size_t started = 1;
  try {
    for (; started < workers; ++started) threads.emplace_back(work, started);
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
  work(0);
  for (size_t w = started; w < workers; ++w) work(w);
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  std::vector<Tensor> batch = options_.collate ? options_.collate(samples) : stacked(samples);
  for (Tensor& t : batch) t = to(t, options_.device);
  return batch;
}

std::vector<Tensor> DataLoader::next() {
  BS_CHECK(cursor_ < most, "data loader: {} batches are the most", most);
  const Stream stream = current_stream(options_.device);
  if (options_.prefetch > 0 && !ahead_)
    ahead_ = std::make_unique<Prefetcher<std::vector<Tensor>>>(
        [this, stream](int64_t number) { return make(number, stream); }, cursor_,
        static_cast<size_t>(options_.prefetch));
  std::vector<Tensor> batch = ahead_ ? ahead_->next() : make(cursor_, stream);
  ++cursor_;
  return batch;
}

void DataLoader::seek(int64_t cursor) {
  BS_CHECK(cursor >= 0 && cursor <= most, "data loader: batch {}", cursor);
  ahead_.reset();
  cursor_ = cursor;
}

}  // namespace bs::data
