#include <bs/kernels/reduce.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/kernels/unary.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs {

namespace {

/// A reduction as backends do it: the middle axis of x [outer, n, inner].
struct Plan {
  Tensor x;
  Shape shape;  ///< of the result
  int64_t n = 0;

  Shape reduced() const { return {x.size(0), x.size(2)}; }
};

/// Which axes of `rank` are named.
std::array<bool, Dims::max_rank> marks(const char* op, const Axes& axes, int rank) {
  std::array<bool, Dims::max_rank> marked{};
  if (!axes) marked.fill(true);
  for (int64_t named : axes.value_or(Dims())) {
    bool& mark = marked[static_cast<size_t>(normalize_axis(op, static_cast<int>(named), rank))];
    BS_CHECK(!mark, "{}: axis {} is named twice in {}", op, named, *axes);
    mark = true;
  }
  return marked;
}

/// The shape with the reduced axes left out, or kept with extent 1.
Shape reduced_shape(const char* op, const Shape& shape, const Axes& axes, bool keepdim) {
  const auto reduced = marks(op, axes, shape.rank());
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!reduced[static_cast<size_t>(i)]) out.push_back(shape[i]);
    if (reduced[static_cast<size_t>(i)] && keepdim) out.push_back(1);
  }
  return out;
}

/// Elements that each result is made of.
double each_of(const char* op, const Tensor& x, const Axes& axes) {
  const int64_t results = reduced_shape(op, x.shape(), axes, true).product();
  const int64_t each = results == 0 ? 1 : x.numel() / results;
  return static_cast<double>(each);
}

Plan plan(const char* op, const Tensor& x, const Axes& axes, bool keepdim) {
  const auto reduced = marks(op, axes, x.rank());
  Plan p;
  p.shape = reduced_shape(op, x.shape(), axes, keepdim);
  // Axes of extent 1 separate nothing. One run of reduced axes can be reduced in place; several are
  // brought to the end first.
  Dims order;
  int64_t extent[3] = {1, 1, 1};  // before, within and after the first run of reduced axes
  int at = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) == 1) continue;
    const bool inside = reduced[static_cast<size_t>(i)];
    if (inside != (at == 1)) ++at;
    if (at > 2) break;
    extent[at] *= x.size(i);
  }
  if (at <= 2) {
    p.n = extent[1];
    p.x = contiguous(x).view({extent[0], extent[1], extent[2]});
    return p;
  }
  p.n = 1;
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 0; i < x.rank(); ++i) {
      if (reduced[static_cast<size_t>(i)] != (pass == 1)) continue;
      order.push_back(i);
      if (pass == 1) p.n *= x.size(i);
    }
  p.x = contiguous(x.permute(order)).view({p.shape.product(), p.n, 1});
  return p;
}

/// The dtype that sums of `dtype` are kept in.
DType sum_dtype(DType dtype) {
  if (!is_floating(dtype)) return i64;
  return dtype == f64 ? f64 : f32;
}

/// x as backends take it: i32 as i64. Bytes stay as they are, for eight times as many are no copy
/// to make.
Tensor operand(const Tensor& x) { return x.dtype() == i32 ? cast(x, i64) : x; }

Tensor scaled_sum(const Plan& p, double scale, DType dtype) {
  Tensor y = Tensor::empty(p.reduced(), dtype, p.x.device());
  const bool is_copy = p.n == 1 && scale == 1;
  if (p.n == 0) fill(y, 0);
  if (is_copy) copy(p.x.view(p.reduced()), y);
  if (p.n > 0 && !is_copy && y.numel() > 0) BS_DISPATCH(y.device(), sum, p.x, y, scale);
  return y;
}

/// The last run of neighbouring axes among those to be reduced, where there are several; else
/// nothing.
Axes last_of_several_runs(const char* op, const Tensor& x, const Axes& axes) {
  const auto reduced = marks(op, axes, x.rank());
  Dims last;
  bool before = false, gap = false;  // whether kept axes of more than 1 lie in front of the run
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (x.size(i) == 1) continue;
    if (!reduced[static_cast<size_t>(i)]) {
      gap = !last.empty();
    } else if (gap) {
      before = true;
    } else {
      last.push_back(i);
    }
  }
  return before && x.numel() > 0 ? Axes(last) : Axes();
}

/// The sum in `dtype`. Several runs of axes are reduced in turns, each in place, with only the last
/// result rounded.
Tensor sum_in(DType dtype, const char* op, const Tensor& x, const Axes& axes, bool keepdim,
              double scale) {
  if (const Axes last = last_of_several_runs(op, x, axes))
    return sum_in(dtype, op, sum_in(sum_dtype(x.dtype()), op, x, last, true, 1), axes, keepdim,
                  scale);
  const Plan p = plan(op, x, axes, keepdim);
  return scaled_sum(p, scale, dtype).view(p.shape);
}
void check_floating(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
}

/// What `reduced` makes of one run of axes, in `dtype`.
template <class Reduced>
Tensor of_run(const Plan& p, DType dtype, Reduced reduced) {
  const Tensor y = Tensor::empty(p.reduced(), dtype, p.x.device());
  if (y.numel() > 0) reduced(p, y);
  return y.view(p.shape);
}

