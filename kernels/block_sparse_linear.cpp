#include <bs/kernels/block_sparse_linear.h>

#include <bs/kernels/activation_epilogue.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>

#include <tuple>

namespace bs {

namespace {

using epilogue::Value;

constexpr Activation activations[] = {Activation::none,     Activation::relu, Activation::tanh,
                                      Activation::sigmoid,  Activation::silu, Activation::gelu,
                                      Activation::gelu_tanh};

/// Whether the derivative is had from the argument; else it is had from the result.
bool wants_before(Activation f) {
  return f == Activation::silu || f == Activation::gelu || f == Activation::gelu_tanh;
}

using Form = std::tuple<Activation, Element, bool, bool>;  // with a bias, keeping the argument

/// Made once: a call looks its epilogue up.
const GemmEpilogue& epilogue_of(const Form& form) {
  static const auto* const all = [] {
    auto* const made = new std::map<Form, GemmEpilogue>;
    for (const Activation f : activations)
      for (const Element e : {Element::f64, Element::f32, Element::f16, Element::bf16})
        for (const bool biased : {false, true})
          for (const bool keeps : {false, true}) {
            const Value sum = epilogue::accumulator();
            const Value t = biased ? sum + epilogue::row("bias", e) : sum;
            GemmEpilogue one(epilogue::activated(f, t));
            if (keeps) one.store("before", t, e);
            made->emplace(Form{f, e, biased, keeps}, std::move(one));
          }
    return made;
  }();
  return all->at(form);
}

void check_operands(const char* op, const Tensor& x, const SparseTensor& weight) {
  check_sparse(op, weight);
  check_same_device(op, x, weight.values);
  check_same_dtype(op, x, weight.values);
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  const Layout& layout = *weight.layout;
  BS_CHECK(layout.heads() == 1 && weight.values.rank() == 3,
           "{}: a weight of {} heads and values {}; it is one matrix", op, layout.heads(),
           weight.values.shape());
  BS_CHECK(x.rank() >= 1 && x.size(-1) == layout.width(), "{}: x {} for a weight [{}, {}]", op,
           x.shape(), layout.height(), layout.width());
}

Tensor rows_of(const Tensor& x) {
  return reshape(x, {x.shape().slice(0, x.rank() - 1).product(), x.size(-1)});
}

Shape result_shape(const Tensor& x, const SparseTensor& weight) {
  Shape shape = x.shape();
  shape[-1] = weight.layout->height();
  return shape;
}

}  // namespace

BlockSparseLinearResult block_sparse_linear(const Tensor& x, const SparseTensor& weight,
                                            const Tensor& bias, Activation activation, bool keep) {
  check_operands("block_sparse_linear", x, weight);
  const Layout& layout = *weight.layout;
  if (bias.defined()) {
    check_same_device("block_sparse_linear", x, bias);
    check_same_dtype("block_sparse_linear", x, bias);
    BS_CHECK(bias.shape() == Shape{layout.height()},
             "block_sparse_linear: bias {} for a weight [{}, {}]", bias.shape(), layout.height(),
             layout.width());
  }
  const Tensor rows = rows_of(x);
  ProductOptions options;
  const bool keeps = keep && wants_before(activation);
  BlockSparseLinearResult result;
  if (bias.defined() || activation != Activation::none)
    options.epilogue = epilogue_of({activation, element_of(x.dtype()), bias.defined(), keeps});
  if (bias.defined()) options.tensors.emplace("bias", bias);
  if (keeps) {
    const Tensor before = Tensor::empty({rows.size(0), layout.height()}, x.dtype(), x.device());
    options.tensors.emplace("before", before);
    result.before = before.view(result_shape(x, weight));
  }
  result.y = dds(rows, weight, {.b = true}, options).view(result_shape(x, weight));
  return result;
}

LinearGrads block_sparse_linear_backward(const Tensor& x, const SparseTensor& weight,
                                         const BlockSparseLinearResult& result, const Tensor& dy,
                                         Activation activation, LinearWants wants) {
  check_operands("block_sparse_linear_backward", x, weight);
  BS_CHECK(dy.shape() == result_shape(x, weight),
           "block_sparse_linear_backward: dy {} for x {} and a weight [{}, {}]", dy.shape(),
           x.shape(), weight.layout->height(), weight.layout->width());
  const Tensor rows = rows_of(x),
               e = rows_of(activation_backward(activation, result.before, result.y, dy));
  LinearGrads grads;
  if (wants.x) grads.x = dds_backward_a(e, weight, rows.shape(), {.b = true}).view(x.shape());
  if (wants.weight)
    grads.weight = dds_backward_s(rows, e, weight.layout, weight.values.shape(), {.b = true});
  if (wants.bias) grads.bias = sum(e, Dims{0});
  return grads;
}

}  // namespace bs
