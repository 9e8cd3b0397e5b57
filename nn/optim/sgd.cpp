#include <bs/nn/optim/sgd.h>

namespace bs::optim {

template class GroupOptimizer<SgdOptions, SgdParameter, prepared_sgd, sgd_numbers>;

}  // namespace bs::optim
