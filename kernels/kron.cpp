#include <bs/kernels/kron.h>

#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>

#include <algorithm>
#include <string>

namespace bs {

namespace {

/// The operands as the backends see them.
struct Operands {
  int64_t groups = 1, rows = 0;
  std::vector<Tensor> factors;  ///< slowest first, [groups, P, Q]
  std::vector<KronAxis> axes;   ///< slowest first
  int64_t in = 1, out = 1;      ///< elements of a row
};

std::string shapes_of(const std::vector<Tensor>& tensors) {
  std::string all;
  for (const Tensor& t : tensors) all += (all.empty() ? "" : " ") + to_string(t.shape());
  return all;
}

void check_factors(const char* op, const Tensor& x, const std::vector<Tensor>& factors) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(!factors.empty(), "{}: no factors", op);
  const int rank = factors.front().rank();
  for (const Tensor& f : factors) {
    check_same_device(op, x, f);
    check_same_dtype(op, x, f);
    BS_CHECK((rank == 2 || rank == 3) && f.rank() == rank,
             "{}: factors {}; all [P, Q], or all [groups, P, Q], are expected", op,
             shapes_of(factors));
    BS_CHECK(f.size(-1) > 0 && f.size(-2) > 0, "{}: an empty factor among {}", op,
             shapes_of(factors));
    BS_CHECK(rank == 2 || f.size(0) == factors.front().size(0),
             "{}: factors {} have different numbers of groups", op, shapes_of(factors));
  }
}

Operands operands_of(const char* op, const Tensor& x, const std::vector<Tensor>& factors,
                     const KronOptions& options) {
  check_factors(op, x, factors);
  const bool grouped = factors.front().rank() == 3;
  Operands o;
  for (const Tensor& f : factors) {
    const Tensor matrix = options.transposed ? f.transpose(-2, -1) : f;
    o.factors.push_back(grouped ? matrix : matrix.unsqueeze(0));
  }
  if (options.order == KronOrder::first_fastest) std::ranges::reverse(o.factors);
  for (const Tensor& f : o.factors) {
    o.axes.push_back({f.size(1), f.size(2)});
    BS_CHECK(!__builtin_mul_overflow(o.in, f.size(1), &o.in) &&
                 !__builtin_mul_overflow(o.out, f.size(2), &o.out),
             "{}: factors {} have rows of more elements than 64 bits count", op,
             shapes_of(factors));
  }
  o.groups = o.factors.front().size(0);
  BS_CHECK(x.rank() >= 1 && x.size(-1) == o.in,
           "{}: x {} for factors {}{}, whose rows have {} elements", op, x.shape(),
           shapes_of(factors), options.transposed ? " transposed" : "", o.in);
  BS_CHECK(!grouped || (x.rank() >= 2 && x.size(0) == o.groups),
           "{}: x {} for factors {} of {} groups", op, x.shape(), shapes_of(factors), o.groups);
  o.rows = x.numel() == 0 ? 0 : x.numel() / o.in / o.groups;
  return o;
}

Shape result_shape(const Tensor& x, const Operands& o) {
  Shape shape = x.shape();
  shape[-1] = o.out;
  return shape;
}

/// One pass of a plan: its axes [first, last), and the extents around them.
struct Pass {
  size_t first, last;
  Shape x, y;  ///< [groups, outer, P or Q, inner]
};

std::vector<Pass> passes_of(const Operands& o, const Tensor& like, bool backward) {
  KronPlan plan;
  BS_DISPATCH(like.device(), kron_plan, o.axes, like.dtype(), backward, plan);
  std::vector<Pass> passes;
  int64_t inner = 1;
  size_t last = o.axes.size();
  for (const int count : plan.passes) {
    const size_t first = last - static_cast<size_t>(count);
    int64_t outer = o.rows, p = 1, q = 1;
    for (size_t i = 0; i < first; ++i) outer *= o.axes[i].p;
    for (size_t i = first; i < last; ++i) p *= o.axes[i].p, q *= o.axes[i].q;
    passes.push_back({first, last, {o.groups, outer, p, inner}, {o.groups, outer, q, inner}});
    inner *= q;
    last = first;
  }
  return passes;
}

std::vector<Tensor> factors_of(const Operands& o, const Pass& pass) {
  return {o.factors.begin() + static_cast<std::ptrdiff_t>(pass.first),
          o.factors.begin() + static_cast<std::ptrdiff_t>(pass.last)};
}

/// One factor after the other, the last axis first; `times` as often.
Work work_of(const Operands& o, const Pass& pass, int times) {
  Work work;
  auto elements = static_cast<double>(pass.x.product());
  for (size_t i = pass.last; i-- > pass.first;) {
    work.flops += 2 * times * elements * static_cast<double>(o.axes[i].q);
    elements *= static_cast<double>(o.axes[i].q) / static_cast<double>(o.axes[i].p);
  }
  return work;
}

/// The results of the first `count` passes, without bias and activation.
std::vector<Tensor> prefixes_of(const Tensor& x, const Operands& o, const std::vector<Pass>& passes,
                                size_t count) {
  std::vector<Tensor> prefixes;
  Tensor h = x;
  for (size_t i = 0; i < count; ++i) {
    const Tensor y = Tensor::empty(passes[i].y, x.dtype(), x.device());
    BS_DISPATCH_WORK(x.device(), work_of(o, passes[i], 1), kron_pass, h.view(passes[i].x),
                     factors_of(o, passes[i]), Tensor(), Activation::none, Tensor(), y);
    prefixes.push_back(y);
    h = y;
  }
  return prefixes;
}

/// Whether the derivative is had from the argument; else it is had from the result.
bool wants_before(Activation f) {
  return f == Activation::silu || f == Activation::gelu || f == Activation::gelu_tanh;
}

KronResult run(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
               const KronOptions& options, bool kept) {
  const Operands o = operands_of("kron_matmul", x, factors, options);
  if (bias.defined()) {
    check_same_device("kron_matmul", x, bias);
    check_same_dtype("kron_matmul", x, bias);
    BS_CHECK(bias.shape() == Shape{o.out}, "kron_matmul: bias {} for rows of {} results",
             bias.shape(), o.out);
  }
  const bool keeps = kept && options.keep_prefixes;
  KronResult result;
  result.y = Tensor::empty(result_shape(x, o), x.dtype(), x.device());
  if (kept && wants_before(options.activation)) result.before = Tensor::empty_like(result.y);
  if (o.rows == 0) return result;
  const std::vector<Pass> passes = passes_of(o, x, keeps);
  const Pass& last = passes.back();
  const Tensor dense = contiguous(x);
  std::vector<Tensor> prefixes = prefixes_of(dense, o, passes, passes.size() - 1);
  const Tensor h = (prefixes.empty() ? dense : prefixes.back()).view(last.x);
  const Tensor row = bias.defined() ? contiguous(bias).view({last.y[2], last.y[3]}) : Tensor();
  const Tensor before = result.before.defined() ? result.before.view(last.y) : Tensor();
  BS_DISPATCH_WORK(x.device(), work_of(o, last, 1), kron_pass, h, factors_of(o, last), row,
                   options.activation, before, result.y.view(last.y));
  if (keeps) result.prefixes = std::move(prefixes);
  return result;
}

/// Gradients of x and of the factors that `dfactors`, slowest first, has places for.
Tensor backward_passes(const Tensor& x, const Operands& o, const KronResult& result,
                       const Tensor& dy, bool wants_x, const std::vector<Tensor>& dfactors) {
  const std::vector<Pass> passes = passes_of(o, x, true);
  const auto wanted = [&](const Pass& pass) {
    return std::any_of(dfactors.begin() + static_cast<std::ptrdiff_t>(pass.first),
                       dfactors.begin() + static_cast<std::ptrdiff_t>(pass.last),
                       [](const Tensor& t) { return t.defined(); });
  };
  size_t needed = passes.size();  // prefixes behind the last pass with a gradient serve nobody
  while (needed > 0 && !wanted(passes[needed - 1])) --needed;
  const Tensor dense = contiguous(x);
  const std::vector<Tensor> prefixes =
      !result.prefixes.empty() ? result.prefixes
                               : prefixes_of(dense, o, passes, std::max<size_t>(needed, 1) - 1);
  size_t first = 0;  // and gradients before the first one
  while (!wants_x && first < passes.size() && !wanted(passes[first])) ++first;
  Tensor g = contiguous(dy);
  for (size_t i = passes.size(); i-- > first;) {
    const Pass& pass = passes[i];
    const Tensor h = !wanted(pass) ? Tensor() : (i == 0 ? dense : prefixes[i - 1]).view(pass.x);
    const Tensor dx =
        i > first || wants_x ? Tensor::empty(pass.x, x.dtype(), x.device()) : Tensor();
    const std::vector<Tensor> gradients(dfactors.begin() + static_cast<std::ptrdiff_t>(pass.first),
                                        dfactors.begin() + static_cast<std::ptrdiff_t>(pass.last));
    BS_DISPATCH_WORK(x.device(), work_of(o, pass, (dx.defined() ? 1 : 0) + (h.defined() ? 1 : 0)),
                     kron_pass_backward, h, factors_of(o, pass), g.view(pass.y), dx, gradients);
    g = dx;
  }
  return wants_x ? g.view(x.shape()) : Tensor();
}

}  // namespace

