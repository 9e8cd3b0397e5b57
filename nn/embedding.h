#pragma once
/** @file A table of vectors, one a class. */
#include <bs/nn/module.h>

namespace bs::nn {

struct EmbeddingOptions {
  int64_t rows = 0;  ///< classes
  int64_t width = 0;
  int64_t padding_index = -1;  ///< a row that starts as zeros and never learns; -1 for none
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Looks up rows of a table; see kernels/embedding.h. Starts normally distributed. */
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  /** @throws Error unless both extents are positive and the padding row is inside. */
  explicit Embedding(const Options& options);
  /** @param[in] indices [...], i64 or i32
   *  @return [..., width] */
  Variable forward(const Tensor& indices) const;

  Variable weight;  ///< [rows, width]

 private:
  int64_t padding_index_;
};

}  // namespace bs::nn
