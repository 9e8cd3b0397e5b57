#include <bs/c/handle.h>
#include <bs/lib/stream.h>
#include <bs/version.h>

#include <cstring>
#include <exception>
#include <new>

struct bs_stream_scope {
  bs::StreamGuard guard;
};

namespace bs::c {

namespace {

constexpr size_t longest = 2048;
/// In place, so that keeping a text cannot fail.
thread_local char last_text[longest] = "";

bs_status keep(bs_status status, const char* text) {
  std::strncpy(last_text, text, longest - 1);
  last_text[longest - 1] = '\0';
  return status;
}

}  // namespace

bs_status failed() noexcept {
  try {
    throw;
  } catch (const OutOfMemory& e) {
    return keep(BS_OUT_OF_MEMORY, e.what());
  } catch (const CudaError& e) {
    return keep(BS_CUDA_ERROR, e.what());
  } catch (const Error& e) {
    return keep(BS_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return keep(BS_OUT_OF_MEMORY, "out of memory on the host");
  } catch (const std::exception& e) {
    return keep(BS_INTERNAL_ERROR, e.what());
  } catch (...) {
    return keep(BS_INTERNAL_ERROR, "an exception of an unknown type");
  }
}

}  // namespace bs::c

const char* bs_last_error(void) { return bs::c::last_text; }

const char* bs_version(void) { return BS_VERSION; }

int bs_cuda_device_count(void) { return bs::cuda_device_count(); }

bs_status bs_stream_enter(int device, void* stream, bs_stream_scope** scope) {
  return bs::c::guarded([&] {
    bs::c::place("bs_stream_enter", scope);
    BS_CHECK(device >= 0, "bs_stream_enter: device {}", device);
    const bs::Device gpu = bs::Device::cuda(device);
    bs::check_usable("bs_stream_enter", gpu);
    *scope = new bs_stream_scope{bs::StreamGuard(bs::Stream(gpu, stream))};
  });
}

void bs_stream_leave(bs_stream_scope* scope) { delete scope; }
