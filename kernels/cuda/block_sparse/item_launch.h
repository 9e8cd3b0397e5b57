#pragma once
/** @file The launch of a kernel that shares out items of work, alike for all block-sparse products.
 */
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/work_counter.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

/** @brief What a launch takes besides its parameters. */
struct ItemLaunch {
  int threads = 0, shared_bytes = 0;
  int64_t items = 0;  ///< where none are cut
  Shape sums = {};    ///< partial sums of a slot
  DType sums_dtype = f32;
  int counters = 2;        ///< zeros of the launch
  int arrivals = 0;        ///< and of each slot
  bool persistent = true;  ///< CTAs take one item after the other; else each has one
};

/** @brief Queues the kernel of `key`, which `emit(key, epilogue)` is the text of. `params` gets its
 *  pieces, counters and partial sums, and `items` where it has such. */
template <class Key, class Params, class Emit>
void launch_items(const Key& key, Params& params, const ItemLaunch& of, const DevicePieces& split,
                  const BlockSparseEpilogue* epilogue, Stream stream, const Emit& emit) {
  static auto* const family = new jit::KernelFamily<Key>;
  constexpr bool takes = requires { params.next; };  // items or pieces from a counter
  int64_t items = split.count > 0 ? split.count : of.items;
  if (items == 0) return;
  Tensor partials;
  WorkCounter counter;
  if constexpr (takes) {
    if (of.persistent || split.count > 0) {
      counter = WorkCounter(stream, of.counters + of.arrivals * split.slots);
      params.next = counter.get();
    }
    if (split.count > 0) {
      Shape shape{split.slots};
      for (const int64_t extent : of.sums) shape.push_back(extent);
      partials = Tensor::empty(shape, of.sums_dtype, stream.device());
      params.split.pieces = split.pieces;
      params.split.partials = partials.data();
      params.split.arrived = counter.get() + of.counters;
    }
  }
  if constexpr (requires { params.items; }) params.items = static_cast<int>(items);
  if (of.persistent)
    items = std::min<int64_t>(items, device_properties(stream.device()).multiprocessors);
  const jit::Kernel& kernel = family->get(
      key, stream.device(), [&] { return emit(key, epilogue ? &epilogue->expression : nullptr); });
  jit::launch(kernel,
              {.grid = dim3(static_cast<unsigned>(items)),
               .block = dim3(static_cast<unsigned>(of.threads)),
               .shared_bytes = of.shared_bytes},
              stream, params);
}

}  // namespace bs::cuda
