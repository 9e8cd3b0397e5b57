#include <bs/kernels/conv2d_operation.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/lib/cuda/runtime.h>

namespace bs::cuda {

void conv2d_operation(const Conv2dLaunch& launch, Stream stream) {
  const Conv2dDescription& d = launch.operation->description();
  const Conv2dProblem& p = launch.problem;
  const MathInstruction& math = d.tile.math;
  const int needed = minimum_capability(math);
  const int capability = device_properties(stream.device()).capability;
  BS_CHECK(runs_on(math, capability),
           "conv2d_operation: {} needs a GPU of compute capability {}.{}; {} has {}.{}", math,
           needed / 10, needed % 10, stream.device(), capability / 10, capability % 10);
  const bool fits =
      math.op_class == OpClass::warpgroup ? fits_warpgroups(p, d.kind) : fits_tiles(p, d.kind);
  BS_CHECK(fits,
           "conv2d_operation: {}x{} taps, strides {}x{} and dilation {}x{} are more than {} on {} "
           "can gather",
           p.r, p.s, p.stride.h, p.stride.w, p.dilation.h, p.dilation.w, d.kind, math);
  const Tensor& image = d.kind == Conv2dKind::fprop   ? launch.a
                        : d.kind == Conv2dKind::dgrad ? launch.d
                                                      : launch.b;
  const Tensor& filters = d.kind == Conv2dKind::wgrad ? launch.d : launch.b;
  const Tensor& pixels = d.kind == Conv2dKind::fprop ? launch.d : launch.a;
  launch_conv2d(p,
                {.kind = d.kind,
                 .description = gemm_of(d),
                 .key = launch.operation->key(),
                 .loads = loads_of(d)},
                launch.slices,
                {.image = image,
                 .filters = filters,
                 .pixels = pixels,
                 .operands = {launch.operands.begin() + 1, launch.operands.end()},
                 .scalars = launch.scalars},
                stream);
}

}  // namespace bs::cuda
