#include <bs/lib/recording.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace bs {

namespace {
thread_local Recording* current_recording = nullptr;
}

Recording* Recording::current() { return current_recording; }

Recording* Recording::current(Device device) {
  return current_recording && current_recording->device_ == device ? current_recording : nullptr;
}

Recording::Scope::Scope(Recording& recording) : recording_(recording) {
  BS_CHECK(!current_recording, "graph: this thread records one already");
  capturing_.emplace(recording.device_);
  current_recording = &recording;
}

Recording::Scope::~Scope() {
  recording_.workspaces_.clear();
  current_recording = nullptr;
}

Recording::Recording(Device device, Stream stream, std::shared_ptr<Arena> memory)
    : device_(device),
      stream_(stream),
      arena_(memory ? std::move(memory) : Arena::make(memory_resource(device), stream)) {
  words_ = fresh(most_words, i64);
}

/// Memory that no operation recorded before has written to.
Tensor Recording::fresh(int64_t count, DType dtype) const {
  Recording* const previous = std::exchange(current_recording, nullptr);
  Tensor made;
  try {
    const StreamGuard on(stream_);
    made = Tensor::empty({count}, dtype, device_);
  } catch (...) {
    current_recording = previous;
    throw;
  }
  current_recording = previous;
  return made;
}

Recording::~Recording() {
  for (const Kept& k : kept_) free_bytes(k.pointer, k.bytes, *k.from, k.stream);
}

size_t Recording::take_words(size_t count) {
  const size_t first = image_.size();
  BS_CHECK(first + count <= most_words, "graph: more than {} numbers change from step to step",
           most_words);
  image_.resize(first + count);
  return first;
}

Tensor Recording::live(int64_t count, std::function<void(std::span<double>)> fill) {
  const size_t first = take_words(static_cast<size_t>(count));
  actions_.push_back([this, first, count, fill = std::move(fill)] {
    std::vector<double> values(static_cast<size_t>(count));
    fill(values);
    std::ranges::transform(values, image_.begin() + static_cast<std::ptrdiff_t>(first),
                           [](double value) { return std::bit_cast<uint64_t>(value); });
  });
  auto* const memory = static_cast<uint64_t*>(words_.data()) + first;
  return Tensor::from_blob(memory, {count}, f64, device_, [held = words_] {});
}

void Recording::at_refresh(std::function<void()> action) { actions_.push_back(std::move(action)); }

RandomState Recording::draw(Generator& generator) {
  const auto [at, is_new] = drawn_.try_emplace(&generator);
  Drawn& drawn = at->second;
  if (is_new) {
    const size_t word = take_words(1);
    drawn.first = generator.state();
    drawn.shift = static_cast<const uint64_t*>(words_.data()) + word;
    actions_.push_back([this, &generator, &drawn, word] {
      // In one step: another thread may draw meanwhile.
      const RandomState now = generator.advance(drawn.count, drawn.first.seed);
      BS_CHECK(now.seed == drawn.first.seed,
               "graph: recorded with random numbers of seed {}, which is {} now", drawn.first.seed,
               now.seed);
      image_[word] = now.offset - drawn.first.offset;
    });
  }
  return {drawn.first.seed, drawn.first.offset + drawn.count++, drawn.shift};
}

bool Recording::keep(void* pointer, size_t bytes, MemoryResource& from, Stream stream) noexcept {
  if (&from == arena_.get()) return false;
  kept_.push_back({pointer, bytes, &from, stream});
  return true;
}

int* Recording::zeroed(int count, const std::function<void(void*, size_t)>& fill_zero) {
  constexpr int64_t least = 1 << 16;
  if (!zeros_.defined() || zeros_used_ + count > zeros_.numel()) {
    zeros_ = fresh(std::max<int64_t>(count, least), i32);
    held_.push_back(zeros_);
    fill_zero(zeros_.data(), zeros_.bytes());
    zeros_used_ = 0;
  }
  int* const taken = static_cast<int*>(zeros_.data()) + zeros_used_;
  zeros_used_ += count;
  return taken;
}

void* Recording::workspace(size_t bytes) {
  if (workspaces_.empty() || workspaces_.back().bytes() < bytes)
    workspaces_.push_back(Tensor::empty({static_cast<int64_t>(bytes)}, u8, device_));
  return workspaces_.back().data();
}

void check_unrecorded(const char* op, Device device, const char* what) {
  BS_CHECK(!Recording::current(device), "{}: {}, which no graph can record", op, what);
}

std::span<const uint64_t> Recording::refresh() {
  for (const auto& action : actions_) action();
  return image_;
}

}  // namespace bs
