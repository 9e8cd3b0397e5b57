#include <bs/lib/trace.h>

#include <bs/lib/operation.h>
#if BS_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace bs {

TraceRange::TraceRange(const char* name) {
  if (profiling()) [[unlikely]]
    detail::begin_range(this, name);
#if BS_WITH_CUDA
  nvtxRangePushA(name);
#endif
}

TraceRange::~TraceRange() {
  if (profiling()) [[unlikely]]
    detail::end_range(this);
#if BS_WITH_CUDA
  nvtxRangePop();
#endif
}

}  // namespace bs
