#include <bs/nn/optim/adamw.h>

namespace bs::optim {

template class GroupOptimizer<AdamWOptions, AdamWParameter, prepared_adamw, adamw_numbers>;

}  // namespace bs::optim
