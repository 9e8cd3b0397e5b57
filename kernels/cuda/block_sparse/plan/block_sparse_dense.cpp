#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cuda {

namespace {

double elements_of(const Layout& layout) {
  return static_cast<double>(layout.height()) * static_cast<double>(layout.width());
}
/// Elements of B.
double operand_of(const Layout& layout, const DsdShape& x) {
  return static_cast<double>(x.transposed ? layout.height() : layout.width()) *
         static_cast<double>(x.n);
}

bool is_single(const Layout& layout, Factors factors, int64_t products) {
  return factors != Factors::f64 && layout.heads() == 1 && products == 1;
}
/// Whether times are known, and both ways fill the GPU.
bool is_large(const Layout& layout, int64_t free, const Gpu& gpu) {
  return gpu.capability == 90 && elements_of(layout) * static_cast<double>(free) >= least_work;
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
bool has_room(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  return has_room(layout, x.factors, elements_of(layout) + operand_of(layout, x), gpu);
}

/// @param[in] across whether neither operand has the depth along its lines
double dense_time(const Layout& layout, Factors factors, int64_t free, bool across,
                  const Gpu& gpu) {
  const double rates[] = {gpu.half_rate(), gpu.tf32_rate(), gpu.split_rate()};
  const double more = across && factors == Factors::tf32 ? more_across : 0;
  return (1 + more) * elements_of(layout) * static_cast<double>(free) /
         rates[static_cast<int>(factors)];
}

}  // namespace

DsdShape without_large_copies(const Layout& layout, DsdShape x, const Gpu& gpu) {
  const double copied = static_cast<double>(x.batch * x.terms) * operand_of(layout, x);
  x.turnable = x.turnable && fits(copied * bytes_of(x.factors), gpu);
  return x;
}

SddShape without_large_copies(SddShape x, const Gpu& gpu) {
  for (int64_t* const elements : {&x.a_turnable, &x.b_turnable})
    if (!fits(static_cast<double>(*elements) * bytes_of(x.factors), gpu)) *elements = 0;
  return x;
}

double dense_dsd_time(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  if (!is_large(layout, x.n, gpu) || !is_single(layout, x.factors, x.batch * x.terms) ||
      (x.epilogue && !x.dense_epilogue) || !has_room(layout, x, gpu))
    return never;
  // Blocks are read, the dense matrix is written, and B is searched for what is not finite; an
  // epilogue takes as long as a pass over C.
  const double rows = static_cast<double>(x.transposed ? layout.width() : layout.height());
  const double passed = elements_of(layout) * (1 + layout.density()) +
                        (layout.density() < 1 ? operand_of(layout, x) : 0) +
                        (x.epilogue ? 2 * rows * static_cast<double>(x.n) : 0);
  return dense_time(layout, x.factors, x.n, x.transposed && !x.b_along_k, gpu) +
         copy_time(passed * bytes_of(x.factors) / 2, gpu);
}

Path dense_sdd_possible(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  if (x.epilogue || !is_single(layout, x.factors, x.batch * x.terms)) return Path::tiled;
  if (x.factors == Factors::half && layout.block() >= 16 && x.dense_blocks && gpu.capability == 90)
    return Path::blocks;
  const double sides = static_cast<double>(layout.height() + layout.width());
  const bool room = has_room(layout, x.factors, sides * static_cast<double>(x.k), gpu);
  return room ? Path::dense : Path::tiled;
}

std::pair<Path, double> dense_sdd_time(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  const Path path = dense_sdd_possible(layout, x, gpu);
  if (path == Path::tiled || !is_large(layout, x.k, gpu)) return {Path::tiled, never};
  const bool across = path == Path::dense && !x.a_along_k && !x.b_along_k;
  const double time = dense_time(layout, x.factors, x.k, across, gpu);
  const int64_t tiles = ceil_div(layout.height(), 128) * ceil_div(layout.width(), 256);
  const int64_t rounds = ceil_div(tiles, gpu.multiprocessors) * gpu.multiprocessors;
  if (path == Path::blocks)
    return {path, time * static_cast<double>(rounds) / static_cast<double>(tiles)};
  return {path,
          time + copy_time(elements_of(layout) * layout.density() * bytes_of(x.factors), gpu)};
}

bool dense_dsd_possible(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  return !x.epilogue && is_single(layout, x.factors, x.batch * x.terms) && has_room(layout, x, gpu);
}

}  // namespace bs::cuda
