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

/** @brief The shape with tiles of `rows` rows and `chunk` columns. */
inline device::KronShape kron_shape(std::span<const KronAxis> axes, int size, int rows, int chunk,
                                    int threads) {
  device::KronShape s{.size = size,
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

/** @brief The tile for a pass, or none where not even the smallest fits. As many rows as make a
 * tile that keeps the threads of a CTA busy, in no more memory than lets two CTAs share an SM. */
inline std::optional<device::KronShape> kron_shape_of(std::span<const KronAxis> axes, int64_t inner,
                                                      int size, bool backward, int limit) {
  constexpr int64_t most = int64_t{1} << 18;
  constexpr int threads = 256;
  if (axes.empty() || axes.size() > device::KronShape::most) return {};
  int64_t p = 1, q = 1, widest = 1;
  for (const KronAxis& a : axes) {
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
  const int line = 128 / size;  // elements that make a whole line of memory
  constexpr int64_t wanted = 8192;
  std::optional<device::KronShape> best;
  if (widest * inner <= wanted || inner == 1) {
    for (int64_t rows = 1; rows == 1 || rows * widest * inner <= wanted; rows *= 2) {
      const auto s = kron_shape(axes, size, static_cast<int>(rows), static_cast<int>(inner),
                                widest * inner > wanted ? 2 * threads : threads);
      if (kron_fits(s, backward, rows == 1 || backward ? limit : limit / 2)) best = s;
    }
    if (best || inner == 1) return best;
  }
  for (int64_t chunk = std::min<int64_t>(inner, line); chunk <= inner; chunk *= 2) {
    const auto s = kron_shape(axes, size, 1, static_cast<int>(chunk), threads);
    if (!kron_fits(s, backward, best && !backward ? limit / 2 : limit) ||
        (best && chunk * widest > wanted))
      break;
    best = s;
  }
  return best;
}

/** @brief How many axes, counted from the fastest, make the next pass: as many as fit one tile. 1
 *  where even one does not: it is the library's. */
inline int kron_pass_length(std::span<const KronAxis> axes, int64_t inner, int size, bool backward,
                            int limit) {
  for (size_t n = std::min<size_t>(axes.size(), device::KronShape::most); n > 1; --n)
    if (kron_shape_of(axes.last(n), inner, size, backward, limit)) return static_cast<int>(n);
  return 1;
}

}  // namespace bs::cuda