Tensor kron_matmul(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
                   const KronOptions& options) {
  return run(x, factors, bias, options, false).y;
}

KronResult kron_matmul_kept(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
                            const KronOptions& options) {
  return run(x, factors, bias, options, true);
}

KronGrads kron_matmul_backward(const Tensor& x, const std::vector<Tensor>& factors,
                               const KronResult& result, const Tensor& dy,
                               const KronOptions& options, const KronWants& wants) {
  constexpr const char* op = "kron_matmul_backward";
  const Operands o = operands_of(op, x, factors, options);
  check_same_device(op, x, dy);
  check_same_dtype(op, x, dy);
  BS_CHECK(dy.shape() == result_shape(x, o), "{}: dy {} for x {} and factors {}", op, dy.shape(),
           x.shape(), shapes_of(factors));
  BS_CHECK(wants.factors.empty() || wants.factors.size() == factors.size(),
           "{}: {} gradients are asked for of {} factors", op, wants.factors.size(),
           factors.size());
  const Tensor e =
      o.rows == 0 ? dy : activation_backward(options.activation, result.before, result.y, dy);
  const size_t count = factors.size();
  std::vector<Tensor> dfactors(count);  // slowest first
  KronGrads grads;
  grads.factors.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (!wants.factors.empty() && !wants.factors[i]) continue;
    const size_t at = options.order == KronOrder::first_fastest ? count - 1 - i : i;
    const Shape shape = {o.groups, o.axes[at].p, o.axes[at].q};
    dfactors[at] = o.rows == 0 ? zeros(shape, x.dtype(), x.device())
                               : Tensor::empty(shape, x.dtype(), x.device());
    const Tensor d = factors[i].rank() == 3 ? dfactors[at] : dfactors[at].select(0, 0);
    grads.factors[i] = options.transposed ? d.transpose(-2, -1) : d;
  }
  if (o.rows > 0) {
    grads.x = backward_passes(x, o, result, e, wants.x, dfactors);
  } else if (wants.x) {
    grads.x = Tensor::empty(x.shape(), x.dtype(), x.device());
  }
  if (wants.bias) grads.bias = sum(reshape(e, {o.groups * o.rows, o.out}), Dims{0});
  return grads;
}

