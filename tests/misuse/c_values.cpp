#include <bs/tests/misuse/c_values.h>

namespace bs::test {

Handles& handles() {
  static Handles all;
  return all;
}

void forget_handles(bool saved) {
  Handles& all = handles();
  all.tensors.clear();
  all.layouts.clear();
  if (!saved) return;
  for (bs_attention* one : all.attentions) bs_attention_free(one);
  for (bs_transducer* one : all.transducers) bs_transducer_free(one);
  all.attentions.clear();
  all.transducers.clear();
}

}  // namespace bs::test
