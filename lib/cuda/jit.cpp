#include <bs/lib/cuda/jit.h>

#include <bs/lib/cuda/gave_up.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/runtime.h>

#include <array>
#include <chrono>

namespace bs::cuda::jit {

namespace {

void check_kernel(cudaError_t status, const char* call, const std::string& name, Device device) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  check_gave_up();
  BS_THROW(CudaError, "jit: {} of kernel {} on {}: {}: {}", call, name, device,
           cudaGetErrorName(status), cudaGetErrorString(status));
}

/// One kernel of the process: made by the first thread that wants it.
struct Slot {
  std::once_flag once;
  std::unique_ptr<Kernel> kernel;
};

/// Never destroyed, since the driver may be gone by then.
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, Slot> slots;  // nodes stay where they are
};

Loaded& loaded() {
  static auto* const all = new Loaded;
  return *all;
}

}  // namespace

Binary cached(const Source& source, int capability) {
  const std::string id = identity(source, capability);
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] {
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    return time.count();
  };
  if (std::optional<Binary> kept = load_cached(source, id)) {
    dump(source, id, *kept, format("{} ms from disk", since()));
    return *std::move(kept);
  }
  Binary made = compile(source, capability);
  dump(source, id, made, format("{} ms to compile", since()));
  store_cached(source, id, made);
  return made;
}

const Kernel& kernel(const Source& source, Device device) {
  const int capability = device_properties(device).capability;
  const std::string id = identity(source, capability);
  Loaded& all = loaded();
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    slot = &all.slots[{device.index(), id + source.code}];
  }
  std::call_once(slot->once, [&] {
    record(source, capability);
    slot->kernel = std::make_unique<Kernel>(source.name, device, cached(source, capability));
  });
  return *slot->kernel;
}

/// Sets memory of a kernel's module. On a stream of its own: CUDA's default one would end a capture
/// of streams that wait for it.
static void set_bytes(void* to, const void* from, size_t bytes, const std::string& kernel,
                      Device device) {
  cudaStream_t stream = nullptr;
  check_kernel(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate",
               kernel, device);
  cudaError_t status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check_kernel(status, "cudaMemcpyAsync", kernel, device);
}

Kernel::Kernel(std::string name, Device device, const Binary& binary)
    : name_(std::move(name)), device_(device), resources_(binary.resources) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  cudaLibrary_t library = nullptr;
  check_kernel(
      cudaLibraryLoadData(&library, binary.image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cudaLibraryLoadData", name_, device);
  void* report = nullptr;
  size_t report_bytes = 0;
  if (cudaLibraryGetGlobal(&report, &report_bytes, library, "bs_gave_up") == cudaSuccess) {
    const GaveUp to = gave_up_report(name_, device);
    set_bytes(report, &to, sizeof to, name_, device);
  } else {
    cudaGetLastError();  // its CTAs wait for none
  }
  cudaKernel_t found = nullptr;
  check_kernel(cudaLibraryGetKernel(&found, library, name_.c_str()), "cudaLibraryGetKernel", name_,
               device);
  function_ = static_cast<const void*>(found);
  cudaFuncAttributes attributes{};  // loads the code now, rather than at the first launch
  check_kernel(cudaFuncGetAttributes(&attributes, function_), "cudaFuncGetAttributes", name_,
               device);
#if CUDART_VERSION >= 12040
  size_t offset = 0, bytes = 0;
  while (cudaFuncGetParamInfo(function_, parameters_.size(), &offset, &bytes) == cudaSuccess)
    parameters_.push_back(bytes);
  cudaGetLastError();  // the one that ended the list
#endif
}

int Kernel::ctas_per_sm(int threads, int dynamic_shared_bytes) const {
  const DeviceGuard guard(device_);
  allow(dynamic_shared_bytes, 1);
  int ctas = 0;
  check_kernel(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function_, threads,
                                                             size_t(dynamic_shared_bytes)),
               "cudaOccupancyMaxActiveBlocksPerMultiprocessor", name_, device_);
  return ctas;
}

