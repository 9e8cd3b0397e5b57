#include <bs/kernels/activation_epilogue.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/conv/conv2d_direct.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>

#include <algorithm>
#include <array>
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

using Key = std::tuple<Conv2dForm, Activation, bool, bool>;  // with a bias, with a residual

/// Made once a thread: a call looks its kernel up.
const Conv2dKernel& kernel_of(const Conv2dForm& form, const Conv2dEpilogue& e) {
  thread_local std::map<Key, Conv2dKernel> made;
  const Key key{form, e.activation, e.bias.defined(), e.residual.defined()};
  const auto found = made.find(key);
  if (found != made.end()) return found->second;
  const Element element = element_of(form.dtype);
  epilogue::Value sum = epilogue::accumulator();
  if (e.bias.defined()) sum = sum + epilogue::row("bias", element);
  if (e.residual.defined()) sum = sum + epilogue::tensor("residual", element);
  const GemmEpilogue epilogue(epilogue::activated(e.activation, sum));
  return made.emplace(key, conv2d_kernel(form, epilogue)).first->second;
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

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; }

Conv2dPlan plan_of(const Conv2dProblem& d, Conv2dKind kind, const std::array<Tensor, 3>& tensors,
                   const Conv2dEpilogue& e = {}) {
  const Tensor& result = tensors.back();
  const Conv2dWish wish{.kind = kind,
                        .dtype = result.dtype(),
                        .plain = !e.residual.defined() && e.activation == Activation::none,
                        .tf32 = tf32_allowed(),
                        .aligned = std::ranges::all_of(tensors, aligned)};
  return plan_conv2d(d, wish, gpu_of(result.device()));
}

}  // namespace

void conv2d(const Conv2dProblem& d, const Tensor& x, const Tensor& weight, const Conv2dEpilogue& e,
            const Tensor& y, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::fprop, {x, weight, y}, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct(d, x, weight, e, y, stream);
  const Tensor image = packed(x), filters = packed(weight);
  const Result result(y);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(image), as_matrix(filters), e.bias, as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, kernel_of(plan.form, e), plan.slices,
                  {.image = image,
                   .filters = filters,
                   .pixels = result.packed(),
                   .operands = operands_of(e, result.packed())},
                  stream);
  }
  result.finish(stream);
}

void conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                       const Conv2dEpilogue& e, const Tensor& dx, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::dgrad, {dy, weight, dx}, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct_x(d, dy, weight, e, dx, stream);
  const Tensor pixels = packed(dy), filters = packed(weight);
  const Result result(dx);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(pixels), as_matrix(filters).transpose(0, 1), e.bias,
           as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, kernel_of(plan.form, e), plan.slices,
                  {.image = result.packed(),
                   .filters = filters,
                   .pixels = pixels,
                   .operands = operands_of(e, result.packed())},
                  stream);
  }
  result.finish(stream);
}

void conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::wgrad, {x, dy, dweight});
  if (plan.path == Conv2dPath::direct) return conv2d_direct_w(d, x, dy, dweight, stream);
  const Tensor image = packed(x), pixels = packed(dy);
  const Result result(dweight);
  if (plan.path == Conv2dPath::matmul) {
    matmul(as_matrix(pixels).transpose(0, 1), as_matrix(image), as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, kernel_of(plan.form, {}), plan.slices,
                  {.image = image, .filters = result.packed(), .pixels = pixels}, stream);
  }
  result.finish(stream);
}

}  // namespace bs::cuda
