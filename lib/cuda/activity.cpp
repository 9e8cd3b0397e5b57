#include <bs/lib/cuda/activity.h>

#include <bs/lib/check.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>
#if __has_include(<cupti.h>)
#define BS_HAS_CUPTI 1
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#endif

namespace bs::cuda {

std::string short_kernel_name(std::string_view name) {
  // Up to the parameters; and of what is left, from the last space and colon that no bracket holds.
  size_t begin = 0, end = name.size();
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(' && depth == 0 && !name.substr(i).starts_with("(anonymous")) {
      end = i;
      break;
    }
    depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
    if ((c == ' ' || c == ':') && depth == 0) begin = i + 1;
  }
  return std::string(name.substr(begin, end - begin));
}

#if BS_HAS_CUPTI

namespace {

using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using Fill = CUpti_ActivityMemset4;

std::string demangled(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = short_kernel_name(plain != nullptr ? plain : name);
  std::free(plain);
  return text;
}

const char* name_of(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to the GPU";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy between GPUs";
    default:
      return "copy";
  }
}

}  // namespace

void ActivityLog::keep(Activity activity, uint32_t call) {
  if (static_cast<int64_t>(all_.size()) >= most_) {
    ++dropped_;
    return;
  }
  all_.push_back(std::move(activity));
  calls_.push_back(call);
}