void Kernel::allow(int dynamic_shared_bytes, int cluster) const {
  constexpr int without_asking = 48 * 1024;
  if (dynamic_shared_bytes > allowed_shared_bytes_.load(std::memory_order_acquire) &&
      dynamic_shared_bytes + resources_.shared_bytes > without_asking) {
    const std::lock_guard lock(mutex_);
    const int most = device_properties(device_).shared_memory_optin - resources_.shared_bytes;
    BS_CHECK(dynamic_shared_bytes <= most,
             "jit: kernel {} wants {} bytes of dynamic shared memory; {} has {}", name_,
             dynamic_shared_bytes, device_, most);
    const DeviceGuard guard(device_);
    check_kernel(cudaFuncSetAttribute(function_, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                 "cudaFuncSetAttribute", name_, device_);
    allowed_shared_bytes_.store(most, std::memory_order_release);
  }
  if (cluster > allowed_cluster_.load(std::memory_order_acquire)) {
    constexpr int most = 16;
    BS_CHECK(cluster <= most, "jit: kernel {}: a cluster of {} CTAs is more than {}", name_,
             cluster, most);
    const std::lock_guard lock(mutex_);
    const DeviceGuard guard(device_);
    check_kernel(cudaFuncSetAttribute(function_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                 "cudaFuncSetAttribute", name_, device_);
    allowed_cluster_.store(most, std::memory_order_release);
  }
}

namespace {

std::string sizes(const std::vector<size_t>& list) {
  std::string text;
  for (size_t bytes : list) text += format("{}{}", text.empty() ? "" : ", ", bytes);
  return "[" + text + "]";
}

}  // namespace

void launch_with(const Kernel& kernel, const LaunchShape& shape, Stream stream,
                 std::initializer_list<Parameter> parameters) {
  constexpr size_t most = 16;
  BS_CHECK(parameters.size() <= most,
           "jit: kernel {} is launched with {} parameters, of {} at most", kernel.name(),
           parameters.size(), most);
  std::array<void*, most> addresses{};
  bool fit = kernel.parameters().empty() || kernel.parameters().size() == parameters.size();
  size_t index = 0;
  for (const Parameter& parameter : parameters) {
    fit = fit && (kernel.parameters().empty() || kernel.parameters()[index] == parameter.bytes);
    addresses[index++] = const_cast<void*>(parameter.address);
  }
  if (!fit) {
    std::vector<size_t> given;
    for (const Parameter& parameter : parameters) given.push_back(parameter.bytes);
    BS_THROW(Error, "jit: kernel {} takes parameters of {} bytes; it is launched with {}",
             kernel.name(), sizes(kernel.parameters()), sizes(given));
  }
  const DeviceGuard guard(kernel.device());
  kernel.allow(shape.shared_bytes, shape.cluster);
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (shape.programmatic && device_properties(kernel.device()).capability >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  const cudaLaunchConfig_t config{.gridDim = shape.grid,
                                  .blockDim = shape.block,
                                  .dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes),
                                  .stream = static_cast<cudaStream_t>(stream.handle()),
                                  .attrs = attributes.data(),
                                  .numAttrs = count};
  const cudaError_t status = cudaLaunchKernelExC(&config, kernel.function(), addresses.data());
  if (status == cudaSuccess) return;
  cudaGetLastError();
  check_gave_up();
  BS_THROW(CudaError,
           "jit: launch of kernel {} on {} failed: {}: {} (grid {} x {} x {}, block {} x {} x {}, "
           "cluster {}, {} bytes of dynamic shared memory, {} registers)",
           kernel.name(), kernel.device(), cudaGetErrorName(status), cudaGetErrorString(status),
           shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y, shape.block.z,
           shape.cluster, shape.shared_bytes, kernel.resources().registers);
}

}  // namespace bs::cuda::jit
