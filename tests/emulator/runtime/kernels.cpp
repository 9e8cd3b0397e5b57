// Kernels of the program and of libraries that it loads: how they are found, asked about, launched.
#include <bs/tests/emulator/grid.h>
#include <bs/tests/emulator/runtime/state.h>
#include <bs/tests/emulator/tensor_map.h>
#include <cuda.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace bs::emulator {

namespace {

/// The code of one source as nvcc has put it into the program.
class Source {
 public:
  explicit Source(const void* data) : data_(static_cast<const char*>(data)) {}

  Module& module() {
    if (module_ == nullptr) module_ = new Module(text());
    return *module_;
  }

 private:
  template <class T>
  T read(size_t at) const {
    T value;
    std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }
  /// Behind a header stand parts of several kinds, each with a header of its own. NVIDIA does not
  /// document them; these fields have been where they are since CUDA 7, zstd since CUDA 12.8.
  std::string text() const {
    constexpr uint16_t ptx = 1;
    constexpr uint64_t by_zstd = 0x8000, by_lz4 = 0x2000;
    size_t at = read<uint16_t>(6);
    const size_t end = at + read<uint64_t>(8);
    while (at < end) {
      const auto header = read<uint32_t>(at + 4), compressed = read<uint32_t>(at + 16);
      const auto bytes = read<uint64_t>(at + 8), flags = read<uint64_t>(at + 40);
      const char* const payload = data_ + at + header;
      if (read<uint16_t>(at) == ptx) {
        if ((flags & by_zstd) != 0) return expanded(payload, compressed, read<uint64_t>(at + 56));
        if ((flags & by_lz4) == 0) return std::string(payload);
        throw std::runtime_error(
            "PTX is compressed in an old way: --compress-mode=default, please");
      }
      at += header + bytes;
    }
    throw std::runtime_error(
        "a source was compiled without PTX: CMAKE_CUDA_ARCHITECTURES has no virtual one");
  }
  static std::string expanded(const char* payload, size_t compressed, size_t bytes) {
    std::string text(bytes, '\0');
    if (ZSTD_isError(ZSTD_decompress(text.data(), bytes, payload, compressed)) != 0)
      throw std::runtime_error("PTX cannot be expanded");
    return text;
  }

  const char* data_;
  Module* module_ = nullptr;
};

struct Named {
  Source* source;
  std::string name;
};

/// By the addresses of the host functions that stand for them.
struct Registry {
  std::unordered_map<const void*, Named> kernels, variables;
  std::unordered_map<const void*, Kernel*> found;
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "emulator: %s\n", text.c_str());
  std::abort();
}

/// Of such a function, or of what cudaLibraryGetKernel gave.
Kernel& kernel_of(const void* function) {
  const std::lock_guard guard(device_lock());
  Registry& all = registry();
  if (const auto found = all.found.find(function); found != all.found.end()) return *found->second;
  const auto named = all.kernels.find(function);
  if (named == all.kernels.end()) return *static_cast<Kernel*>(const_cast<void*>(function));
  auto& kernels = named->second.source->module().kernels;
  const auto kernel = kernels.find(named->second.name);
  if (kernel == kernels.end()) stop("no kernel " + named->second.name);
  return *(all.found[function] = kernel->second.get());
}

/// Decodes all kernels of the program as it ends, and the functions that they call, where
/// BS_EMULATED_DECODE asks for that: so one with an instruction that the emulator does not know is
/// told, whether a test launches it or not.
struct DecodedAtTheEnd {
  ~DecodedAtTheEnd() {
    if (std::getenv("BS_EMULATED_DECODE") == nullptr) return;
    std::set<Source*> sources;
    for (const auto& [function, named] : registry().kernels) sources.insert(named.source);
    size_t all = 0, unknown = 0;
    for (Source* const source : sources)
      for (const auto& [name, kernel] : source->module().kernels) try {
          ++all;
          kernel->program();
        } catch (const std::runtime_error& error) {
          std::fprintf(stderr, "emulator: %s\n", error.what());
          ++unknown;
        }
    std::printf("%zu kernels and functions, of which %zu cannot be decoded\n", all, unknown);
    std::fflush(stdout);
    if (all == 0 || unknown > 0) std::_Exit(1);
  }
} decoded_at_the_end;

