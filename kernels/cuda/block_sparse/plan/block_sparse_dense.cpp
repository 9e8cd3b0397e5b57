#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_groups.h>

#include <algorithm>

namespace bs::cuda {

namespace {

/// Below this many multiplications neither way fills the GPU, and what is known of the two is of
/// large products.
constexpr double least_work = 1e10;

/// What a dense product with an epilogue takes longer than cuBLAS' without.
constexpr double finishing = 0.25;

double elements_of(const Layout& layout) {
  return static_cast<double>(layout.height()) * static_cast<double>(layout.width());
}

bool is_single(const Layout& layout, Factors factors, int64_t products) {
  return factors != Factors::f64 && layout.heads() == 1 && products == 1;
}

/// Whether there is one product, for which the densities are known where both ways meet.
bool applies(const Layout& layout, Factors factors, int64_t free, int64_t products,
             const Gpu& gpu) {
  return is_single(layout, factors, products) &&
         elements_of(layout) * static_cast<double>(free) >= least_work && gpu.capability == 90;
}

/// Whether there is room for a dense matrix, and for the copies that its product takes of its
/// `factored` elements: f32 as sums of two numbers of TF32.
bool has_room(const Layout& layout, Factors factors, double factored, const Gpu& gpu) {
  const double bytes =
      elements_of(layout) * bytes_of(factors) + (factors == Factors::split ? 8 * factored : 0);
  return bytes <= static_cast<double>(std::min(gpu.memory_bytes / 16, gpu.free_bytes / 4));
}

double dense_time(const Layout& layout, Factors factors, int64_t free, const Gpu& gpu) {
  const double rates[] = {gpu.half_rate(), gpu.tf32_rate(), gpu.split_rate()};
  return elements_of(layout) * static_cast<double>(free) / rates[static_cast<int>(factors)];
}

/// What cuBLAS takes longer for TF32 where neither operand has the depth along its lines.
double more_across(Factors factors, bool a_along_k, bool b_along_k) {
  return factors == Factors::tf32 && !a_along_k && !b_along_k ? 0.6 : 0;
}

/// To read and write so many elements together.
double passing_time(double elements, Factors factors, const Gpu& gpu) {
  return copy_time(elements * bytes_of(factors) / 2, gpu);
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

/// Whether `faster(density)` holds, which it does from some density of random blocks on: for that
/// of the layout, and for that which it has to strips of 128 rows, where kernels have such.
template <class Faster>
bool holds(const Layout& layout, bool transposed, bool strips, const Faster& faster) {
  const int rows = WarpgroupTile::dsd_rows(layout.block());
  return faster(layout.density()) &&
         (!strips || rows == 1 || faster(random_density(*row_groups_of(layout, transposed, rows))));
}

bool blocks_pay(const Layout& layout, const Gpu& gpu) {
  return holds(layout, false, true, [&](double density) {
    return dense_sdd_is_faster(layout.block(), density, layout.height(), layout.width(),
                               gpu.multiprocessors);
  });
}

bool picking_pays(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  const double picking = passing_time(2 * elements_of(layout) * layout.density(), x.factors, gpu);
  const double turning =
      layout.block() == 8 && x.b_turnable > 0
          ? copy_time(static_cast<double>(x.b_turnable * bytes_of(x.factors)), gpu)
          : 0;
  const double more = (picking - turning) / dense_time(layout, x.factors, x.k, gpu) +
                      more_across(x.factors, x.a_along_k, x.b_along_k);
  return holds(layout, false, layout.block() >= 16, [&](double density) {
    return sdd_crossing(x.factors, layout.block()).ratio(density) > 1 + more;
  });
}

}  // namespace

bool dense_dsd_pays(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  if (!applies(layout, x.factors, x.n, x.batch * x.terms, gpu) || (x.epilogue && !x.dense_epilogue))
    return false;
  if (!has_room(layout, x, gpu)) return false;
  const int64_t depth = x.transposed ? layout.height() : layout.width();
  const auto other = static_cast<double>(depth) * static_cast<double>(x.n);
  // What is copied first counts: S, written out, or by the sparse kernels B.
  const int block = layout.block();
  const bool gathers = x.factors == Factors::half && block >= 16;
  const double dense = dense_time(layout, x.factors, x.n, gpu);
  const double writing = passing_time(elements_of(layout) * (1 + layout.density()), x.factors, gpu);
  const bool copied = block == 8 || (gathers && block == 16);
  const double turning = copied && x.turnable ? copy_time(other * bytes_of(x.factors), gpu) : 0;
  const double more = (writing - turning) / dense + (x.epilogue ? finishing : 0) +
                      more_across(x.factors, !x.transposed, x.b_along_k);
  return holds(layout, x.transposed, gathers, [&](double density) {
    return dsd_crossing(x.factors, block).ratio(density) > 1 + more;
  });
}

Path dense_sdd_path(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  if (x.epilogue || !applies(layout, x.factors, x.k, x.batch * x.terms, gpu)) return Path::tiled;
  const bool by_blocks = x.factors == Factors::half && layout.block() >= 16;
  if (!(by_blocks ? blocks_pay(layout, gpu) : picking_pays(layout, x, gpu))) return Path::tiled;
  if (by_blocks && x.dense_blocks) return Path::blocks;
  return has_room(layout, x, gpu) ? Path::dense : Path::tiled;
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
