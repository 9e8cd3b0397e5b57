#include <bs/bench/plain_case_list.h>
#include <bs/kernels/adafactor.h>
#include <bs/kernels/adam.h>
#include <bs/kernels/adamw.h>
#include <bs/kernels/axpby.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/ema.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/grad_norm.h>
#include <bs/kernels/lamb.h>
#include <bs/kernels/lion.h>
#include <bs/kernels/muon.h>
#include <bs/kernels/parameter.h>
#include <bs/kernels/rmsprop.h>
#include <bs/kernels/sgd.h>

#include <algorithm>
#include <memory>

namespace bs::bench {

namespace {

/// Parameters with their state, 16-bit ones with a master.
struct Parameters {
  std::vector<MomentParameter> moments;
  std::vector<AdamParameter> adam;
  std::vector<AdafactorParameter> adafactor;
  std::vector<LionParameter> lion;
  std::vector<MuonParameter> muon;  ///< of the matrices alone
  std::vector<RMSpropParameter> rmsprop;
  std::vector<SgdParameter> sgd;
  std::vector<AxpbyParameter> sums;
  std::vector<EmaParameter> averages;
  std::vector<Tensor> gradients;
  int64_t elements = 0, of_matrices = 0;
};

/// 500 shapes of mixed sizes. Half of them are vectors, and a matrix in ten is large.
std::vector<Shape> mixed_shapes(const Cases& c) {
  std::vector<Shape> shapes;
  for (int i = 0; i < 500; ++i) {
    const int64_t rows = i % 20 == 1 ? std::max<int64_t>(1, c.rows / 64) : 16 + i % 7;
    shapes.push_back(i % 2 == 0 ? Shape{64 + 13 * i} : Shape{rows, c.columns});
  }
  return shapes;
}

AdafactorParameter adafactor_parameter(const Tensor& value, const Tensor& gradient,
                                       const Tensor& master) {
  AdafactorParameter p{value, gradient, {}, {}, {}, master};
  for (size_t i = 0; i < AdafactorParameter::states.size(); ++i)
    if (const auto shape = AdafactorParameter::state_shape(i, value.shape()))
      p.*AdafactorParameter::states[i] = zeros(*shape, state_dtype(value.dtype()), value.device());
  return p;
}

std::shared_ptr<Parameters> parameters(Cases& c, const std::vector<Shape>& shapes) {
  auto all = std::make_shared<Parameters>();
  const DType state = state_dtype(c.dtype());
  for (const Shape& shape : shapes) {
    const auto zero = [&] { return zeros(shape, state, c.device()); };
    const Tensor value = c.values(shape), gradient = c.values(shape);
    const Tensor master = state == c.dtype() ? Tensor() : cast(value, state);
    all->moments.push_back({value, gradient, zero(), zero(), master});
    all->adam.push_back({value, gradient, zero(), zero(), {}, master});
    all->adafactor.push_back(adafactor_parameter(value, gradient, master));
    all->lion.push_back({value, gradient, zero(), master});
    all->rmsprop.push_back({value, gradient, zero(), {}, {}, master});
    all->sgd.push_back({value, gradient, zero(), master});
    all->sums.push_back({value, gradient, master});
    all->averages.push_back({value, zero()});
    all->gradients.push_back(gradient);
    all->elements += value.numel();
    if (shape.rank() != 2) continue;
    all->muon.push_back({value, gradient, zero(), master});
    all->of_matrices += value.numel();
  }
  return all;
}

/// Bytes of an element of a parameter and of its state.
struct ElementBytes {
  double value, state, stepped;  ///< stepped: a step's, but for those of its states

  explicit ElementBytes(DType dtype)
      : value(static_cast<double>(size_of(dtype))),
        state(static_cast<double>(size_of(state_dtype(dtype)))),
        // The gradient is read, the value written; its master is read and written, or it is read.
        stepped(2 * value + (is_low_precision(dtype) ? 2 * state : value)) {}
};

/// Steps that are added for one tensor too, to tell what many tensors cost.
void add_steps(Cases& c, const std::shared_ptr<Parameters>& p, const char* tensors) {
  const auto elements = static_cast<double>(p->elements);
  const ElementBytes bytes(c.dtype());
  const std::shared_ptr<int64_t> t = std::make_shared<int64_t>(0);
  c.add("adamw", tensors, elements * (bytes.stepped + 4 * bytes.state),
        [p, t]() -> std::vector<Tensor> {
          adamw(p->moments, ++*t, {});
          return {p->moments.back().value, p->moments.front().value};
        });
  c.add("ema", tensors, elements * (bytes.value + 2 * bytes.state), [p]() -> std::vector<Tensor> {
    ema(p->averages, 0.99);
    return {p->averages.back().average};
  });
  c.add("clip_gradients", tensors, 2 * elements * bytes.value,
        [p, norm = grad_norm(p->gradients)]() -> std::vector<Tensor> {
          clip_gradients(p->gradients, {.norm = norm, .max_norm = 0.5});
          return {p->gradients.back()};
        });
}

}  // namespace

void add_optimisers(Cases& c) {
  const auto p = parameters(c, mixed_shapes(c));
  const char* const all = "500 tensors";
  const auto elements = static_cast<double>(p->elements);
  const auto of_matrices = static_cast<double>(p->of_matrices);
  const ElementBytes bytes(c.dtype());
  const auto stepped = [&](const char* what, const char* tensors, double moved, auto step) {
    c.add(what, tensors, moved, [p, step]() -> std::vector<Tensor> {
      step();
      return {p->moments[1].value, p->moments[0].value};
    });
  };
  const double of_one = elements * (bytes.stepped + 2 * bytes.state),
               of_two = elements * (bytes.stepped + 4 * bytes.state);
  const double factored = elements * bytes.stepped + 2 * bytes.state * (elements - of_matrices);
  const std::shared_ptr<int64_t> t = std::make_shared<int64_t>(0);
  // Its step's length is known when a tensor's moments are: they and the weights are read again.
  const double read_again =
      2 * bytes.state + (is_low_precision(c.dtype()) ? bytes.state : bytes.value);
  stepped("lamb", all, of_two + elements * read_again, [=] { lamb(p->moments, ++*t, {}); });
  stepped("adam", all, of_two, [=] { adam(p->adam, ++*t, {}); });
  stepped("lion", all, of_one, [=] { lion(p->lion, {}); });
  stepped("rmsprop", all, of_one, [=] { rmsprop(p->rmsprop, {}); });
  stepped("sgd", all, of_one, [=] { sgd(p->sgd, {.momentum = 0.9}); });
  stepped("axpby", all, elements * bytes.stepped, [=] { axpby(p->sums, 0.9, 0.1); });
  stepped("adafactor", all, factored, [=] { adafactor(p->adafactor, ++*t, {}); });
  stepped("muon", "250 matrices", of_matrices * (bytes.stepped + 2 * bytes.state),
          [=] { muon(p->muon, {}); });
  c.add("grad_norm", all, elements * bytes.value, [p] { return grad_norm(p->gradients); });
  add_steps(c, p, all);
  add_steps(c, parameters(c, {{p->elements}}), "one tensor");
}

}  // namespace bs::bench
