#include <bs/nn/optim/lion.h>

namespace bs::optim {

template class GroupOptimizer<LionOptions, LionParameter, prepared_lion, lion_numbers>;

}  // namespace bs::optim
