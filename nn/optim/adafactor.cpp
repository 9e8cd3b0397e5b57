#include <bs/nn/optim/adafactor.h>

namespace bs::optim {

template class GroupOptimizer<AdafactorOptions, AdafactorParameter, prepared_adafactor,
                              adafactor_numbers>;

}  // namespace bs::optim
