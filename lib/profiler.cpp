#include <bs/lib/profiler.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>
#include <unordered_map>
#include <utility>
#if BS_WITH_CUDA
#include <bs/lib/cuda/activity.h>
#endif

namespace bs {

constinit std::atomic<bool> detail::profiler_records = false;

namespace {

struct Event {
  ProfilerEvent seen;
  size_t first_tensor = 0;  ///< of ThreadLog::tensors
  size_t tensors = 0;
};

/// What one thread has recorded. Its own thread writes, and stop() takes all away.
struct ThreadLog {
  std::mutex mutex;
  std::vector<Event> events;
  std::vector<ProfiledTensor> tensors;
  int64_t dropped = 0;
};

/// The recording under way. Sessions are numbered, so that a range that outlives its session is
/// not taken for one of the next.
struct Recorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> logs;
  std::atomic<uint64_t> session = 0;
  std::atomic<int64_t> start = 0;
  std::atomic<int64_t> most_events = 0;
  std::atomic<uint64_t> ranges = 0;
  std::atomic<bool> watches = false;  ///< GPUs too
};

/// Never destroyed: threads may end after any destructor of ours.
Recorder& recorder() {
  static auto* const all = new Recorder;
  return *all;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct OpenRange {
  const void* owner = nullptr;
  Event event;
  int64_t inside = 0;       ///< nanoseconds in ranges inside of it
  double tensor_bytes = 0;  ///< of the tensors noted
  bool watched = false;     ///< what it launches on GPUs
};

struct Local {
  uint64_t session = 0;
  std::shared_ptr<ThreadLog> log;
  std::vector<OpenRange> open;
  std::vector<ProfiledTensor> tensors;  ///< of the open ranges, the innermost last
};

thread_local Local local;

/// Makes this thread's log of the present session.
void join(uint64_t session) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  local.open.clear();
  local.tensors.clear();
  local.session = session;
  local.log = std::make_shared<ThreadLog>();
  r.logs.push_back(local.log);
}

/// Bytes of the distinct elements of a view: an axis of stride 0 repeats one.
double distinct_bytes(const Tensor& x) {
  auto bytes = static_cast<double>(size_of(x.dtype()));
  for (int axis = 0; axis < x.rank(); ++axis)
    if (x.strides()[axis] != 0 || x.size(axis) == 0) bytes *= static_cast<double>(x.size(axis));
  return bytes;
}

/// Called as a range ends, also on the way of an exception: what finds no memory is only counted.
void keep(ThreadLog& log, Event event, std::span<const ProfiledTensor> tensors) noexcept {
  const std::lock_guard lock(log.mutex);
  const size_t first = log.tensors.size();
  try {
    if (static_cast<int64_t>(log.events.size()) < recorder().most_events) {
      log.tensors.insert(log.tensors.end(), tensors.begin(), tensors.end());
      event.first_tensor = first;
      event.tensors = tensors.size();
      log.events.push_back(event);
      return;
    }
  } catch (const std::bad_alloc&) {
    log.tensors.resize(first);
  }
  ++log.dropped;
}

}  // namespace

void detail::begin_range(const void* owner, const char* name) {
  const uint64_t session = recorder().session.load(std::memory_order_acquire);
  if (local.session != session) join(session);
  OpenRange& range = local.open.emplace_back();
  range.owner = owner;
  range.event.seen.name = name;
  range.event.seen.depth = static_cast<int>(local.open.size()) - 1;
  range.event.first_tensor = local.tensors.size();
  range.event.seen.number = 1 + recorder().ranges.fetch_add(1, std::memory_order_relaxed);
#if BS_WITH_CUDA
  range.watched = recorder().watches;
  if (range.watched) cuda::push_activity_range(range.event.seen.number);
#endif
  range.event.seen.begin = now();
}

void detail::note_operation(Device device, const Work& work) {
  if (local.open.empty()) return;
  ProfilerEvent& event = local.open.back().event.seen;
  event.operation = true;
  event.device = device;
  event.work = work;
}

void detail::note_tensor(const Tensor& tensor) {
  if (local.open.empty() || !tensor.defined()) return;
  local.tensors.push_back({tensor.dtype(), tensor.shape()});
  local.open.back().tensor_bytes += distinct_bytes(tensor);
}

