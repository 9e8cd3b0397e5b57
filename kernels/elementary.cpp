#include <bs/kernels/elementary.h>

#include <bs/kernels/elementwise_function.h>

namespace bs {

BS_FLOATING_FUNCTION(sin)
BS_FLOATING_FUNCTION(cos)
BS_FLOATING_FUNCTION(tan)
BS_FLOATING_FUNCTION(erf)
BS_FLOATING_FUNCTION(log1p)
BS_FLOATING_FUNCTION(expm1)

BS_FUNCTION_BACKWARD(tan_backward)
BS_FUNCTION_BACKWARD(erf_backward)

}  // namespace bs
