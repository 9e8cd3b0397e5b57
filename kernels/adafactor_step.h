#pragma once
/** @file Adafactor's arithmetic, written once for both devices. */
#include <bs/kernels/adafactor.h>
#include <bs/lib/host_device.h>

#include <cmath>
#include <limits>

namespace bs {

/** @brief A parameter as matrices [rows, columns], each with a variance of its rows and one of its
 *  columns. What has less than two axes is one row, whose columns' variance is its own. */
struct Factored {
  int64_t matrices = 1, rows = 1, columns = 1;
  bool has_rows = false;  ///< that have a variance

  Factored() = default;
  explicit Factored(const Shape& shape) : columns(shape.product()) {
    const int rank = shape.rank();
    if (rank < 2) return;
    has_rows = true;
    rows = shape[rank - 2];
    columns = shape[rank - 1];
    matrices = shape.product() / (rows * columns);
  }
  static const Tensor& column_variance(const AdafactorParameter& p) {
    return p.value.rank() < 2 ? p.variance : p.column_variance;
  }
};

/** @brief The constants of one step, reduced in double to what each element needs. Comparisons let
 *  NaN through. */
template <class W>
struct AdafactorStep {
  W keep, mix, kept, share;
  double rho, eps2, d;
  W eps1;

  AdafactorStep(int64_t step, const AdafactorOptions& o)
      : eps2(o.eps2),
        d(o.d),
        eps1(static_cast<W>(o.eps1.value_or(std::numeric_limits<W>::epsilon()))) {
    set(adafactor_numbers(step, o).data());
  }
  /** @brief Takes other adafactor_numbers; none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    keep = static_cast<W>(numbers[0]);
    mix = static_cast<W>(numbers[1]);
    kept = static_cast<W>(numbers[2]);
    share = static_cast<W>(numbers[3]);
    rho = numbers[4];
  }

  /** @brief A variance after the mean square of this step. */
  BS_HOST_DEVICE W moved(W variance, W square) const { return kept * variance + share * square; }
  /** @brief What a row's variance multiplies those of columns by, of the mean over all rows. */
  BS_HOST_DEVICE W row_scale(W row, W mean) const { return row / (mean < eps1 ? eps1 : mean); }
  /** @brief The direction u of the gradient g, of a variance v. */
  BS_HOST_DEVICE W direction(W g, W v) const {
    const W least = eps1 * eps1;
    return g / std::sqrt(v < least ? least : v);
  }
  /** @brief What u is multiplied by, of the sums of squares of w and of u over n elements. */
  BS_HOST_DEVICE W length(double w_squares, double u_squares, int64_t n) const {
    const double w = std::sqrt(w_squares / static_cast<double>(n));
    const double u = std::sqrt(u_squares / static_cast<double>(n)) / d;
    return static_cast<W>((w < eps2 ? eps2 : w) * rho / (u < 1 ? 1 : u));
  }
  BS_HOST_DEVICE W stepped(W w, W u, W length) const { return keep * w + mix * (length * u); }
};

}  // namespace bs
