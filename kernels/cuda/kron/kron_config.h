#pragma once
/** @file How a pass of kron_matmul is cut into tiles: pure functions of its extents. */
#include <bs/kernels/kron.h>
#include <bs/kernels/cuda/device/kron/kron_shape.cuh>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace bs::cuda {

/** @brief Registers of a thread that sums of factor gradients may take. */
inline constexpr int kron_most_sums = 96;

/** @brief What a tile takes of shared memory. */
inline int kron_bytes(const device::KronShape& s, bool backward) {
  return backward ? s.backward_bytes() : s.forward_bytes();
}

/** @brief What numbers are multiplied: their size, and KronShape::products. */
struct KronNumbers {
  int size = 4;
  int products = 0;
};

/** @brief f32 is as exact as plain arithmetic unless TF32 is allowed. Which factors are wide enough
 *  for tensor cores, KronStep::tensor says. */
inline KronNumbers kron_numbers(DType dtype, bool tf32) {
  return {static_cast<int>(size_of(dtype)), dtype != f32 ? 0 : tf32 ? 1 : 3};
}

/** @brief The shape with tiles of `rows` rows and `chunk` columns. */
inline device::KronShape kron_shape(std::span<const KronAxis> axes, KronNumbers numbers, int rows,
                                    int chunk, int threads) {
  device::KronShape s{.size = numbers.size,
                      .products = numbers.products,
                      .rows = rows,
                      .chunk = chunk,
                      .threads = threads,
                      .count = static_cast<int>(axes.size()),
                      .p = {},
                      .q = {}};
  for (size_t i = 0; i < axes.size(); ++i) {
    s.p[i] = static_cast<int>(axes[i].p);
    s.q[i] = static_cast<int>(axes[i].q);
  }
  return s;
}

/** @brief Whether a tile fits a CTA with `limit` bytes of shared memory. */
inline bool kron_fits(const device::KronShape& s, bool backward, int limit) {
  return kron_bytes(s, backward) <= limit && (!backward || s.sums() <= kron_most_sums);
}

/** @brief Whether dense products of all rows multiply an axis that is a pass of its own, and
 * whether backward makes it one: the sums of a wide gradient in f32 or f64 leave an SM one CTA. On
 * an H200 the backward of 256 x 128^2 took 327 us in one pass and takes 178, that of 512 x 96^2 305
 * and 223; that of 64^2 would gain with 1024 rows and lose with 256. */
inline bool kron_wide(const KronAxis& axis, int size) {
  constexpr int64_t wide = 96;
  return size >= 4 && axis.p >= wide && axis.q >= wide;
}

/** @brief The tile for a pass with these products, or none where not even the smallest fits. As
 *  many rows as make a tile that keeps the threads of a CTA busy, in no more memory than lets two
 *  CTAs share an SM. */
inline std::optional<device::KronShape> kron_tiles_of(std::span<const KronAxis> axes, int64_t inner,
                                                      KronNumbers numbers, bool backward,
                                                      int limit) {
  const int size = numbers.size;
  constexpr int64_t most = int64_t{1} << 18;
  constexpr int threads = 256;
  if (axes.empty() || axes.size() > device::KronShape::most) return {};
  int64_t p = 1, q = 1, widest = 1;
  for (const KronAxis& a : axes) {
    if (backward && kron_wide(a, size)) return {};
    if (a.p > most || a.q > most || p > most || q > most) return {};
    p *= a.p;
    q *= a.q;
  }
  int64_t before = p, after = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    before /= axes[i].p;
    after *= axes[i].q;
    widest = std::max({widest, before * axes[i].p * after / axes[i].q, before * after});
  }
  if (widest * size > limit) return {};
  // So little that two CTAs share an SM, where the smallest tile allows that.
  const auto fits = [&](const device::KronShape& s, bool smallest) {
    return kron_fits(s, backward, backward || smallest ? limit : limit / 2);
  };
  const int line = 128 / size;  // elements that make a whole line of memory
  constexpr int64_t wanted = 8192;
  const auto one = kron_shape(axes, numbers, 16, 1, threads);
  bool tensor = true;  // tensor cores do with fewer threads
  for (int i = 0; i < one.count; ++i) tensor = tensor && one.step(i).tensor();
  if (widest * inner <= wanted || inner == 1) {
    const int many = widest * inner > wanted && !tensor ? 2 * threads : threads;
    const auto shape = [&](int64_t rows) {
      return kron_shape(axes, numbers, static_cast<int>(rows), static_cast<int>(inner), many);
    };
    const bool shared = fits(shape(1), false);
    if (fits(shape(1), true)) {
      int64_t rows = 1;
      while (2 * rows * widest * inner <= wanted && fits(shape(2 * rows), !shared)) rows *= 2;
      return shape(rows);
    }
    if (inner == 1) return {};
  }
  const auto shape = [&](int64_t chunk) {
    return kron_shape(axes, numbers, 1, static_cast<int>(chunk), threads);
  };
  int64_t chunk = std::min<int64_t>(inner, line);
  if (!fits(shape(chunk), true)) return {};
  const bool shared = fits(shape(chunk), false);
  while (2 * chunk <= inner && 2 * chunk * widest <= wanted && fits(shape(2 * chunk), !shared))
    chunk *= 2;
  return shape(chunk);
}

/** @brief The tile for a pass: with products on tensor cores where these serve a factor and fit,
 *  else in plain arithmetic; none where that does not fit either. */
inline std::optional<device::KronShape> kron_shape_of(std::span<const KronAxis> axes, int64_t inner,
                                                      KronNumbers numbers, bool backward,
                                                      int limit) {
  if (numbers.products > 0)
    if (const auto s = kron_tiles_of(axes, inner, numbers, backward, limit))
      for (int i = 0; i < s->count; ++i)
        if (s->step(i).on_tensor_cores()) return s;
  return kron_tiles_of(axes, inner, {numbers.size}, backward, limit);
}

/** @brief How many axes, counted from the fastest, make the next pass: as many as fit one tile. 1
 *  where even one does not: it is the library's. The same whether TF32 is allowed or not, so that
 *  backward finds the prefixes that a forward kept. */
inline int kron_pass_length(std::span<const KronAxis> axes, int64_t inner, int size, bool backward,
                            int limit) {
  for (size_t n = std::min<size_t>(axes.size(), device::KronShape::most); n > 1; --n)
    if (kron_tiles_of(axes.last(n), inner, {size}, backward, limit)) return static_cast<int>(n);
  return 1;
}

}  // namespace bs::cuda
