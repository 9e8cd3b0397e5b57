#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cuda {

namespace {

double elements_of(const Layout& layout) {
  return static_cast<double>(layout.height()) * static_cast<double>(layout.width());
}

bool is_single(const Layout& layout, Factors factors, int64_t products) {
  return factors != Factors::f64 && layout.heads() == 1 && products == 1;
}

/// Whether there is one product, and it is large.
bool applies(const Layout& layout, Factors factors, int64_t free, int64_t products, const Gpu& gpu,
             double least = least_work) {
  return is_single(layout, factors, products) &&
         elements_of(layout) * static_cast<double>(free) >= least && gpu.capability == 90;
}

/// Whether a product may take so much memory besides.
bool fits(double bytes, const Gpu& gpu) {
  return bytes <= static_cast<double>(std::min(gpu.memory_bytes / 16, gpu.free_bytes / 4));
}

/// Whether there is room for a dense matrix, and for the copies that its product takes of its
/// `factored` elements: f32 as sums of two numbers of TF32.
bool has_room(const Layout& layout, Factors factors, double factored, const Gpu& gpu) {
  return fits(
      elements_of(layout) * bytes_of(factors) + (factors == Factors::split ? 8 * factored : 0),
      gpu);
}

double dense_time(const Layout& layout, Factors factors, int64_t free, const Gpu& gpu) {
  const double rates[] = {gpu.half_rate(), gpu.tf32_rate(), gpu.split_rate()};
  return elements_of(layout) * static_cast<double>(free) / rates[static_cast<int>(factors)];
}

/// Whether dsd has room for its dense matrix and B.
bool has_room(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  const int64_t depth = x.transposed ? layout.height() : layout.width();
  const auto other = static_cast<double>(depth) * static_cast<double>(x.n);
  return has_room(layout, x.factors, elements_of(layout) + other, gpu);
}
/// Whether sdd has room for all of its product.
bool has_room(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  const double sides = static_cast<double>(layout.height() + layout.width());
  return has_room(layout, x.factors, sides * static_cast<double>(x.k), gpu);
}

/// A dense product of which `passed` elements are written and read besides.
/// @param[in] across whether neither operand has the depth along its lines
double time_of(const Layout& layout, Factors factors, int64_t free, double passed, bool across,
               const Gpu& gpu) {
  const double more = across && factors == Factors::tf32 ? more_across : 0;
  return (1 + more) * dense_time(layout, factors, free, gpu) +
         copy_time(passed * bytes_of(factors) / 2, gpu);
}

}  // namespace

DsdShape without_large_copies(const Layout& layout, DsdShape x, const Gpu& gpu) {
  const int64_t depth = x.transposed ? layout.height() : layout.width();
  const double lines = static_cast<double>(x.batch * x.terms) * static_cast<double>(depth);
  x.turnable = x.turnable && fits(lines * static_cast<double>(x.n) * bytes_of(x.factors), gpu);
  return x;
}

SddShape without_large_copies(SddShape x, const Gpu& gpu) {
  for (int64_t* const elements : {&x.a_turnable, &x.b_turnable})
    if (!fits(static_cast<double>(*elements) * bytes_of(x.factors), gpu)) *elements = 0;
  return x;
}

double dense_dsd_time(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  if (!applies(layout, x.factors, x.n, x.batch * x.terms, gpu) ||
      (x.epilogue && !x.dense_epilogue) || !has_room(layout, x, gpu))
    return never;
  const double written = elements_of(layout) * (1 + layout.density());
  return time_of(layout, x.factors, x.n, written, x.transposed && !x.b_along_k, gpu) +
         (x.epilogue ? finishing : 0) * dense_time(layout, x.factors, x.n, gpu);
}

std::pair<Path, double> dense_sdd_time(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  const bool stores = x.factors == Factors::half && layout.block() >= 16 && x.dense_blocks;
  if (x.epilogue || !applies(layout, x.factors, x.k, x.batch * x.terms, gpu,
                             stores ? least_blocks_work : least_work))
    return {Path::tiled, never};
  if (stores) {
    const int64_t tiles = ceil_div(layout.height(), 128) * ceil_div(layout.width(), 256);
    const int64_t rounds = ceil_div(tiles, gpu.multiprocessors) * gpu.multiprocessors;
    return {Path::blocks, dense_time(layout, x.factors, x.k, gpu) * static_cast<double>(rounds) /
                              static_cast<double>(tiles)};
  }
  if (!has_room(layout, x, gpu)) return {Path::tiled, never};
  const double picked = 2 * elements_of(layout) * layout.density();
  return {Path::dense, time_of(layout, x.factors, x.k, picked, !x.a_along_k && !x.b_along_k, gpu)};
}

bool dense_dsd_possible(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  return !x.epilogue && is_single(layout, x.factors, x.batch * x.terms) && has_room(layout, x, gpu);
}

Path dense_sdd_possible(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  if (x.epilogue || !is_single(layout, x.factors, x.batch * x.terms)) return Path::tiled;
  const bool by_blocks = x.factors == Factors::half && layout.block() >= 16 && x.dense_blocks;
  if (by_blocks && gpu.capability == 90) return Path::blocks;
  return has_room(layout, x, gpu) ? Path::dense : Path::tiled;
}

}  // namespace bs::cuda
