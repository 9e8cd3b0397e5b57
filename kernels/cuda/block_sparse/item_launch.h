#pragma once
/** @file The launch of a kernel that shares out items of work, alike for all block-sparse products.
 */
#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_kernel.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace bs::cuda {

/** @brief Queues `kernel` for so many items or for their pieces. `params` gets counters, pieces and
 *  partial sums, and `items` where it has such. */
template <class Kernel, class Params>
void launch_items(const Kernel& kernel, const KernelLaunch& launch, Params& params, int64_t items,
                  const DevicePieces& split, const BlockSparseEpilogue* epilogue, Stream stream) {
  static auto* const family = new jit::KernelFamily<Kernel>;
  constexpr bool takes = requires { params.next; };  // items or pieces from a counter
  if (split.count > 0) items = split.count;
  if (items == 0) return;
  BS_CHECK(items <= INT32_MAX, "block-sparse product: {} items are more than one launch can have",
           items);
  Tensor partials;
  WorkCounter counter;
  if constexpr (takes) {
    if (launch.persistent || split.count > 0) {
      static_assert(WorkCounter::most >= most_counters);
      counter = WorkCounter(stream, launch.counters + launch.arrivals * split.slots);
      params.next = counter.get();
    }
    if (split.count > 0) {
      Shape shape{split.slots};
      for (const int64_t extent : launch.sums) shape.push_back(extent);
      partials = Tensor::empty(shape, launch.sums_dtype, stream.device());
      params.split.pieces = split.pieces;
      params.split.partials = partials.data();
      params.split.arrived = counter.get() + launch.counters;
    }
  }
  if constexpr (requires { params.items; }) params.items = static_cast<int>(items);
  if (launch.persistent)
    items = std::min<int64_t>(items, device_properties(stream.device()).multiprocessors);
  const jit::Kernel& compiled = family->get(kernel, stream.device(), [&] {
    return source_of(kernel, epilogue ? &epilogue->expression : nullptr);
  });
  jit::launch(compiled,
              {.grid = dim3(static_cast<unsigned>(items)),
               .block = dim3(static_cast<unsigned>(launch.threads)),
               .shared_bytes = launch.shared_bytes},
              stream, params);
}

/// [batch, rows, columns] of a result; of sdd, its blocks one below the other.
inline Shape result_of(const DsdProblem& p) {
  return {p.batch.numel(), int64_t{p.block_rows()} * p.layout.block, p.n};
}
inline Shape result_of(const SddProblem& p) {
  return {p.batch.numel(), int64_t{p.layout.nnz} * p.layout.block, p.layout.block};
}

/** @brief Queues the kernel of a product, with what its epilogue reads and what that reduces.
 *  `params` gets all that launch_items gives it, and its epilogue.
 *  @param[in] items where none are cut */
template <class Kernel, class Params, class Problem>
void launch_product(const Kernel& kernel, Params& params, int64_t items, const DevicePieces& split,
                    const Problem& p, Stream stream) {
  const KernelLaunch launch = launch_of(kernel);
  Shape result = result_of(p);
  if (launch.turned) std::swap(result[1], result[2]);
  const EpilogueLaunch epilogue(p.epilogue, launch.turned != kernel.c_by_columns, result,
                                launch.reduced_rows, launch.reduced_columns, stream);
  params.epilogue = epilogue.arguments();
  launch_items(kernel, launch, params, items, split, p.epilogue, stream);
  if constexpr (std::is_same_v<Problem, SddProblem>) {
    epilogue.reduce(p.layout);
  } else {
    epilogue.reduce();
  }
}

}  // namespace bs::cuda
