// What list_functions does not call of the C interface: LSTM, whose arrays have a length beside
// them, and described products, which are made before they run.
#include <bs/kernels/copy.h>
#include <bs/tests/misuse/c_parameters.h>

#include <cstring>

namespace bs::test {

namespace {

using Given = const bs_tensor*;

/// A result that a handle names, for other calls; the handle is freed.
void keep(bs_tensor* result, Source& to) {
  if (result == nullptr) return;
  take(result->value, to);
  bs_tensor_free(result);
}

void keep(const bs_lstm_states& states, Source& to) {
  for (bs_tensor* t : {states.y, states.h_n, states.c_n}) keep(t, to);
}

/// One direction or two: forward, then backward from the gradients that are given.
bs_status lstm(Given x, Given ih, Given hh, Given bias_ih, Given bias_hh, Given hr, Given h0,
               Given c0, const bs_layout* layout, Given lengths, Given dy, Given dh_n, bool both,
               bool reverse) {
  const bs_lstm_direction one{ih, hh, bias_ih, bias_hh, hr, layout, h0, c0, reverse};
  const bs_lstm_direction directions[] = {one, one};
  const int count = both ? 2 : 1;
  bs_lstm_states states[2] = {};
  bs_lstm* saved = nullptr;
  Source results(1);
  bs_status status = bs_lstm_forward(x, directions, count, lengths, states, &saved);
  for (const bs_lstm_states& s : states) keep(s, results);
  if (status != BS_OK) {
    if (saved != nullptr) throw std::logic_error("has failed and saved something");
    return status;
  }
  const auto upstream = [](Given t) { return const_cast<bs_tensor*>(t); };
  const bs_lstm_states gradient{upstream(dy), upstream(dh_n), nullptr};
  const bs_lstm_states gradients_of[] = {gradient, gradient};
  bs_lstm_gradients gradients[2] = {};
  bs_tensor* dx = nullptr;
  status = bs_lstm_backward(saved, gradients_of, both ? nullptr : &dx, gradients);
  bs_lstm_free(saved);
  keep(dx, results);
  for (const bs_lstm_gradients& g : gradients)
    for (bs_tensor* t : {g.ih, g.hh, g.bias_ih, g.bias_hh, g.hr, g.h0, g.c0}) keep(t, results);
  return status;
}

/// The arrays left out, one after the other.
bs_status lstm_without(Given x, Given ih, Given hh, int count, bool directions, bool states,
                       bool gradients) {
  const bs_lstm_direction one{ih, hh, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  bs_lstm_states results[1] = {};
  bs_lstm* saved = nullptr;
  Source source(1);
  const bs_status status = bs_lstm_forward(x, directions ? &one : nullptr, std::min(count, 1),
                                           nullptr, states ? results : nullptr, &saved);
  keep(results[0], source);
  if (status != BS_OK) return status;
  const bs_lstm_states none{};
  bs_lstm_gradients g[1] = {};
  const bs_status back = bs_lstm_backward(saved, &none, nullptr, gradients ? g : nullptr);
  bs_lstm_free(saved);
  for (bs_tensor* t : {g->ih, g->hh, g->bias_ih, g->bias_hh, g->hr, g->h0, g->c0}) keep(t, source);
  return back;
}

/// A product that is described and run. Where it fails, what was to be written is as it was.
bs_status gemm(const bs_gemm_description& description, Given a, Given b, Given c, Given bias,
               Given d, double alpha, double beta, int slices) {
  bs_gemm* made = nullptr;
  const bs_status status = bs_gemm_make(&description, &made);
  if (status != BS_OK) {
    if (made != nullptr) throw std::logic_error("has failed and made something");
    return status;
  }
  const Tensor before = d && d->value.defined() ? clone(d->value) : Tensor();
  const bs_gemm_arguments arguments{a, b, c, bias, d, alpha, beta, slices};
  const bs_status ran = bs_gemm_run(made, &arguments);
  bs_gemm_free(made);
  if (ran != BS_OK && before.defined()) {
    const Tensor after = clone(d->value);
    if (before.bytes() > 0 && std::memcmp(before.data(), after.data(), before.bytes()) != 0)
      throw std::logic_error("has failed and changed d");
  }
  return ran;
}

bs_status without(bool description, bool out, bool product, bool arguments) {
  const bs_gemm_description good = Values<bs_gemm_description>::good();
  bs_gemm* made = nullptr;
  const bs_status status = bs_gemm_make(description ? &good : nullptr, out ? &made : nullptr);
  if (status != BS_OK) return status;
  const bs_gemm_arguments none{};
  const bs_status ran = bs_gemm_run(product ? made : nullptr, arguments ? &none : nullptr);
  bs_gemm_free(made);
  return ran;
}

const Listed listed[] = {{"c/layers.h", "bs_lstm", lstm},
                         {"c/layers.h", "bs_lstm without", lstm_without},
                         {"c/gemm.h", "bs_gemm", gemm},
                         {"c/gemm.h", "bs_gemm without", without}};

}  // namespace
}  // namespace bs::test