/// A reduction that one of its kind completes. Several runs of axes are reduced in turns, each in
/// place: `reduced`, then `completed` of what it gave, both in the dtype of sums, or bools.
template <class Reduced, class Completed>
Tensor in_turns(const char* op, const Tensor& x, const Axes& axes, bool keepdim, Reduced reduced,
                Completed completed) {
  const Axes last = last_of_several_runs(op, x, axes);
  const Plan p = last ? plan(op, x, last, true) : plan(op, x, axes, keepdim);
  const DType dtype = p.x.dtype() == boolean ? boolean : sum_dtype(p.x.dtype());
  const Tensor y = of_run(p, dtype, reduced);
  return last ? completed(y) : y;
}
/// The same in x's dtype, which a backend rounds to where there is one run.
template <class Reduced, class Completed>
Tensor rounded_in_turns(const char* op, const Tensor& x, const Axes& axes, bool keepdim,
                        Reduced reduced, Completed completed) {
  if (!last_of_several_runs(op, x, axes))
    return of_run(plan(op, x, axes, keepdim), x.dtype(), reduced);
  return cast(in_turns(op, x, axes, keepdim, reduced, completed), x.dtype());
}

/// `scale` times the sum of squared distances from the mean, in the dtype of sums. Several runs of
/// axes are reduced in place: what each part of the last run has, and how far the parts' means are
/// apart (Chan, Golub, LeVeque, 1979).
Tensor squares_around_mean(const char* op, const Tensor& x, const Axes& axes, bool keepdim,
                           double scale) {
  const Axes last = last_of_several_runs(op, x, axes);
  const Plan run = last ? plan(op, x, last, true) : plan(op, x, axes, keepdim);
  const DType wide = sum_dtype(x.dtype());
  const Tensor means = last ? Tensor::empty(run.reduced(), wide, x.device()) : Tensor();
  Tensor within = of_run(run, wide, [&](const Plan& p, const Tensor& y) {
    BS_DISPATCH(y.device(), squared_deviation, p.x, means, y, scale);
  });
  if (!last) return within;
  return add(wide_sum(op, within, axes, keepdim, 1),
             squares_around_mean(op, means.view(run.shape), axes, keepdim,
                                 scale * static_cast<double>(run.n)));
}

/// x as [parts, results, n] where the first and the last of three runs of axes are reduced, and
/// parts are so few that one launch merges them; else undefined.
Tensor around_one_run(const char* op, const Tensor& x, const Axes& axes) {
  constexpr int64_t most_parts = 1024;
  const auto reduced = marks(op, axes, x.rank());
  int64_t extent[3] = {1, 1, 1};
  int at = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) == 1) continue;
    const bool outside = reduced[static_cast<size_t>(i)];
    if (outside != (at != 1)) ++at;
    if (at > 2) return {};
    extent[at] *= x.size(i);
  }
  if (extent[0] > most_parts) return {};
  return contiguous(x).view({extent[0], extent[1], extent[2]});
}

/// The variance, or its root.
Tensor variance(const char* op, const Tensor& x, const Axes& axes, bool keepdim, double correction,
                bool is_root) {
  check_floating(op, x);
  const double n = each_of(op, x, axes), scale = 1 / std::max(0.0, n - correction);
  if (n == 0)
    return full(reduced_shape(op, x.shape(), axes, keepdim), std::nan(""), x.dtype(), x.device());
  if (last_of_several_runs(op, x, axes)) {
    if (const Tensor parts = around_one_run(op, x, axes); parts.defined()) {
      const Tensor y = Tensor::empty({parts.size(1)}, x.dtype(), x.device());
      BS_DISPATCH(y.device(), variance_of_parts, parts, y, scale, is_root);
      return y.view(reduced_shape(op, x.shape(), axes, keepdim));
    }
    const Tensor wide = squares_around_mean(op, x, axes, keepdim, scale);
    return cast(is_root ? sqrt(wide) : wide, x.dtype());
  }
  return of_run(plan(op, x, axes, keepdim), x.dtype(), [&](const Plan& p, const Tensor& y) {
    BS_DISPATCH(y.device(), variance, p.x, y, scale, is_root);
  });
}

}  // namespace

Tensor wide_sum(const char* op, const Tensor& x, const Axes& axes, bool keepdim, double scale) {
  return sum_in(sum_dtype(x.dtype()), op, x, axes, keepdim, scale);
}

Tensor root_of_squares(const char* op, const Tensor& x, const Axes& axes, bool keepdim) {
  check_floating(op, x);
  const auto roots = [](const Plan& p, const Tensor& y) {
    if (p.n == 0) return fill(y, 0);
    BS_DISPATCH(y.device(), root_of_squares, p.x, y);
  };
  return rounded_in_turns(op, x, axes, keepdim, roots, [&](const Tensor& run) {
    return root_of_squares(op, run, axes, keepdim);
  });
}

