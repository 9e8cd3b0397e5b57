#include <bs/bench/plain_case_list.h>
#include <bs/kernels/adam.h>
#include <bs/kernels/adamw.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/ema.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/grad_norm.h>
#include <bs/kernels/lamb.h>
#include <bs/kernels/lion.h>
#include <bs/kernels/parameter.h>
#include <bs/kernels/rmsprop.h>
#include <bs/kernels/sgd.h>

#include <algorithm>
#include <memory>

namespace bs::bench {

namespace {

/// 500 parameters of mixed sizes with their state, 16-bit ones with a master.
struct Parameters {
  std::vector<MomentParameter> moments;
  std::vector<AdamParameter> adam;
  std::vector<LionParameter> lion;
  std::vector<RMSpropParameter> rmsprop;
  std::vector<SgdParameter> sgd;
  std::vector<EmaParameter> averages;
  std::vector<Tensor> gradients;
  int64_t elements = 0;
};

std::shared_ptr<Parameters> parameters(Cases& c) {
  auto all = std::make_shared<Parameters>();
  const DType state = state_dtype(c.dtype());
  for (int i = 0; i < 500; ++i) {
    // Half of them vectors; a matrix in ten is large.
    const int64_t n =
        i % 2 == 0 ? 64 + 13 * i
                   : c.columns * (i % 20 == 1 ? std::max<int64_t>(1, c.rows / 64) : 16 + i % 7);
    const auto zero = [&] { return zeros({n}, state, c.device()); };
    const Tensor value = c.values({n}), gradient = c.values({n});
    const Tensor master = state == c.dtype() ? Tensor() : cast(value, state);
    all->moments.push_back({value, gradient, zero(), zero(), master});
    all->adam.push_back({value, gradient, zero(), zero(), {}, master});
    all->lion.push_back({value, gradient, zero(), master});
    all->rmsprop.push_back({value, gradient, zero(), {}, {}, master});
    all->sgd.push_back({value, gradient, zero(), master});
    all->averages.push_back({value, zero()});
    all->gradients.push_back(gradient);
    all->elements += n;
  }
  return all;
}

}  // namespace

void add_optimisers(Cases& c) {
  const auto p = parameters(c);
  const auto elements = static_cast<double>(p->elements);
  const auto size = static_cast<double>(size_of(c.dtype()));
  const bool master = is_low_precision(c.dtype());
  const auto state = static_cast<double>(size_of(state_dtype(c.dtype())));
  // Read the gradient, write the value; read it too, or read and write its master.
  const double step = elements * (2 * size + (master ? 2 * state : size));
  const auto updated = [p]() -> std::vector<Tensor> {
    return {p->moments[1].value, p->moments[0].value};
  };
  const std::shared_ptr<int64_t> t = std::make_shared<int64_t>(0);
  c.add("adamw", "500 tensors", step + 4 * state * elements, [=] {
    adamw(p->moments, ++*t, {});
    return updated();
  });
  c.add("lamb", "500 tensors", step + 4 * state * elements, [=] {
    lamb(p->moments, ++*t, {});
    return updated();
  });
  c.add("adam", "500 tensors", step + 4 * state * elements, [=] {
    adam(p->adam, ++*t, {});
    return updated();
  });
  c.add("lion", "500 tensors", step + 2 * state * elements, [=] {
    lion(p->lion, {});
    return updated();
  });
  c.add("rmsprop", "500 tensors", step + 2 * state * elements, [=] {
    rmsprop(p->rmsprop, {});
    return updated();
  });
  c.add("sgd", "500 tensors", step + 2 * state * elements, [=] {
    sgd(p->sgd, {.momentum = 0.9});
    return updated();
  });
  c.add("ema", "500 tensors", elements * (size + 2 * state), [p]() -> std::vector<Tensor> {
    ema(p->averages, 0.99);
    return {p->averages[1].average};
  });
  c.add("grad_norm", "500 tensors", elements * size, [p] { return grad_norm(p->gradients); });
  c.add("clip_gradients", "500 tensors", 2 * elements * size,
        [p, norm = grad_norm(p->gradients)]() -> std::vector<Tensor> {
          clip_gradients(p->gradients, {.norm = norm, .max_norm = 0.5});
          return {p->gradients[1]};
        });
}

}  // namespace bs::bench
