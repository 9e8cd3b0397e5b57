#include <bs/kernels/lstm.h>

#include <bs/c/handle.h>

struct bs_lstm {
  bs::Tensor x, lengths;
  std::vector<bs::LSTMDirection> directions;
  std::vector<bs::LSTMResult> results;
};

namespace bs::c {

namespace {

LSTMDirection direction(const char* op, const bs_lstm_direction& d) {
  LSTMDirection made;
  made.weights = {.ih = value(op, "ih", d.ih),
                  .hh = value(op, "hh", d.hh),
                  .bias_ih = optional(d.bias_ih),
                  .bias_hh = optional(d.bias_hh),
                  .hr = optional(d.hr),
                  .layout = d.layout ? d.layout->value : nullptr};
  made.h0 = optional(d.h0);
  made.c0 = optional(d.c0);
  made.reverse = d.reverse != 0;
  return made;
}

/// Three results of a direction, or seven gradients, until all of them are made.
struct NewStates {
  NewTensor y, h_n, c_n;

  explicit NewStates(const LSTMResult& r)
      : y(handle(r.y)), h_n(handle(r.h_n)), c_n(handle(r.c_n)) {}
  bs_lstm_states release() { return {y.release(), h_n.release(), c_n.release()}; }
};
struct NewGradients {
  NewTensor ih, hh, bias_ih, bias_hh, hr, h0, c0;

  NewGradients(const LSTMGrads& g, const LSTMDirection& d)
      : ih(handle(g.weights.ih)),
        hh(handle(g.weights.hh)),
        bias_ih(handle(g.weights.bias_ih)),
        bias_hh(handle(g.weights.bias_hh)),
        hr(handle(g.weights.hr)),
        h0(d.h0.defined() ? handle(g.h0) : nullptr),
        c0(d.c0.defined() ? handle(g.c0) : nullptr) {}
  bs_lstm_gradients release() {
    return {ih.release(), hh.release(), bias_ih.release(), bias_hh.release(),
            hr.release(), h0.release(), c0.release()};
  }
};

}  // namespace

}  // namespace bs::c

using namespace bs::c;

bs_status bs_lstm_forward(const bs_tensor* x, const bs_lstm_direction* directions, int count,
                          const bs_tensor* lengths, bs_lstm_states* states, bs_lstm** saved) {
  return guarded([&] {
    const char* op = "bs_lstm_forward";
    clear(saved);
    BS_CHECK(count > 0 && directions != nullptr, "{}: {} directions", op, count);
    BS_CHECK(states != nullptr, "{}: the place of a result is NULL", op);
    for (int i = 0; i < count; ++i) states[i] = {};
    auto kept = std::make_unique<bs_lstm>();
    kept->x = value(op, "x", x);
    kept->lengths = optional(lengths);
    for (int i = 0; i < count; ++i) kept->directions.push_back(direction(op, directions[i]));
    kept->results = bs::lstm(kept->x, kept->directions, kept->lengths);
    std::vector<NewStates> made(kept->results.begin(), kept->results.end());
    for (size_t i = 0; i < made.size(); ++i) states[i] = made[i].release();
    if (saved) *saved = kept.release();
  });
}

bs_status bs_lstm_backward(const bs_lstm* saved, const bs_lstm_states* dstates, bs_tensor** dx,
                           bs_lstm_gradients* gradients) {
  return guarded([&] {
    const char* op = "bs_lstm_backward";
    clear(dx);
    BS_CHECK(saved != nullptr, "{}: saved is NULL", op);
    BS_CHECK(dstates != nullptr, "{}: dstates is NULL", op);
    BS_CHECK(gradients != nullptr, "{}: the place of a result is NULL", op);
    const size_t count = saved->directions.size();
    std::vector<bs::LSTMUpstream> upstream(count);
    for (size_t i = 0; i < count; ++i) {
      gradients[i] = {};
      upstream[i] = {.y = optional(dstates[i].y),
                     .h_n = optional(dstates[i].h_n),
                     .c = {},
                     .c_n = optional(dstates[i].c_n)};
    }
    const bs::LSTMBackward g =
        bs::lstm_backward(saved->x, saved->directions, saved->lengths, saved->results, upstream,
                          {.x = dx != nullptr, .weights = true});
    std::vector<NewGradients> made;
    for (size_t i = 0; i < count; ++i) made.emplace_back(g.directions[i], saved->directions[i]);
    auto to_x = handle(g.x);
    for (size_t i = 0; i < count; ++i) gradients[i] = made[i].release();
    give(dx, to_x);
  });
}

void bs_lstm_free(bs_lstm* saved) { delete saved; }
