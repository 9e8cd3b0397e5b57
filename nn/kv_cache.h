#pragma once
/** @file Keys and values of what a model has read, for making one token after the other. */
#include <bs/lib/tensor.h>

namespace bs::nn {

struct KVCacheOptions {
  int64_t batch = 1;
  int64_t heads = 1;     ///< of keys and values
  int64_t capacity = 0;  ///< tokens
  int64_t head_dim = 0;
  int64_t value_dim = 0;  ///< 0: head_dim
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Keys and values of one layer, side by side in memory that is made once. */
class KVCache {
 public:
  using Options = KVCacheOptions;
  /** @throws Error unless the extents are positive. */
  explicit KVCache(const Options& options);
  /** @brief Takes the next tokens' keys and values [batch, heads, tokens, head_dim].
   *  @throws Error when they do not fit, or there is no room. */
  void append(const Tensor& keys, const Tensor& values);
  /** @brief All that was taken: views [batch, heads, length, head_dim]. */
  Tensor keys() const { return keys_.slice(2, 0, length_); }
  Tensor values() const { return values_.slice(2, 0, length_); }
  int64_t length() const { return length_; }
  int64_t capacity() const { return keys_.size(2); }
  /** @brief Forgets all but the first `length` tokens. */
  void truncate(int64_t length);

 private:
  Tensor keys_, values_;
  int64_t length_ = 0;
};

}  // namespace bs::nn
