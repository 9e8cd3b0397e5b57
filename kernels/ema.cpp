#include <bs/kernels/ema.h>
#include <bs/kernels/parameter.h>
#include <bs/lib/changes.h>

#include <vector>

namespace bs {

void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& mix) {
  BS_CHECK(decay >= 0 && decay <= 1, "ema: a decay of {}", decay);
  std::vector<EmaParameter> present;
  present.reserve(parameters.size());
  for (const EmaParameter& p : parameters) {
    check_parameter("ema", p.value, p.value);
    check_state("ema", "average", p.value, p.average, p.value.shape());
    if (p.value.numel() == 0) continue;
    present.push_back(p);
    check_same_device("ema", present.front().value, p.value);
  }
  if (present.empty()) return;
  const Device device = present.front().value.device();
  check_numbers("ema", mix, 1, device);
  for (const EmaParameter& p : present) note_change(p.average, "ema");
  BS_DISPATCH(device, ema, present, decay, mix);
}

}  // namespace bs