const Program& program_of(Kernel& kernel) {
  const std::lock_guard guard(device_lock());
  try {
    return kernel.program();
  } catch (const std::runtime_error& error) {
    stop(error.what());
  }
}

cudaError_t launch(Kernel& kernel, const Launch& asked, void** arguments, cudaStream_t stream) {
  const Program& program = program_of(kernel);
  Launch as = asked;
  uint64_t threads = 1;
  for (size_t d = 0; d < 3; ++d) {
    if (kernel.cluster[d] > 0) as.cluster[d] = kernel.cluster[d];
    threads *= as.block[d];
    if (as.grid[d] == 0 || as.block[d] == 0 || as.grid[d] % as.cluster[d] != 0)
      return noted(cudaErrorInvalidConfiguration);
  }
  constexpr uint32_t most_rows = 65535, shared_by_itself = 48 << 10;
  const bool is_large = as.grid[1] > most_rows || as.grid[2] > most_rows;
  if (is_large || threads > static_cast<uint64_t>(kernel.most_threads))
    return noted(cudaErrorInvalidConfiguration);
  const uint32_t allowed = std::max(shared_by_itself, static_cast<uint32_t>(kernel.allowed_shared));
  if (as.dynamic_shared > allowed || program.static_shared + as.dynamic_shared > shared_of_cta)
    return noted(cudaErrorInvalidValue);
  std::vector<std::byte> parameters(kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(parameters.data() + kernel.parameters[i].offset, arguments[i],
                kernel.parameters[i].bytes);
  submit(stream, [&kernel, as, parameters] { run_grid(kernel, as, parameters.data()); });
  return cudaSuccess;
}

std::array<uint32_t, 3> sizes(dim3 d) { return {d.x, d.y, d.z}; }

std::array<uint32_t, 3> cluster_of(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      const auto& d = config.attrs[i].val.clusterDim;
      return {d.x, d.y, d.z};
    }
  return {1, 1, 1};
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

CUresult encode(CUtensorMap* to, TensorMap map, CUtensorMapDataType type, cuuint32_t rank,
                void* address, const cuuint64_t* dimensions, const cuuint64_t* strides,
                CUtensorMapSwizzle swizzle) {
  constexpr uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  map.is_map = TensorMap::sign;
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = bytes[type];
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.address = reinterpret_cast<uint64_t>(address);
  for (size_t d = 0; d < rank; ++d) {
    map.last[d] = static_cast<uint32_t>(dimensions[d] - 1);
    if (d > 0) map.strides[d - 1] = strides[d - 1];
  }
  std::memset(to, 0, sizeof *to);
  std::memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}

CUresult encode_tiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* dimensions, const cuuint64_t* strides,
                      const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  TensorMap map;
  for (size_t d = 0; d < rank; ++d) map.box[d] = static_cast<uint16_t>(box[d]);
  return encode(to, map, type, rank, address, dimensions, strides, swizzle);
}

CUresult encode_im2col(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower,
                       const int* upper, cuuint32_t channels, cuuint32_t pixels,
                       const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  TensorMap map;
  map.box = {static_cast<uint16_t>(channels), static_cast<uint16_t>(pixels)};
  for (size_t d = 0; d < 2; ++d) {
    map.lower[d] = static_cast<int16_t>(lower[d]);
    map.upper[d] = static_cast<int16_t>(upper[d]);
    map.steps[d] = static_cast<uint8_t>(steps[d + 1]);
  }
  return encode(to, map, type, rank, address, dimensions, strides, swizzle);
}

}  // namespace

}  // namespace bs::emulator

using namespace bs::emulator;

