#pragma once
// Copies of boxes of tensors by the copy engine (TMA, sm_90): one thread asks, a Barrier tells when
// the bytes have come. What lies outside the tensor reads as zero and is not written.
#include <bs/kernels/cuda/device/ptx/barrier.cuh>
#include <bs/kernels/cuda/device/ptx/tensor_map.cuh>

namespace bs::cuda::device {

__device__ inline void prefetch(const TensorMapWords& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Reads the box at these coordinates, the innermost first.
__device__ inline void load_box(unsigned to, const TensorMapWords& map, Barrier& done, int c0,
                                int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(done.address()), "r"(c0), "r"(c1)
      : "memory");
}
__device__ inline void load_box(unsigned to, const TensorMapWords& map, Barrier& done, int c0,
                                int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(&map), "r"(done.address()), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Reads `bytes` bytes that lie together, in multiples of 16.
__device__ inline void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier& done) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(done.address())
      : "memory");
}

/// The same box for all `Ctas` CTAs of the cluster: to the same place in each, whose barriers in
/// the place of `done` count the bytes.
template <int Ctas>
__device__ inline void load_box_for(unsigned to, const TensorMapWords& map, Barrier& done, int c0,
                                    int c1, int c2) {
  if constexpr (Ctas == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(&map), "r"(done.address()), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
  } else {
    constexpr unsigned short all = (1 << Ctas) - 1;
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
        "l"(&map), "r"(done.address()), "r"(c0), "r"(c1), "r"(c2), "h"(all)
        : "memory");
  }
}

/// Reads one tap of as many pixels as the map says, from a base pixel of image `n` on, row by row
/// and image by image: `channels` from `c` on of the pixels `tap_h` and `tap_w` further.
__device__ inline void load_im2col(unsigned to, const TensorMapWords& map, Barrier& done, int c,
                                   int w, int h, int n, int tap_w, int tap_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
      "l"(&map), "r"(done.address()), "r"(c), "r"(w), "r"(h), "r"(n),
      "h"(static_cast<unsigned short>(tap_w)), "h"(static_cast<unsigned short>(tap_h))
      : "memory");
}

/// Writes a box from shared memory; part of the calling thread's current group of stores.
__device__ inline void store_box(const TensorMapWords& map, unsigned from, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
}
__device__ inline void store_box(const TensorMapWords& map, unsigned from, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ inline void store_box(const TensorMapWords& map, unsigned from, int c0, int c1, int c2,
                                 int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], "
      "[%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until all but the `Pending` latest groups of the calling thread's stores have read their
/// shared memory.
template <int Pending = 0>
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace bs::cuda::device
