#pragma once
/** @file Sequences of several lengths, laid out as one for the kernels on wgmma. */
#include <bs/lib/cuda/made_on.h>
#include <bs/lib/layout.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief Sequences as one whose layout has each of theirs on its diagonal, cut to its length. They
 *  begin at multiples of 128 rows and columns. Distances are as they were, so what a query sees
 *  by them is the same. */
struct RaggedLayout {
  LayoutPtr layout;
  Tensor places;  ///< i32 [rows / 128, 2] of device::AttentionPlace
  Tensor begins;  ///< i32 [rows / 128], the first row of the sequence there
  Tensor seen;    ///< u8 [columns], 1 for those that are keys
  MadeOn made;

  device::AttentionPlaces on_device() const {
    return {static_cast<const device::AttentionPlace*>(places.data()),
            static_cast<int>(layout->height())};
  }
};

/** @brief Rows of the layout of ragged sequences, or of a head of it: each is as long as `starts`
 *  has it, and takes whole multiples of 128. */
int64_t ragged_rows(const std::vector<int64_t>& starts);

/** @brief Made by the device, for use on `stream`; those of the last few `starts` are kept with the
 *  layout, and a graph that is recorded makes its own.
 *  @param[in] layout on the host, of blocks of 16 to 128
 *  @param[in] starts of queries and of keys, as SparseAttentionOptions has them; not empty */
Kept<RaggedLayout> ragged_layout(const Layout& layout, const std::vector<int64_t>& starts,
                                 Stream stream);

}  // namespace bs::cuda