#define BS_IN_TURNS(function, twin, of_nothing)                                           \
  Tensor function(const char* op, const Tensor& x, const Axes& axes, bool keepdim) {      \
    const auto within_run = [](const Plan& p, const Tensor& y) {                          \
      if (p.n == 0) return fill(y, of_nothing);                                           \
      BS_DISPATCH(y.device(), twin, p.x, y);                                              \
    };                                                                                    \
    return in_turns(op, x, axes, keepdim, within_run,                                     \
                    [&](const Tensor& run) { return function(op, run, axes, keepdim); }); \
  }
BS_IN_TURNS(wide_product, product, 1)
BS_IN_TURNS(any_true, any_true, 0)
BS_IN_TURNS(all_true, all_true, 1)
#undef BS_IN_TURNS

Dims reduced_axes(const char* op, const Axes& axes, int rank) {
  const auto marked = marks(op, axes, rank);
  Dims named;
  for (int i = 0; i < rank; ++i)
    if (marked[static_cast<size_t>(i)]) named.push_back(i);
  return named;
}

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : i64;
  return sum_in(dtype, "sum", operand(x), axes, keepdim, 1);
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdim) {
  check_floating("mean", x);
  const double n = each_of("mean", x, axes);
  if (n == 0)
    return full(reduced_shape("mean", x.shape(), axes, keepdim), std::nan(""), x.dtype(),
                x.device());
  return sum_in(x.dtype(), "mean", x, axes, keepdim, 1 / n);
}

Tensor var(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  return variance("var", x, axes, keepdim, correction, false);
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdim) {
  check_floating("logsumexp", x);
  const auto sums = [](const Plan& p, const Tensor& y) {
    if (p.n == 0) return fill(y, -std::numeric_limits<double>::infinity());
    BS_DISPATCH(y.device(), log_sum_exp, p.x, y);
  };
  return rounded_in_turns("logsumexp", x, axes, keepdim, sums,
                          [&](const Tensor& run) { return logsumexp(run, axes, keepdim); });
}

Tensor stddev(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  return variance("stddev", x, axes, keepdim, correction, true);
}

#define BS_EXTREMUM(function)                                                                \
  Tensor function(const Tensor& x, const Axes& axes, bool keepdim) {                         \
    if (const Axes last = last_of_several_runs(#function, x, axes))                          \
      return function(function(x, last, true), axes, keepdim);                               \
    const Plan p = plan(#function, operand(x), axes, keepdim);                               \
    const DType dtype = is_floating(x.dtype()) ? x.dtype() : i64;                            \
    const Tensor y = Tensor::empty(p.reduced(), dtype, x.device());                          \
    BS_CHECK(p.n > 0 || y.numel() == 0, "{}: nothing to choose from in shape {}", #function, \
             x.shape());                                                                     \
    if (p.n == 1) copy(p.x.view(p.reduced()), y);                                            \
    if (p.n > 1 && y.numel() > 0) BS_DISPATCH(y.device(), function, p.x, y);                 \
    return cast(y, x.dtype()).view(p.shape);                                                 \
  }
BS_EXTREMUM(amax)
BS_EXTREMUM(amin)
#undef BS_EXTREMUM

Tensor place_of_extremum(const char* op, const Tensor& x, const Axes& axes, bool keepdim,
                         bool smallest) {
  // Of several runs, the best place within the last one is looked up where the best of all is.
  if (const Axes last = last_of_several_runs(op, x, axes)) {
    const Plan within = plan(op, place_of_extremum(op, x, last, true, smallest), axes, keepdim);
    const Tensor bests = smallest ? amin(x, last, true) : amax(x, last, true);
    const Tensor of_all = place_of_extremum(op, bests, axes, keepdim, smallest);
    const Tensor best = gather(within.x, 1, of_all.view({within.x.size(0), 1, within.x.size(2)}));
    const auto each = static_cast<int64_t>(each_of(op, x, last));
    return add(mul(of_all, each), best.view(within.shape));
  }
  const Plan p = plan(op, operand(x), axes, keepdim);
  if (p.n == 1) return zeros(p.shape, i64, x.device());
  const Tensor y = Tensor::empty(p.reduced(), i64, x.device());
  BS_CHECK(p.n > 0 || y.numel() == 0, "{}: nothing to choose from in shape {}", op, x.shape());
  if (y.numel() > 0 && smallest) BS_DISPATCH(y.device(), argmin, p.x, y);
  if (y.numel() > 0 && !smallest) BS_DISPATCH(y.device(), argmax, p.x, y);
  return y.view(p.shape);
}

Tensor argmax(const Tensor& x, const Axes& axes, bool keepdim) {
  return place_of_extremum("argmax", x, axes, keepdim, false);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  Dims axes;
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t extent = i < extra ? 1 : shape[i - extra];
    BS_CHECK(extra >= 0 && (extent == x.size(i) || extent == 1),
             "sum_to: shape {} does not broadcast to {}", shape, x.shape());
    if (i < extra || extent != x.size(i)) axes.push_back(i);
  }
  return sum(x, axes, true).view(shape);
}

}  // namespace bs
