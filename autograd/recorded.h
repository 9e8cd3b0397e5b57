#pragma once
/** @file Backwards that are recorded themselves, for derivatives of derivatives: what an operation
 *  gives besides its backward on tensors, so that differentiable_grad() can go through it. */
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

#include <functional>
#include <initializer_list>
#include <utility>

namespace bs {

/** @brief A backward on tensors and the same on variables. `again` is a function of a Recorded that
 *  gives VariableGrads, and calls differentiable operations alone. */
template <class First, class Again>
struct Twice {
  First first;
  Again second;

  auto operator()(const auto& dy) const { return first(dy); }
  VariableGrads again(const Recorded& r) const { return second(r); }
};
template <class First, class Again>
Twice(First, Again) -> Twice<First, Again>;

/** @brief Records y = A x by a map that is linear, of which `adjoint` gives the gradient; both are
 *  called with tensors and with variables.
 *  @code
 *  return record_linear("cumsum", x, cumsum(x.data(), axis),
 *                       [axis](const auto& dy) { return cumsum(dy, axis, true); });
 *  @endcode */
template <class Adjoint>
Variable record_linear(const char* name, const Variable& x, Tensor y, Adjoint adjoint,
                       GradientOrder order = GradientOrder::row_major) {
  return tape().record(
      name, {x}, std::move(y),
      Twice{[adjoint](const Tensor& dy) { return Grads{adjoint(dy)}; },
            [adjoint](const Recorded& r) { return VariableGrads{adjoint(r.dy())}; }},
      order);
}

/** @brief Records y of a function of tensors that is linear but for a constant: `map` without the
 *  constant, `adjoint` its gradient. Each is the other's gradient.
 *  @code
 *  return record_linear_pair("interpolate", x, interpolate(x.data()), map, adjoint);
 *  @endcode */
template <class Map, class Adjoint>
Variable record_linear_pair(const char* name, const Variable& x, Tensor y, Map map, Adjoint adjoint,
                            GradientOrder order = GradientOrder::row_major) {
  return tape().record(name, {x}, std::move(y),
                       Twice{[adjoint](const Tensor& dy) { return Grads{adjoint(dy)}; },
                             [=](const Recorded& r) {
                               Tensor dx = adjoint(r.dy().data());
                               return VariableGrads{record_linear_pair(name, r.dy(), std::move(dx),
                                                                       adjoint, map, order)};
                             }},
                       order);
}

/** @brief map(x), recorded: of a function of tensors that is linear and its own adjoint, such as a
 *  product with weights that depend on nothing. */
template <class Map>
Variable record_self_adjoint(const char* name, const Variable& x, Map map,
                             GradientOrder order = GradientOrder::row_major) {
  return tape().record(name, {x}, map(x.data()),
                       Twice{[map](const Tensor& dy) { return Grads{map(dy)}; },
                             [=](const Recorded& r) {
                               return VariableGrads{record_self_adjoint(name, r.dy(), map, order)};
                             }},
                       order);
}

/** @brief Records y of a function that is linear but for the places where it has a kink. Its
 *  gradient is `map` of that of y, which depends on x by steps alone, and so is that of `map`. */
template <class Map>
Variable record_chosen(const char* name, const Variable& x, Tensor y, Map map) {
  return tape().record(name, {x}, std::move(y),
                       Twice{[map](const Tensor& dy) { return Grads{map(dy)}; },
                             [name, map](const Recorded& r) {
                               return VariableGrads{record_self_adjoint(name, r.dy(), map)};
                             }});
}

/** @brief A product c = a b that is linear in each factor. It is given by its three sides: of a and
 *  b, and the gradients for a and for b. Each of these is such a product again. */
struct ProductForm {
  using Side = std::function<Tensor(const Tensor&, const Tensor&)>;
  Side c;  ///< c of a and b
  Side a;  ///< the gradient for a, of dc and b
  Side b;  ///< the gradient for b, of a and dc
};

/** @brief Records c, the product of a and b; derivatives of any order. Saves each factor whose
 *  partner wants a gradient. */
Variable record_product(const char* name, const Variable& a, const Variable& b, Tensor c,
                        const ProductForm& form, GradientOrder order = GradientOrder::row_major);
/** @brief The gradients for a and b of a product by `form` whose result has the gradient dc, each
 *  where it is wanted: recorded. */
VariableGrads product_gradients(const char* name, const Recorded& r, const Variable& dc,
                                const Tensor& a, const Tensor& b, const ProductForm& form,
                                GradientOrder order);

/** @brief The values of y, as if x had been added to them. y and x get the gradient, x the sum of
 * it over the axes that it lacks. x may have no values (Variable::has_data): a definition that adds
 *  an input which the rule has not saved adds it so. */
Variable joined(const Variable& y, const Variable& x);

/** @brief The gradients of `function`, the operation's definition in differentiable operations, for
 *  the inputs that it is a function of. They are as the tape finds them, and recorded. Takes the
 *  time of the definition. An input of which no gradient is wanted comes undefined, and gets none;
 *  one that nothing has saved comes without values, for joined(). */
VariableGrads by_definition(
    const Recorded& r, const std::function<Variable(std::span<const Variable> inputs)>& function);
/** @brief The same of an operation of several results, of which the wanted ones have a gradient. */
VariableGrads by_definition(
    const Recorded& r,
    const std::function<std::vector<Variable>(std::span<const Variable> inputs)>& function);

}  // namespace bs
