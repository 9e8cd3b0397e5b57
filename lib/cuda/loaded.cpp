#include <bs/lib/check.h>
#include <bs/lib/cuda/loaded.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace bs::cuda {

namespace {

/// Where a library may be: in `$BS_CUDA_LIBRARIES` alone, where that is set. Else where the loader
/// looks, in the toolkit that this was built with, and in one that the environment names.
std::vector<std::string> places(const std::string& name) {
  if (const char* const folder = std::getenv("BS_CUDA_LIBRARIES"))
    return {format("{}/{}", folder, name)};
  std::vector<std::string> all = {name, format("{}/{}", BS_CUDA_LIBRARY_FOLDER, name)};
  for (const char* const variable : {"CUDA_PATH", "CUDA_HOME"})
    if (const char* const toolkit = std::getenv(variable))
      all.push_back(format("{}/lib64/{}", toolkit, name));
  return all;
}

/// A library of the toolkit that the headers are of: another major version has other functions.
class Library {
 public:
  Library(const char* product, const char* stem, const char* package)
      : name_(format("{}.so.{}", stem, major)) {
    std::string tried;
    for (const std::string& place : places(name_)) {
      // Its handle is never closed: handles and kernels of its may live until the program ends.
      handle_ = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      const char* const reason = ::dlerror();
      tried += format("\n  {}", reason != nullptr ? reason : place.c_str());
    }
    BS_THROW(CudaError,
             "{} is needed and cannot be loaded:{}\nInstall the CUDA toolkit {}, or of NVIDIA's "
             "packages {}-{}-*; or set BS_CUDA_LIBRARIES to the folder of {}",
             product, tried, major, package, major, name_);
  }

  template <class Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(::dlsym(handle_, symbol));
    if (function == nullptr)
      BS_THROW(CudaError, "{} has no {}: it is not of the CUDA toolkit {}.{} or later", name_,
               symbol, major, CUDART_VERSION % 1000 / 10);
  }

 private:
  static constexpr int major = CUDART_VERSION / 1000;

  std::string name_;
  void* handle_ = nullptr;
};

/// NVRTC opens a library of its own by its name alone. The loader finds it where it has been
/// opened before, from the folder of NVRTC here. Where that fails NVRTC looks, and tells, itself.
void load_builtins(const Nvrtc& f) {
  int major = 0, minor = 0;
  Dl_info info{};
  if (f.version(&major, &minor) != NVRTC_SUCCESS) return;
  if (::dladdr(reinterpret_cast<const void*>(f.version), &info) == 0) return;
  const std::string path = info.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::string name = format("{}libnvrtc-builtins.so.{}.{}", folder, major, minor);
  ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

const Cublas& cublas() {
  static const Cublas all = [] {
    const Library library("cuBLAS", "libcublas", "libcublas");
    Cublas f{};
    library.find("cublasCreate_v2", f.create);
    library.find("cublasSetStream_v2", f.set_stream);
    library.find("cublasSetWorkspace_v2", f.set_workspace);
    library.find("cublasSetMathMode", f.set_math_mode);
    library.find("cublasGetStatusString", f.status_string);
    library.find("cublasGemmEx_64", f.gemm);
    library.find("cublasGemmStridedBatchedEx_64", f.gemm_batched);
    return f;
  }();
  return all;
}

const CublasLt& cublas_lt() {
  static const CublasLt all = [] {
    const Library library("cuBLASLt", "libcublasLt", "libcublas");
    CublasLt f{};
    library.find("cublasLtMatmulDescInit_internal", f.make_product);
    library.find("cublasLtMatmulDescSetAttribute", f.set_product);
    library.find("cublasLtMatrixLayoutInit_internal", f.make_layout);
    library.find("cublasLtMatmulPreferenceInit_internal", f.make_preference);
    library.find("cublasLtMatmulPreferenceSetAttribute", f.set_preference);
    library.find("cublasLtMatmulAlgoGetHeuristic", f.choose);
    library.find("cublasLtMatmul", f.multiply);
    return f;
  }();
  return all;
}

const Nvrtc& nvrtc() {
  static const Nvrtc all = [] {
    const Library library("NVRTC", "libnvrtc", "cuda-nvrtc");
    Nvrtc f{};
    library.find("nvrtcGetErrorString", f.error_string);
    library.find("nvrtcVersion", f.version);
    library.find("nvrtcGetNumSupportedArchs", f.count_architectures);
    library.find("nvrtcGetSupportedArchs", f.architectures);
    library.find("nvrtcCreateProgram", f.create);
    library.find("nvrtcDestroyProgram", f.destroy);
    library.find("nvrtcCompileProgram", f.compile);
    library.find("nvrtcGetProgramLogSize", f.log_size);
    library.find("nvrtcGetProgramLog", f.log);
    library.find("nvrtcGetCUBINSize", f.cubin_size);
    library.find("nvrtcGetCUBIN", f.cubin);
    load_builtins(f);
    return f;
  }();
  return all;
}

}  // namespace bs::cuda