void detail::end_range(const void* owner) {
  if (local.open.empty() || local.open.back().owner != owner) return;  // began before the profiler
  const int64_t end = now();
  OpenRange range = local.open.back();
  local.open.pop_back();
#if BS_WITH_CUDA
  if (range.watched) cuda::pop_activity_range();
#endif
  const auto own_tensors = local.tensors.begin() + static_cast<ptrdiff_t>(range.event.first_tensor);
  if (local.session == recorder().session.load(std::memory_order_acquire)) {
    ProfilerEvent& seen = range.event.seen;
    const int64_t duration = end - seen.begin;
    if (!local.open.empty()) local.open.back().inside += duration;
    seen.self = duration - range.inside;
    seen.begin -= recorder().start;
    seen.end = seen.begin + duration;
    if (seen.work.bytes == 0) seen.work.bytes = range.tensor_bytes;
    keep(*local.log, range.event, std::span(own_tensors, local.tensors.end()));
  }
  local.tensors.erase(own_tensors, local.tensors.end());
}

Profiler::Profiler(const ProfilerOptions& options) {
  BS_CHECK(options.most_events > 0, "Profiler: {} events", options.most_events);
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  BS_CHECK(!profiling(), "Profiler: another one records");
  r.logs.clear();
  r.most_events = options.most_events;
  r.start = now();
  session_ = ++r.session;
#if BS_WITH_CUDA
  if (options.device_events && cuda_available()) {
    unwatched_ = cuda::start_activities(options.most_events);
    r.watches = unwatched_.empty();
  }
#endif
  detail::profiler_records.store(true, std::memory_order_release);
}

Profiler::~Profiler() { stop(); }

void Profiler::stop() {
  if (std::exchange(stopped_, true)) return;
  Recorder& r = recorder();
  std::vector<std::shared_ptr<ThreadLog>> logs;
  {
    const std::lock_guard lock(r.mutex);
    detail::profiler_records.store(false, std::memory_order_relaxed);
    logs = std::move(r.logs);
    r.logs.clear();
  }
  for (size_t thread = 0; thread < logs.size(); ++thread) {
    ThreadLog& log = *logs[thread];
    const std::lock_guard lock(log.mutex);
    dropped_ += log.dropped;
    tensors_.push_back(std::move(log.tensors));
    for (const Event& event : log.events) {
      ProfilerEvent seen = event.seen;
      seen.thread = static_cast<int>(thread);
      seen.tensors = std::span(tensors_.back()).subspan(event.first_tensor, event.tensors);
      events_.push_back(seen);
    }
    log.events.clear();
    log.tensors.clear();
  }
  std::ranges::sort(events_, {},
                    [](const ProfilerEvent& e) { return std::tuple(e.thread, e.begin, e.depth); });
  take_device_events();
}

/// Of the ranges that are kept. Those of GPUs lie behind what launched them.
void Profiler::take_device_events() {
#if BS_WITH_CUDA
  if (!recorder().watches.exchange(false)) return;
  int64_t dropped = 0;
  std::vector<cuda::Activity> all = cuda::stop_activities(dropped);
  dropped_ += dropped;
  std::unordered_map<uint64_t, const char*> names;
  for (const ProfilerEvent& event : events_) names[event.number] = event.name;
  device_events_.reserve(all.size());
  for (cuda::Activity& a : all) {
    const auto from = names.find(a.launched);
    device_events_.push_back({std::move(a.name), a.kernel, a.device, a.stream,
                              a.begin - recorder().start, a.end - recorder().start, a.bytes,
                              from != names.end() ? from->second : nullptr, a.launched});
  }
#endif
}

void Profiler::check_stopped(const char* what) const {
  BS_CHECK(stopped_, "Profiler: {} while it records; call stop() first", what);
}

std::span<const ProfilerEvent> Profiler::events() const {
  check_stopped("events()");
  return events_;
}

std::span<const DeviceEvent> Profiler::device_events() const {
  check_stopped("device_events()");
  return device_events_;
}

const std::string& Profiler::unwatched() const {
  check_stopped("unwatched()");
  return unwatched_;
}

int64_t Profiler::dropped() const {
  check_stopped("dropped()");
  return dropped_;
}

}  // namespace bs
