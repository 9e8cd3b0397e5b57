#include <bs/kernels/ctc_loss.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/saved.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <vector>

namespace bs {

namespace {

bool is_index(const Tensor& t) { return t.dtype() == i64 || t.dtype() == i32; }

CtcLossOptions checked(const char* op, const Tensor& x, const Tensor& input_lengths,
                       const Tensor& target_lengths, CtcLossOptions options) {
  BS_CHECK(x.rank() == 3, "{}: input {}, expected [frames, batch, classes]", op, x.shape());
  BS_CHECK(is_floating(x.dtype()), "{}: input of dtype {}", op, x.dtype());
  const int64_t classes = x.size(2);
  BS_CHECK(options.blank >= -classes && options.blank < classes,
           "{}: blank {} is outside of {} classes", op, options.blank, classes);
  if (options.blank < 0) options.blank += classes;
  for (const Tensor* lengths : {&input_lengths, &target_lengths}) {
    BS_CHECK(lengths->rank() == 1 && lengths->size(0) == x.size(1), "{}: lengths {} for input {}",
             op, lengths->shape(), x.shape());
    BS_CHECK(is_index(*lengths), "{}: lengths of dtype {}, expected i64 or i32", op,
             lengths->dtype());
    check_same_device(op, *lengths, x);
  }
  return options;
}

/// Concatenated targets one below the other, on the host.
Tensor padded(const char* op, const Tensor& targets, const Tensor& target_lengths) {
  check_unrecorded(op, target_lengths.device(),
                   "reads lengths of concatenated targets on the host");
  const Tensor lengths = cast(target_lengths, f64).to(Device::cpu());
  std::vector<int64_t> each;
  int64_t sum = 0;
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    const double length = lengths.select(0, b).item();
    BS_CHECK(length >= 0 && length <= static_cast<double>(targets.size(0)),
             "{}: target_lengths[{}] is {}, outside of [0, {}]", op, b, length, targets.size(0));
    each.push_back(static_cast<int64_t>(length));
    sum += each.back();
  }
  BS_CHECK(sum == targets.size(0), "{}: {} concatenated targets, but lengths that add up to {}", op,
           targets.size(0), sum);
  const int64_t most = each.empty() ? 0 : *std::max_element(each.begin(), each.end());
  Tensor out = zeros({lengths.size(0), most}, targets.dtype(), targets.device());
  int64_t at = 0;
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    const int64_t n = each[static_cast<size_t>(b)];
    copy(targets.slice(0, at, at + n), out.select(0, b).slice(0, 0, n));
    at += n;
  }
  return out;
}

/// The kernels trust tables and sums to have the sizes of the forward.
void check_result(const char* op, const Tensor& x, const CtcLossResult& r,
                  const CtcLossOptions& options) {
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  const int64_t words = dtype == f64 ? 2 : 1, frames = x.size(0), batch = x.size(1);
  const Shape losses = options.reduction == Reduction::none ? Shape{batch} : Shape{};
  BS_CHECK(r.targets.defined() && r.targets.rank() == 2 && is_index(r.targets), "{}: targets {}",
           op, r.targets.shape());
  const int64_t states = 2 * r.targets.size(1) + 1;
  const auto fits = [&](const Tensor& t, const Shape& shape, DType type) {
    return is_saved(t, shape, type, x.device());
  };
  BS_CHECK(fits(r.targets, {batch, r.targets.size(1)}, r.targets.dtype()) &&
               fits(r.lattice, {2, batch, frames, states, words}, i64) &&
               fits(r.totals, {batch, words}, i64) && fits(r.loss, losses, dtype) &&
               (options.logits ? fits(r.lse, {frames, batch}, dtype) : !r.lse.defined()),
           "{}: the result given is not that of this input", op);
}

}  // namespace

CtcLossResult ctc_loss(const Tensor& x, const Tensor& targets, const Tensor& input_lengths,
                       const Tensor& target_lengths, const CtcLossOptions& options) {
  const char* op = "ctc_loss";
  const CtcLossOptions given = checked(op, x, input_lengths, target_lengths, options);
  BS_CHECK(targets.rank() == 1 || (targets.rank() == 2 && targets.size(0) == x.size(1)),
           "{}: targets {} for input {}", op, targets.shape(), x.shape());
  BS_CHECK(is_index(targets), "{}: targets of dtype {}, expected i64 or i32", op, targets.dtype());
  check_same_device(op, targets, x);
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  const int64_t words = dtype == f64 ? 2 : 1;
  const int64_t frames = x.size(0);
  const int64_t batch = x.size(1);
  CtcLossResult result;
  result.targets = targets.rank() == 1 ? padded(op, targets, target_lengths) : contiguous(targets);
  const int64_t labels = result.targets.size(1);
  const int64_t most = BS_ASK(x.device(), most_labels, x.device(), dtype);
  BS_CHECK(labels <= most, "{}: {} labels, on this GPU at most {} in {}", op, labels, most, dtype);
  const Tensor losses = Tensor::empty({batch}, dtype, x.device());
  result.loss = given.reduction == Reduction::none ? losses : Tensor::empty({}, dtype, x.device());
  if (given.logits) result.lse = Tensor::empty({frames, batch}, dtype, x.device());
  result.lattice = Tensor::empty({2, batch, frames, 2 * labels + 1, words}, i64, x.device());
  result.totals = Tensor::empty({batch, words}, i64, x.device());
  BS_DISPATCH(x.device(), ctc_loss, contiguous(x), contiguous(input_lengths),
              contiguous(target_lengths), result, losses, given);
  return result;
}

Tensor ctc_loss_backward(const Tensor& x, const Tensor& input_lengths, const Tensor& target_lengths,
                         const CtcLossResult& result, const Tensor& dloss,
                         const CtcLossOptions& options) {
  const char* op = "ctc_loss_backward";
  const CtcLossOptions given = checked(op, x, input_lengths, target_lengths, options);
  check_result(op, x, result, given);
  check_alike(op, result.loss, dloss);
  Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), ctc_loss_backward, contiguous(x), contiguous(input_lengths),
                contiguous(target_lengths), result, contiguous(dloss), dx, given);
  return dx;
}

}  // namespace bs
