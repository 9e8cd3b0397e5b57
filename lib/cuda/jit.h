#pragma once
/** @file
 *  Kernels compiled at run time: CUDA text to machine code by NVRTC, kept in memory and on disk.
 *
 *  A caller emits text that includes embedded device headers and defines one kernel:
 *
 *      static auto* const family = new jit::KernelFamily<Config>;
 *      const jit::Kernel& k = family->get(config, device, [&] { return emit(config); });
 *      jit::launch(k, {.grid = {tiles}, .block = {128}, .shared_bytes = bytes}, stream, params);
 *
 *  Compiling takes no GPU: compile() and cached() work on any machine that has NVRTC. Environment:
 *  BS_CACHE_DIR, BS_JIT_DUMP and BS_JIT_RECORD, see docs/jit.md.
 */
#include <bs/lib/cuda/check.h>
#include <bs/lib/stream.h>

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace bs::cuda::jit {

/** @brief Text that sources include as `#include <name>`. Points at memory of the program's life.
 */
struct Header {
  std::string_view name;
  std::string_view text;
  std::string_view hash;  ///< of the text, made by the build
};

/** @brief One kernel as CUDA C++ (C++20). */
struct Source {
  std::string name;  ///< of the one `extern "C" __global__` function that `code` defines
  std::string code;  ///< functions are `__device__` unless marked otherwise
  std::span<const Header> headers;  ///< all that `code` may include; only those it does count
};

/** @brief What the compiled kernel takes, as ptxas reports it. */
struct Resources {
  int registers = 0;     ///< of a thread
  int local_bytes = 0;   ///< stack frame of a thread, in local memory
  int spill_bytes = 0;   ///< stores and loads of registers that did not fit
  int shared_bytes = 0;  ///< static shared memory of a CTA
  bool operator==(const Resources&) const = default;
};

/** @brief A kernel in machine code, for one architecture. */
struct Binary {
  std::string image;  ///< cubin
  Resources resources;
  std::string log;  ///< NVRTC's and ptxas' words
};

/** @brief NVRTC's name of a compute capability, with the instructions of that very one where it has
 *  such: 80 gives sm_80, 90 gives sm_90a. */
std::string architecture(int capability);

/** @brief Whether this NVRTC compiles for GPUs of a compute capability. */
bool compiles_for(int capability);

/** @brief Compiles, past every cache.
 *  @param[in] capability major * 10 + minor of the GPU it is for; none need be here
 *  @throws Error with NVRTC's messages and the lines they speak of, or when NVRTC does not know the
 *  architecture. Cost: 0.05 to 0.5 s. */
Binary compile(const Source& source, int capability);

/** @brief The same from the cache on disk, which is filled on a miss. A damaged entry is made anew;
 *  where the folder cannot be written a warning says so once. */
Binary cached(const Source& source, int capability);

/** @brief A kernel that a GPU has loaded. Lives as long as the program. */
class Kernel {
 public:
  Kernel(std::string name, Device device, const Binary& binary);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& name() const { return name_; }
  Device device() const { return device_; }
  const Resources& resources() const { return resources_; }
  /** @brief For CUDA calls that want a function. */
  const void* function() const { return function_; }
  /** @brief Bytes of each parameter; empty where the CUDA runtime is too old to tell. */
  const std::vector<size_t>& parameters() const { return parameters_; }
  /** @brief CTAs of this size that an SM can hold at a time. */
  int ctas_per_sm(int threads, int dynamic_shared_bytes) const;
  /** @brief Before a launch: asks once for dynamic shared memory or clusters beyond the defaults.
   *  @throws Error naming the kernel and the limit when the GPU has not that much. */
  void allow(int dynamic_shared_bytes, int cluster) const;

 private:
  std::string name_;
  Device device_;
  Resources resources_;
  const void* function_ = nullptr;
  std::vector<size_t> parameters_;
  mutable std::mutex mutex_;
  mutable std::atomic<int> allowed_shared_bytes_ = 0;
  mutable std::atomic<int> allowed_cluster_ = 8;
};

/** @brief The kernel of `source` on `device`: from memory, else disk, else NVRTC. Safe to call from
 *  any thread; threads that want the same one wait for one compilation. Works while a stream is
 *  captured. Hashes the source: callers that launch often keep a KernelFamily. */
const Kernel& kernel(const Source& source, Device device);

/** @brief Kernels by what they were emitted from, so that text is made only when one is new.
 *  `Key` is a value with `<`. Looking one up takes some 50 ns; thread-safe. */
template <class Key>
class KernelFamily {
 public:
  /** @brief The kernel of `key`; `emit()` gives its Source on the first call for a device. */
  template <class Emit>
  const Kernel& get(const Key& key, Device device, Emit&& emit) {
    const std::pair<int, const Key&> wanted(device.index(), key);
    {
      const std::shared_lock lock(mutex_);
      const auto found = kernels_.find(wanted);
      if (found != kernels_.end()) return *found->second;
    }
    const Kernel& made = kernel(std::forward<Emit>(emit)(), device);
    const std::unique_lock lock(mutex_);
    kernels_.emplace(std::pair(device.index(), key), &made);
    return made;
  }

 private:
  struct Less {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    }
  };
  std::shared_mutex mutex_;
  std::map<std::pair<int, Key>, const Kernel*, Less> kernels_;
};

/** @brief How a kernel is spread over the GPU. */
struct LaunchShape {
  dim3 grid, block;
  int cluster = 1;            ///< CTAs along x that share a cluster (sm_90 and later)
  int shared_bytes = 0;       ///< dynamic shared memory of a CTA
  bool programmatic = false;  ///< may begin before the kernel ahead ended (griddepcontrol)
};

/** @brief Address and size of a kernel's parameter. */
struct Parameter {
  const void* address;
  size_t bytes;
};
/** @brief Queues `kernel` on `stream`, which may be captured.
 *  @throws Error when the sizes of the parameters are not those that the kernel was compiled with.
 *  CudaError naming the kernel and the shape when the launch is refused. */
void launch_with(const Kernel& kernel, const LaunchShape& shape, Stream stream,
                 std::initializer_list<Parameter> parameters);

/** @brief Queues `kernel(params...)`; their types must be the device's, bit for bit. */
template <class... Params>
void launch(const Kernel& kernel, const LaunchShape& shape, Stream stream,
            const Params&... params) {
  static_assert((std::is_trivially_copyable_v<Params> && ...));
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a parameter may be a pointer
  launch_with(kernel, shape, stream, {Parameter{&params, sizeof(Params)}...});
}

}  // namespace bs::cuda::jit
