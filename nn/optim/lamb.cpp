#include <bs/nn/optim/lamb.h>

namespace bs::optim {

template class GroupOptimizer<LambOptions, LambParameter, prepared_lamb, lamb_numbers>;

}  // namespace bs::optim