void ActivityLog::add(const void* record) {
  const auto begins = [](const auto& r) {
    return Activity{.name = {},
                    .device = static_cast<int>(r.deviceId),
                    .stream = r.streamId,
                    .begin = static_cast<int64_t>(r.start),
                    .end = static_cast<int64_t>(r.end)};
  };
  switch (static_cast<const CUpti_Activity*>(record)->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& r = *static_cast<const Kernel*>(record);
      Activity a = begins(r);
      a.kernel = true;
      a.name = demangled(r.name);
      return keep(std::move(a), r.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& r = *static_cast<const Copy*>(record);
      Activity a = begins(r);
      a.name = name_of(r.copyKind);
      a.bytes = static_cast<int64_t>(r.bytes);
      return keep(std::move(a), r.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& r = *static_cast<const Fill*>(record);
      Activity a = begins(r);
      a.name = "fill";
      a.bytes = static_cast<int64_t>(r.bytes);
      return keep(std::move(a), r.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& r = *static_cast<const CUpti_ActivityExternalCorrelation*>(record);
      ranges_[r.correlationId] = r.externalId;
      return;
    }
    default:
      return;  // of calls, which are recorded for their correlations alone
  }
}

std::vector<Activity> ActivityLog::finish(int64_t shift) {
  for (size_t i = 0; i < all_.size(); ++i) {
    const auto range = ranges_.find(calls_[i]);
    if (range != ranges_.end()) all_[i].launched = range->second;
    all_[i].begin += shift;
    all_[i].end += shift;
  }
  std::ranges::stable_sort(all_, {}, &Activity::begin);
  calls_.clear();
  ranges_.clear();
  return std::exchange(all_, {});
}

namespace {

constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                        CUPTI_ACTIVITY_KIND_RUNTIME,
                                        CUPTI_ACTIVITY_KIND_DRIVER};
constexpr size_t buffer_bytes = size_t{4} << 20;

/// The library's functions; null where it is not there.
struct Cupti {
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&::cuptiActivityEnable) enable = nullptr;
  decltype(&::cuptiActivityDisable) disable = nullptr;
  decltype(&::cuptiActivityFlushAll) flush = nullptr;
  decltype(&::cuptiActivityGetNextRecord) next = nullptr;
  decltype(&::cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&::cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&::cuptiGetTimestamp) timestamp = nullptr;
  decltype(&::cuptiGetResultString) text = nullptr;

  static const Cupti& load() {
    static const Cupti all = [] {
      Cupti c;
      // Records have the form of the header's major version.
      const std::string name = format("libcupti.so.{}", CUDART_VERSION / 1000);
      void* library = nullptr;
      for (const char* folder :
           {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"})
        if (library == nullptr) library = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return c;
      const auto find = [library](const char* symbol, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
        return function != nullptr;
      };
      const bool whole =
          find("cuptiActivityRegisterCallbacks", c.register_callbacks) &&
          find("cuptiActivityEnable", c.enable) && find("cuptiActivityDisable", c.disable) &&
          find("cuptiActivityFlushAll", c.flush) && find("cuptiActivityGetNextRecord", c.next) &&
          find("cuptiActivityPushExternalCorrelationId", c.push) &&
          find("cuptiActivityPopExternalCorrelationId", c.pop) &&
          find("cuptiGetTimestamp", c.timestamp) && find("cuptiGetResultString", c.text);
      return whole ? c : Cupti();
    }();
    return all;
  }
};

/// The recording under way. CUPTI calls back from a thread of its own.
struct Recording {
  std::mutex mutex;
  std::optional<ActivityLog> log;
  int64_t shift = 0;
};

/// Never destroyed: CUPTI may call back until the program is gone.
Recording& recording() {
  static auto* const all = new Recording;
  return *all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer != nullptr ? buffer_bytes : 0;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Recording& r = recording();
  const std::lock_guard lock(r.mutex);
  CUpti_Activity* record = nullptr;
  try {
    while (r.log && valid > 0 && Cupti::load().next(buffer, valid, &record) == CUPTI_SUCCESS)
      r.log->add(record);
  } catch (const std::bad_alloc&) {  // what finds no memory is lost; nothing can be thrown here
  }
  std::free(buffer);
}

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void disable_all() {
  for (const CUpti_ActivityKind kind : kinds) Cupti::load().disable(kind);
}

}  // namespace

std::string start_activities(int64_t most) {
  const Cupti& c = Cupti::load();
  if (c.enable == nullptr)
    return format(
        "libcupti.so.{} is not found; it comes with the CUDA toolkit, whose folder of "
        "libraries belongs into LD_LIBRARY_PATH",
        CUDART_VERSION / 1000);
  Recording& r = recording();
  {
    const std::lock_guard lock(r.mutex);
    r.log.emplace(most);
  }
  CUptiResult status = c.register_callbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind : kinds)
    if (status == CUPTI_SUCCESS) status = c.enable(kind);
  uint64_t now = 0;
  if (status == CUPTI_SUCCESS) status = c.timestamp(&now);
  if (status == CUPTI_SUCCESS) {
    r.shift = steady_now() - static_cast<int64_t>(now);
    return "";
  }
  disable_all();
  const std::lock_guard lock(r.mutex);
  r.log.reset();
  const char* text = nullptr;
  c.text(status, &text);
  return format("CUPTI says {}", text != nullptr ? text : "no more than a number");
}

void push_activity_range(uint64_t number) noexcept {
  Cupti::load().push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, number);
}

void pop_activity_range() noexcept {
  uint64_t last = 0;
  Cupti::load().pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

std::vector<Activity> stop_activities(int64_t& dropped) {
  {
    const RelaxedCapture relaxed;
    cudaDeviceSynchronize();  // an error here is the next call's to tell
  }
  Cupti::load().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  disable_all();
  Recording& r = recording();
  const std::lock_guard lock(r.mutex);
  std::vector<Activity> all = r.log->finish(r.shift);
  dropped = r.log->dropped();
  r.log.reset();
  return all;
}

#else

void ActivityLog::keep(Activity, uint32_t) {}
void ActivityLog::add(const void*) {}
std::vector<Activity> ActivityLog::finish(int64_t) { return {}; }
std::string start_activities(int64_t) { return "this library was built without CUPTI's header"; }
void push_activity_range(uint64_t) noexcept {}
void pop_activity_range() noexcept {}
std::vector<Activity> stop_activities(int64_t&) { return {}; }

#endif

}  // namespace bs::cuda
