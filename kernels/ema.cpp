#include <bs/kernels/ema.h>
#include <bs/kernels/parameter.h>
#include <bs/lib/changes.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace bs {

namespace {

/// The parameters that have elements: those given where all have, for a copy takes longer than all
/// checks.
StepParameters<EmaParameter> with_elements(std::span<const EmaParameter> parameters) {
  const auto is_empty = [](const EmaParameter& p) { return p.value.numel() == 0; };
  if (std::ranges::none_of(parameters, is_empty)) return StepParameters(parameters);
  std::vector<EmaParameter> copies;
  std::ranges::remove_copy_if(parameters, std::back_inserter(copies), is_empty);
  return StepParameters(std::move(copies));
}

}  // namespace

void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& mix) {
  BS_CHECK(decay >= 0 && decay <= 1, "ema: a decay of {}", decay);
  const EmaParameter* first = nullptr;
  for (const EmaParameter& p : parameters) {
    check_parameter("ema", p.value, p.value);
    check_state("ema", "average", p.value, p.average, p.value.shape());
    if (p.value.numel() == 0) continue;
    if (!first) first = &p;
    check_same_device("ema", first->value, p.value);
  }
  if (!first) return;
  const StepParameters<EmaParameter> present = with_elements(parameters);
  check_numbers("ema", mix, 1, present.device());
  for (const EmaParameter& p : present.all()) note_change(p.average, "ema");
  BS_DISPATCH(present.device(), ema, present.all(), decay, mix);
}

}  // namespace bs
