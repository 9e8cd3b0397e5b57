#include <bs/autograd/recorded.h>

#include <bs/autograd/copy.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>

namespace bs {

Variable record_product(const char* name, const Variable& a, const Variable& b, Tensor c,
                        const ProductForm& form, GradientOrder order) {
  const bool wants_a = a.requires_grad(), wants_b = b.requires_grad();
  const SavedTensor kept_a = saved_factor(a, b), kept_b = saved_factor(b, a);
  return tape().record(name, {a, b}, std::move(c),
                       Twice{[=](const Tensor& dc) {
                               return Grads{wants_a ? form.a(dc, kept_b) : Tensor(),
                                            wants_b ? form.b(kept_a, dc) : Tensor()};
                             },
                             [=](const Recorded& r) {
                               return product_gradients(name, r, r.dy(), kept_a, kept_b, form,
                                                        order);
                             }},
                       order);
}

// The gradient for a is a product of dc and b. Its own gradient for dc is the product of that of a
// and b, and for b the gradient for b. Likewise that for b.
VariableGrads product_gradients(const char* name, const Recorded& r, const Variable& dc,
                                const Tensor& a, const Tensor& b, const ProductForm& form,
                                GradientOrder order) {
  VariableGrads gradients(r.inputs());
  const auto turned = [](const ProductForm::Side& side) {
    return [side](const Tensor& first, const Tensor& second) { return side(second, first); };
  };
  if (r.wants(0)) {
    const Variable factor = r.input(1, b);
    gradients[0] = record_product(name, dc, factor, form.a(dc.data(), factor.data()),
                                  {.c = form.a, .a = form.c, .b = turned(form.b)}, order);
  }
  if (r.wants(1)) {
    const Variable factor = r.input(0, a);
    gradients[1] = record_product(name, factor, dc, form.b(factor.data(), dc.data()),
                                  {.c = form.b, .a = turned(form.a), .b = form.c}, order);
  }
  return gradients;
}

Variable joined(const Variable& y, const Variable& x) {
  const auto part = [shape = x.shape(), dtype = x.dtype()](const auto& dy) {
    return cast(sum_to(dy, shape), dtype);
  };
  return tape().record("add", {y, x}, y.data(),
                       Twice{[part](const Tensor& dy) {
                               return Grads{dy, part(dy)};
                             },
                             [part](const Recorded& r) {
                               return VariableGrads{r.dy(), part(r.dy())};
                             }});
}

VariableGrads by_definition(
    const Recorded& r,
    const std::function<std::vector<Variable>(std::span<const Variable> inputs)>& function) {
  VariableGrads inputs, wanted, outputs, dys;
  for (size_t i = 0; i < r.inputs(); ++i) {
    inputs.push_back(r.input_if_saved(i));
    if (r.wants(i)) wanted.push_back(inputs.back());
  }
  const uint64_t since = Tape::last_number();
  const std::vector<Variable> all = function(inputs);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!r.dys()[i].defined() || !all[i].requires_grad()) continue;
    outputs.push_back(all[i]);
    dys.push_back(r.dy(i));
  }
  const VariableGrads found = tape().recorded_gradients(outputs, wanted, dys, since);
  VariableGrads gradients(inputs.size());
  for (size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (r.wants(i)) gradients[i] = found[next++];
  return gradients;
}

VariableGrads by_definition(
    const Recorded& r, const std::function<Variable(std::span<const Variable> inputs)>& function) {
  return by_definition(
      r, [&](std::span<const Variable> inputs) { return std::vector<Variable>{function(inputs)}; });
}

}  // namespace bs
