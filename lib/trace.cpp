#include <bs/lib/trace.h>

#include <bs/lib/debug_memory.h>
#include <bs/lib/operation.h>
#if BS_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace bs {

TraceRange::TraceRange(const char* name) {
  if (profiling()) [[unlikely]]
    detail::begin_range(this, name);
  if (detail::memory_is_watched()) [[unlikely]]
    detail::enter_range(name);
#if BS_WITH_CUDA
  nvtxRangePushA(name);
#endif
}

TraceRange::~TraceRange() {
  if (profiling()) [[unlikely]]
    detail::end_range(this);
  if (detail::memory_is_watched()) [[unlikely]]
    detail::leave_range();
#if BS_WITH_CUDA
  nvtxRangePop();
#endif
}

}  // namespace bs
