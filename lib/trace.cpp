#include <bs/lib/trace.h>
#if BS_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace bs {

#if BS_WITH_CUDA
TraceRange::TraceRange(const char* name) { nvtxRangePushA(name); }
TraceRange::~TraceRange() { nvtxRangePop(); }
#else
TraceRange::TraceRange(const char*) {}
TraceRange::~TraceRange() = default;
#endif

}  // namespace bs
