#include <bs/nn/kv_cache.h>

#include <bs/kernels/copy.h>

namespace bs::nn {

KVCache::KVCache(const Options& o) {
  BS_CHECK(o.batch > 0 && o.heads > 0 && o.capacity > 0 && o.head_dim > 0 && o.value_dim >= 0,
           "kv_cache: batch {}, {} heads, capacity {}, head_dim {}, value_dim {}", o.batch, o.heads,
           o.capacity, o.head_dim, o.value_dim);
  const int64_t value_dim = o.value_dim > 0 ? o.value_dim : o.head_dim;
  keys_ = Tensor::empty({o.batch, o.heads, o.capacity, o.head_dim}, o.dtype, o.device);
  values_ = Tensor::empty({o.batch, o.heads, o.capacity, value_dim}, o.dtype, o.device);
}

void KVCache::append(const Tensor& keys, const Tensor& values) {
  const int64_t end = length_ + (keys.rank() == 4 ? keys.size(2) : 0);
  for (const auto& [from, to] : {std::pair(keys, keys_), std::pair(values, values_)}) {
    const Shape wanted{to.size(0), to.size(1), end - length_, to.size(3)};
    BS_CHECK(from.shape() == wanted && from.dtype() == to.dtype() && from.device() == to.device(),
             "kv_cache: {} {} on {} does not fit a cache of {} {} on {}", from.dtype(),
             from.shape(), from.device(), to.dtype(), to.shape(), to.device());
  }
  BS_CHECK(end <= capacity(), "kv_cache: {} tokens for a capacity of {}", end, capacity());
  copy(keys, keys_.slice(2, length_, end));
  copy(values, values_.slice(2, length_, end));
  length_ = end;
}

void KVCache::truncate(int64_t length) {
  BS_CHECK(length >= 0 && length <= length_, "kv_cache: {} of {} tokens", length, length_);
  length_ = length;
}

}  // namespace bs::nn