extern "C" {

// What nvcc calls when a program begins, and where one launches a kernel.
void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* data;
  };
  return reinterpret_cast<void**>(new Source(static_cast<const Wrapper*>(wrapper)->data));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** source, const char* host_function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  registry().kernels[host_function] = {reinterpret_cast<Source*>(source), name};
}
void __cudaRegisterVar(void** source, char* variable, char*, const char* name, int, size_t, int,
                       int) {
  registry().variables[variable] = {reinterpret_cast<Source*>(source), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  const Launch as{sizes(grid), sizes(block), {1, 1, 1}, static_cast<uint32_t>(shared)};
  return launch(kernel_of(kernel), as, arguments, stream);
}
cudaError_t cudaLaunchKernel(const void* host_function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
  const Launch as{sizes(grid), sizes(block), {1, 1, 1}, static_cast<uint32_t>(shared)};
  return launch(kernel_of(host_function), as, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  const Launch as{sizes(config->gridDim), sizes(config->blockDim), cluster_of(*config),
                  static_cast<uint32_t>(config->dynamicSmemBytes)};
  return launch(kernel_of(function), as, arguments, config->stream);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind) {
  const auto named = registry().variables.find(symbol);
  if (named == registry().variables.end()) return noted(cudaErrorInvalidSymbol);
  const Variable& variable = named->second.source->module().variables.at(named->second.name);
  std::memcpy(variable.data + offset, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > shared_of_cta) return noted(cudaErrorInvalidValue);
  kernel_of(function).allowed_shared = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  Kernel& kernel = kernel_of(function);
  const Program& program = program_of(kernel);
  *attributes = {};
  attributes->maxThreadsPerBlock = kernel.most_threads;
  attributes->sharedSizeBytes = program.static_shared;
  attributes->localSizeBytes = program.local_bytes;
  attributes->maxDynamicSharedSizeBytes = std::max(48 << 10, kernel.allowed_shared);
  attributes->numRegs = 64;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncGetParamInfo(const void* function, size_t number, size_t* offset,
                                 size_t* bytes) {
  const std::vector<Parameter>& parameters = kernel_of(function).parameters;
  if (number >= parameters.size()) return noted(cudaErrorInvalidValue);
  *offset = parameters[number].offset;
  *bytes = parameters[number].bytes;
  return cudaSuccess;
}
/// By threads and shared memory alone: how many registers a kernel takes, ptxas would know.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void* function,
                                                                   int threads, size_t shared,
                                                                   unsigned) {
  constexpr int most = 32;
  const Program& program = program_of(kernel_of(function));
  const auto of_each = static_cast<int>(shared_begins + program.static_shared + shared);
  *count =
      std::min({most, threads_of_multiprocessor / threads, shared_of_multiprocessor / of_each});
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void* function,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, shared,
                                                                0);
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void* function,
                                           const cudaLaunchConfig_t* config) {
  const dim3 block = config->blockDim;
  const std::array<uint32_t, 3> cluster = cluster_of(*config);
  int each = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &each, function, static_cast<int>(block.x * block.y * block.z), config->dynamicSmemBytes);
  *count = multiprocessors * each / static_cast<int>(cluster[0] * cluster[1] * cluster[2]);
  return cudaSuccess;
}

/// The image is text of PTX, which the library `libraries/nvrtc.cpp` gives.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* image, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  const std::string text(static_cast<const char*>(image));
  if (text.find(".version") == std::string::npos) return noted(cudaErrorNoKernelImageForDevice);
  *library = reinterpret_cast<cudaLibrary_t>(new Module(text));
  return cudaSuccess;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  auto& kernels = reinterpret_cast<Module*>(library)->kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return noted(cudaErrorSymbolNotFound);
  *kernel = reinterpret_cast<cudaKernel_t>(found->second.get());
  return cudaSuccess;
}
cudaError_t cudaLibraryGetGlobal(void** pointer, size_t* bytes, cudaLibrary_t library,
                                 const char* name) {
  const auto& variables = reinterpret_cast<Module*>(library)->variables;
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.data == nullptr)
    return noted(cudaErrorSymbolNotFound);
  *pointer = found->second.data;
  *bytes = found->second.bytes;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const std::string_view wanted = name;
  *function = nullptr;
  if (wanted == "cuTensorMapEncodeTiled") *function = reinterpret_cast<void*>(encode_tiled);
  if (wanted == "cuTensorMapEncodeIm2col") *function = reinterpret_cast<void*>(encode_im2col);
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
