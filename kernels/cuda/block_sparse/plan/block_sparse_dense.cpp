#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dense.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cuda {

namespace {

bool is_single(const Layout& layout, Factors factors, int64_t products) {
  return factors != Factors::f64 && layout.heads() == 1 && products == 1;
}
/// Whether a product may take so much memory besides.
bool fits(double bytes, const Gpu& gpu) {
  return bytes <= static_cast<double>(std::min(gpu.memory_bytes / 16, gpu.free_bytes / 4));
}

/// A dense product C = A B.
struct Dense {
  Factors factors;
  double rows, cols, depth;
  bool across;  ///< neither operand has the depth along its lines

  double of_a() const { return rows * depth; }  ///< elements
  double of_b() const { return depth * cols; }
  double of_c() const { return rows * cols; }
  /// Whether there is room for a dense matrix of so many elements, and for the copies that the
  /// product takes of A and B: f32 as sums of two numbers of TF32.
  bool has_room(double elements, const Gpu& gpu) const {
    return fits(
        elements * bytes_of(factors) + (factors == Factors::split ? 8 * (of_a() + of_b()) : 0),
        gpu);
  }
  /// Of the multiply-adds for so many elements of C.
  double multiplying(double elements, const Gpu& gpu) const {
    const double rates[] = {gpu.half_rate(), gpu.tf32_rate(), gpu.split_rate()};
    const double more = across && factors == Factors::tf32 ? more_across : 0;
    return (1 + more) * elements * depth / rates[static_cast<int>(factors)];
  }
  /// Whether times are known, and so long that it does not matter how many launches a way has.
  bool is_weighed(const Gpu& gpu) const {
    return gpu.capability == 90 && multiplying(of_c(), gpu) >= 2 * gpu.launch;
  }
  /// By cuBLAS: as long as its matrices are read and written, or as it multiplies, where each
  /// multiprocessor takes at least the time of a tile of 128 x 128 over the whole depth.
  double time(const Gpu& gpu) const {
    return std::max(multiplying(std::max(of_c(), 128. * 128 * gpu.multiprocessors), gpu),
                    (of_a() + of_b() + of_c()) * bytes_of(factors) / gpu.copy_rate);
  }
};
Dense dense_of(const Layout& layout, const DsdShape& x) {
  const auto height = static_cast<double>(layout.height()),
             width = static_cast<double>(layout.width());
  return {.factors = x.factors,
          .rows = x.transposed ? width : height,
          .cols = static_cast<double>(x.n),
          .depth = x.transposed ? height : width,
          .across = x.transposed && !x.b_along_k};
}
Dense dense_of(const Layout& layout, const SddShape& x) {
  return {.factors = x.factors,
          .rows = static_cast<double>(layout.height()),
          .cols = static_cast<double>(layout.width()),
          .depth = static_cast<double>(x.k),
          .across = !x.a_along_k && !x.b_along_k};
}

}  // namespace

DsdShape without_large_copies(const Layout& layout, DsdShape x, const Gpu& gpu) {
  const double copied = static_cast<double>(x.batch * x.terms) * dense_of(layout, x).of_b();
  x.turnable = x.turnable && fits(copied * bytes_of(x.factors), gpu);
  return x;
}

SddShape without_large_copies(SddShape x, const Gpu& gpu) {
  for (int64_t* const elements : {&x.a_turnable, &x.b_turnable})
    if (!fits(static_cast<double>(*elements) * bytes_of(x.factors), gpu)) *elements = 0;
  return x;
}

double dense_dsd_time(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  const Dense dense = dense_of(layout, x);
  if (!is_single(layout, x.factors, x.batch * x.terms) || (x.epilogue && !x.dense_epilogue) ||
      !dense.has_room(dense.of_a(), gpu) || !dense.is_weighed(gpu))
    return never;
  // Blocks are read, the dense matrix is written, and B is searched for what is not finite; an
  // epilogue takes as long as a pass over C.
  const double passed = dense.of_a() * (1 + layout.density()) +
                        (layout.density() < 1 ? dense.of_b() : 0) +
                        (x.epilogue ? 2 * dense.of_c() : 0);
  return dense.time(gpu) + copy_time(passed * bytes_of(x.factors) / 2, gpu);
}

Path dense_sdd_possible(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  if (x.epilogue || !is_single(layout, x.factors, x.batch * x.terms)) return Path::tiled;
  if (x.factors == Factors::half && layout.block() >= 16 && x.dense_blocks && gpu.capability == 90)
    return Path::blocks;
  const Dense dense = dense_of(layout, x);
  return dense.has_room(dense.of_c(), gpu) ? Path::dense : Path::tiled;
}

std::pair<Path, double> dense_sdd_time(const Layout& layout, const SddShape& x, const Gpu& gpu) {
  const Path path = dense_sdd_possible(layout, x, gpu);
  const Dense dense = dense_of(layout, x);
  if (path == Path::tiled || !dense.is_weighed(gpu)) return {Path::tiled, never};
  if (path == Path::dense) {
    const double picked = dense.of_c() * layout.density();
    return {path, dense.time(gpu) + copy_time(picked * bytes_of(x.factors), gpu)};
  }
  const int64_t tiles = ceil_div(layout.height(), 128) * ceil_div(layout.width(), 256);
  const int64_t rounds = ceil_div(tiles, gpu.multiprocessors) * gpu.multiprocessors;
  return {path, dense.multiplying(static_cast<double>(rounds * 128 * 256), gpu)};
}

bool dense_dsd_possible(const Layout& layout, const DsdShape& x, const Gpu& gpu) {
  const Dense dense = dense_of(layout, x);
  return !x.epilogue && is_single(layout, x.factors, x.batch * x.terms) &&
         dense.has_room(dense.of_a(), gpu);
}

}  // namespace bs::cuda
