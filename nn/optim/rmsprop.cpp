#include <bs/nn/optim/rmsprop.h>

namespace bs::optim {

template class GroupOptimizer<RMSpropOptions, RMSpropParameter, prepared_rmsprop, rmsprop_numbers>;

}  // namespace bs::optim
