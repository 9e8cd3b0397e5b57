#pragma once
/** @file Keys and values of what a model has read, for making one token after the other. */
#include <bs/kernels/paged_attention.h>

#include <memory>
#include <vector>

namespace bs::nn {

struct KVCacheOptions {
  int64_t batch = 1;
  int64_t heads = 1;     ///< of keys and values
  int64_t capacity = 0;  ///< tokens, at most
  int64_t head_dim = 0;
  int64_t value_dim = 0;  ///< 0: head_dim
  /** Tokens of a page. Pages are made as tokens come, and forks share them. 0: none; memory for the
   *  capacity is made at once. */
  int64_t page = 0;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Keys and values of one layer. Forks of a cache with pages belong to one thread at a time,
 *  together. */
class KVCache {
 public:
  using Options = KVCacheOptions;
  /** @throws Error unless the extents are positive. */
  explicit KVCache(const Options& options);
  KVCache(KVCache&&) = default;
  KVCache& operator=(KVCache&&) = default;
  KVCache(const KVCache&) = delete;  ///< fork() says what is shared
  KVCache& operator=(const KVCache&) = delete;
  ~KVCache() = default;

  /** @brief Takes the next tokens' keys and values [batch, heads, tokens, head_dim].
   *  @throws Error when they do not fit, or there is no room. Then, and where memory runs out, the
   *  cache is as it was. */
  void append(const Tensor& keys, const Tensor& values);
  /** @brief All that was taken, [batch, heads, length, head_dim]. Views of memory, unless pages lie
   *  apart, which they do behind a fork: then copies, a read and a write of them all. */
  Tensor keys() const;
  Tensor values() const;
  /** @brief Whether keys() and values() are views. */
  bool in_place() const;
  /** @brief The pages, for paged_attention(). @throws Error without pages. */
  PagedKeys pages() const;
  int64_t length() const { return length_; }
  int64_t capacity() const { return options_.capacity; }
  /** @brief Forgets all but the first `length` tokens. Pages without tokens are free again. */
  void truncate(int64_t length);
  /** @brief Forgets the first `count` tokens, so that there is room behind the others, whose places
   *  stay. Without pages the others are moved; with pages, `count` is that of some pages, which are
   *  free again. @throws Error for more tokens than there are, or a part of a page. */
  void drop(int64_t count);
  /** @brief Tokens that drop() has forgotten: the place of the first one kept. */
  int64_t dropped() const { return dropped_; }
  /** @brief A cache that has read the same and goes on by itself. It shares all pages, and takes
   *  its own copy of the last one with the next token. Without pages all is copied. */
  KVCache fork() const;
  /** @brief Pages in use, of this cache and all its forks together; 0 without pages. */
  int64_t pages_in_use() const;

 private:
  class Pages;
  struct Page;
  struct Source {
    Tensor keys, values;
  };
  void append_pages(const Source& tokens, int64_t end);
  void drop_pages_behind();  ///< the last token
  Tensor in_order(const Tensor& pages, int64_t width) const;

  Options options_;
  int64_t length_ = 0, dropped_ = 0;
  Source memory_;  ///< [batch, heads, capacity, head_dim], without pages
  std::shared_ptr<Pages> pages_;
  std::vector<std::shared_ptr<const Page>> table_;  ///< the pages in the order of tokens
};

/** @brief Attention of q to all that a cache holds, which reads pages in place where it can. */
Tensor cached_attention(const Tensor& q, const KVCache& cache, const LayoutPtr& layout,
                        const SparseAttentionOptions& options);

}  // namespace bs::nn
