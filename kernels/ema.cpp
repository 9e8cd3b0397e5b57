#include <bs/kernels/ema.h>
#include <bs/kernels/parameter.h>

#include <vector>

namespace bs {

void ema(std::span<const EmaParameter> parameters, double decay) {
  BS_CHECK(decay >= 0 && decay <= 1, "ema: a decay of {}", decay);
  std::vector<EmaParameter> present;
  for (const EmaParameter& p : parameters) {
    check_parameter("ema", p.value, p.value);
    check_state("ema", "average", p.value, p.average);
    if (p.value.numel() == 0) continue;
    present.push_back(p);
    check_same_device("ema", present.front().value, p.value);
  }
  if (present.empty()) return;
  BS_DISPATCH(present.front().value.device(), ema, present, decay);
}

}  // namespace bs
