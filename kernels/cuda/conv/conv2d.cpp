#include <bs/kernels/activation_epilogue.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/conv/conv2d_direct.h>
#include <bs/kernels/cuda/conv/conv2d_warpgroup.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/matmul.h>

#include <map>
#include <tuple>

namespace bs::cuda {

namespace {

/// [n][h][w][c] of an image or of filters [k][r][s][c]: itself where it lies so, else a copy.
Tensor packed(const Tensor& t) { return contiguous(t.permute({0, 2, 3, 1})); }

/// A result of the kernels, channels-last: `to` itself where it lies so; else it is copied behind.
class Result {
 public:
  explicit Result(const Tensor& to) : to_(to.permute({0, 2, 3, 1})) {
    in_place_ = to_.is_contiguous();
    packed_ = in_place_ ? to_ : Tensor::empty(to_.shape(), to.dtype(), to.device());
  }
  const Tensor& packed() const { return packed_; }
  void finish(Stream stream) const {
    if (!in_place_) copy(packed_, to_, stream);
  }

 private:
  Tensor to_, packed_;
  bool in_place_;
};

using Form = std::tuple<Activation, Element, bool, bool>;  // with a bias, with a residual

/// Made once: a call looks its epilogue up.
const GemmEpilogue& epilogue_of(const Conv2dEpilogue& e, Element element) {
  thread_local std::map<Form, GemmEpilogue> made;
  const bool biased = e.bias.defined(), added = e.residual.defined();
  const Form form{e.activation, element, biased, added};
  const auto found = made.find(form);
  if (found != made.end()) return found->second;
  epilogue::Value sum = epilogue::accumulator();
  if (biased) sum = sum + epilogue::row("bias", element);
  if (added) sum = sum + epilogue::tensor("residual", element);
  return made.emplace(form, GemmEpilogue(epilogue::activated(e.activation, sum))).first->second;
}

/// Its operands for a packed result, as matrices of a row a pixel.
std::vector<Tensor> operands_of(const Conv2dEpilogue& e, const Tensor& result) {
  const int64_t columns = result.size(3), rows = result.numel() / columns;
  std::vector<Tensor> all;
  if (e.bias.defined()) all.push_back(e.bias.as_strided({1, rows, columns}, {0, 0, 1}));
  if (e.residual.defined()) all.push_back(packed(e.residual).view({1, rows, columns}));
  return all;
}

Tensor as_matrix(const Tensor& t) { return t.view({t.numel() / t.size(-1), t.size(-1)}); }

Conv2dPlan plan_of(const Conv2dProblem& d, Conv2dKind kind, const Tensor& result,
                   const Conv2dEpilogue& e = {}) {
  const bool plain = !e.residual.defined() && e.activation == Activation::none;
  return plan_conv2d(d, kind, result.dtype(), plain, gpu_of(result.device()));
}

}  // namespace

void conv2d(const Conv2dProblem& d, const Tensor& x, const Tensor& weight, const Conv2dEpilogue& e,
            const Tensor& y, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::fprop, y, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct(d, x, weight, e, y, stream);
  const Tensor image = packed(x), filters = packed(weight);
  const Result result(y);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(image), as_matrix(filters), e.bias, as_matrix(result.packed()), stream);
  } else {
    conv2d_warpgroup(d, plan,
                     {.image = image,
                      .filters = filters,
                      .pixels = result.packed(),
                      .epilogue = epilogue_of(e, element_of(y.dtype())),
                      .operands = operands_of(e, result.packed())},
                     stream);
  }
  result.finish(stream);
}

void conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                       const Conv2dEpilogue& e, const Tensor& dx, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::dgrad, dx, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct_x(d, dy, weight, e, dx, stream);
  const Tensor pixels = packed(dy), filters = packed(weight);
  const Result result(dx);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(pixels), as_matrix(filters).transpose(0, 1), e.bias,
           as_matrix(result.packed()), stream);
  } else {
    conv2d_warpgroup(d, plan,
                     {.image = result.packed(),
                      .filters = filters,
                      .pixels = pixels,
                      .epilogue = epilogue_of(e, element_of(dx.dtype())),
                      .operands = operands_of(e, result.packed())},
                     stream);
  }
  result.finish(stream);
}

void conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::wgrad, dweight);
  if (plan.path == Conv2dPath::direct) return conv2d_direct_w(d, x, dy, dweight, stream);
  const Tensor image = packed(x), pixels = packed(dy);
  const Result result(dweight);
  if (plan.path == Conv2dPath::matmul) {
    matmul(as_matrix(pixels).transpose(0, 1), as_matrix(image), as_matrix(result.packed()), stream);
  } else {
    conv2d_warpgroup(d, plan, {.image = image, .filters = result.packed(), .pixels = pixels},
                     stream);
  }
  result.finish(stream);
}

}  // namespace bs::cuda
