#include <bs/nn/optim/adam.h>

namespace bs::optim {

template class GroupOptimizer<AdamOptions, AdamParameter, prepared_adam, adam_numbers>;

}  // namespace bs::optim
