#include <bs/nn/data/loader.h>

#include <bs/lib/out_of_memory.h>
#include <bs/lib/philox.h>
#include <bs/nn/data/prefetch.h>

#include <new>
#include <vector>

namespace bs::data {

Batch windows(const TextDataset& text, std::span<const int64_t> starts, int64_t context,
              DType dtype, Device device) {
  const std::span<const uint8_t> bytes = text.bytes();
  for (int64_t start : starts)
    BS_CHECK(context >= 0 && start >= 0 && start < text.size() - context,
             "loader: a window of {} + 1 bytes at {} of a text of {}", context, start, text.size());
  const Shape shape{static_cast<int64_t>(starts.size()), context};
  return visit_index("loader", dtype, [&]<class T>(Type<T>) {
    std::vector<T> inputs, targets;
    for (int64_t start : starts) {
      const auto from = bytes.begin() + start;
      inputs.insert(inputs.end(), from, from + context);
      targets.insert(targets.end(), from + 1, from + context + 1);
    }
    return Batch{Tensor::from(std::span<const T>(inputs), shape).to(device),
                 Tensor::from(std::span<const T>(targets), shape).to(device)};
  });
}

/// Of a batch: what is made of them comes to some bytes each, and no memory has more.
constexpr int64_t most_tokens = int64_t{1} << 40;

struct Loader::Ahead {
  Prefetcher<Batch> batches;
};

Loader::Loader(TextDataset text, const LoaderOptions& options)
    : text_(std::move(text)), options_(options) {
  const LoaderOptions& o = options_;
  BS_CHECK(o.batch > 0 && o.context > 0 && o.prefetch >= 0,
           "loader: batch {}, context {}, prefetch {}", o.batch, o.context, o.prefetch);
  BS_CHECK(o.batch <= most_tokens / o.context, "loader: {} windows of {}, over {} tokens a batch",
           o.batch, o.context, most_tokens);
  BS_CHECK(text_.size() > o.context, "loader: a text of {} bytes has no window of {} + 1",
           text_.size(), o.context);
  visit_index("loader", o.dtype, [](auto) {});
}

Loader::~Loader() = default;

Batch Loader::make(int64_t number) const {
  // A key of its own: weights drawn from a generator of the same seed shall not be its twins.
  const uint64_t key = options_.seed ^ 0x6c6f61646572ULL;
  const auto places = static_cast<uint64_t>(text_.size() - options_.context);
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < options_.batch; ++row) {
    const PhiloxBlock bits = philox(key, static_cast<uint64_t>(row), static_cast<uint64_t>(number));
    const uint64_t random = uint64_t{bits.word[0]} << 32 | bits.word[1];
    starts.push_back(static_cast<int64_t>(random % places));
  }
  return windows(text_, starts, options_.context, options_.dtype);
}

Batch Loader::next() try {
  BS_CHECK(cursor_ < most, "loader: {} batches are the most", most);
  Batch batch;
  if (options_.prefetch == 0) {
    batch = make(cursor_);
  } else {
    if (!ahead_)
      ahead_.reset(new Ahead{{[this](int64_t number) { return make(number); }, cursor_,
                              static_cast<size_t>(options_.prefetch)}});
    batch = ahead_->batches.next();
  }
  ++cursor_;
  return {batch.inputs.to(options_.device), batch.targets.to(options_.device)};
} catch (const std::bad_alloc&) {
  out_of_own_memory("loader");
}

void Loader::seek(int64_t cursor) {
  BS_CHECK(cursor >= 0 && cursor <= most, "loader: a cursor of {}", cursor);
  ahead_.reset();
  cursor_ = cursor;
}

}  // namespace bs::data
