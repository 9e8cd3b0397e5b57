// Stands before NVRTC: kernels are compiled to PTX for the same architecture, and no further.
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

/// Of the toolkit that this was built with.
void* nvrtc() {
  static void* const library = [] {
    void* const opened = ::dlopen(BS_REAL_NVRTC, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "emulator: %s\n", ::dlerror());
      std::abort();
    }
    return opened;
  }();
  return library;
}

template <class Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(nvrtc(), name));
}
#define BS_REAL(function) real(#function, &function)

/// What ptxas would say. How many registers a kernel takes, only it knows.
constexpr char report[] =
    "\nptxas info    : Used 64 registers, 0 bytes stack frame, 0 bytes spill stores, "
    "0 bytes spill loads, 0 bytes smem\n";

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) { return BS_REAL(nvrtcGetErrorString)(result); }
nvrtcResult nvrtcVersion(int* major, int* minor) { return BS_REAL(nvrtcVersion)(major, minor); }
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  return BS_REAL(nvrtcGetNumSupportedArchs)(count);
}
nvrtcResult nvrtcGetSupportedArchs(int* all) { return BS_REAL(nvrtcGetSupportedArchs)(all); }
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name,
                               int count, const char* const* headers, const char* const* names) {
  return BS_REAL(nvrtcCreateProgram)(program, source, name, count, headers, names);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  return BS_REAL(nvrtcDestroyProgram)(program);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text = options[i];
    if (text.find("ptxas") != std::string::npos) continue;
    const std::string binary = "=sm_";
    if (const size_t at = text.find(binary); at != std::string::npos)
      text.replace(at, binary.size(), "=compute_");
    texts.push_back(text);
  }
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return BS_REAL(nvrtcCompileProgram)(program, static_cast<int>(pointers.size()), pointers.data());
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  const nvrtcResult result = BS_REAL(nvrtcGetProgramLogSize)(program, bytes);
  *bytes += sizeof report;
  return result;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  const nvrtcResult result = BS_REAL(nvrtcGetProgramLog)(program, log);
  std::strcat(log, report);
  return result;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  return BS_REAL(nvrtcGetPTXSize)(program, bytes);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* text) {
  return BS_REAL(nvrtcGetPTX)(program, text);
}

}  // extern "C"