namespace {

/// dy [m p, n q] as [m n, p q]: a row for each block. @throws Error for another shape
Tensor rows_of_blocks(const char* op, const Shape& a, const Shape& b, const Tensor& dy) {
  BS_CHECK(a.rank() == 2 && b.rank() == 2, "{}: {} and {} are not two matrices", op, a, b);
  const Shape result = {Shape{a[0], b[0]}.product(), Shape{a[1], b[1]}.product()};
  BS_CHECK(dy.shape() == result, "{}: dy {} for matrices {} and {}", op, dy.shape(), a, b);
  const Tensor blocks = contiguous(dy).view({a[0], b[0], a[1], b[1]}).permute({0, 2, 1, 3});
  return contiguous(blocks).view({a[0] * a[1], b[0] * b[1]});
}

Tensor column_of(const Tensor& matrix) { return contiguous(matrix).view({matrix.numel(), 1}); }

}  // namespace

Tensor kron(const Tensor& a, const Tensor& b) {
  check_same_device("kron", a, b);
  check_same_dtype("kron", a, b);
  BS_CHECK(a.rank() == 2 && b.rank() == 2, "kron: {} and {} are not two matrices", a.shape(),
           b.shape());
  const int64_t m = a.size(0), n = a.size(1), p = b.size(0), q = b.size(1);
  return mul(a.unsqueeze(1).unsqueeze(3), b.unsqueeze(0).unsqueeze(2)).view({m * p, n * q});
}

Tensor kron_backward_a(const Shape& a_shape, const Tensor& b, const Tensor& dy) {
  const Tensor blocks = rows_of_blocks("kron_backward_a", a_shape, b.shape(), dy);
  return matmul(blocks, column_of(b)).view(a_shape);
}

Tensor kron_backward_b(const Tensor& a, const Shape& b_shape, const Tensor& dy) {
  const Tensor blocks = rows_of_blocks("kron_backward_b", a.shape(), b_shape, dy);
  return matmul(blocks.transpose(0, 1), column_of(a)).view(b_shape);
}

}  // namespace bs
