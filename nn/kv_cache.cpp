#include <bs/nn/kv_cache.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <span>
#include <utility>

namespace bs::nn {

/// Pages of keys and values, [batch, heads, pages, page, head_dim], more of them when they run out.
class KVCache::Pages {
 public:
  explicit Pages(const Options& o) : options_(o) {}

  /// The lowest page that is free, so that a cache alone has its pages side by side.
  int64_t take() {
    const auto free = std::find(used_.begin(), used_.end(), false);
    const auto number = static_cast<size_t>(free - used_.begin());
    if (free == used_.end()) grow();
    used_[number] = true;
    return static_cast<int64_t>(number);
  }
  void give_back(int64_t number) { used_[static_cast<size_t>(number)] = false; }
  int64_t used() const { return std::count(used_.begin(), used_.end(), true); }

  Tensor keys, values;

 private:
  /// All or nothing: where memory runs out, the pages that there are stay as they are.
  void grow() {
    const auto count = static_cast<int64_t>(used_.size());
    const int64_t more = std::max<int64_t>(1, 2 * count);
    const auto grown = [&](const Tensor& memory, int64_t width) {
      // Zeros: attention reads to the end of a square, and makes rows anew that are not finite.
      Tensor larger = zeros({options_.batch, options_.heads, more, options_.page, width},
                            options_.dtype, options_.device);
      if (count > 0) copy(memory, larger.slice(2, 0, count));
      return larger;
    };
    Tensor more_keys = grown(keys, options_.head_dim);
    Tensor more_values = grown(values, options_.value_dim);
    used_.resize(static_cast<size_t>(more), false);
    keys = std::move(more_keys);
    values = std::move(more_values);
  }

  Options options_;
  std::vector<bool> used_;
};

/// A page that caches share; it is free again after the last of them.
struct KVCache::Page {
  explicit Page(std::shared_ptr<Pages> from) : pages(std::move(from)), number(pages->take()) {}
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() { pages->give_back(number); }
  Tensor of(const Tensor& all) const { return all.select(2, number); }

  std::shared_ptr<Pages> pages;
  int64_t number;
};

KVCache::KVCache(const Options& o) : options_(o) {
  BS_CHECK(o.batch > 0 && o.heads > 0 && o.capacity > 0 && o.head_dim > 0 && o.value_dim >= 0 &&
               o.page >= 0,
           "kv_cache: batch {}, {} heads, capacity {}, head_dim {}, value_dim {}, pages of {}",
           o.batch, o.heads, o.capacity, o.head_dim, o.value_dim, o.page);
  if (o.value_dim == 0) options_.value_dim = o.head_dim;
  if (o.page > 0) {
    pages_ = std::make_shared<Pages>(options_);
    return;
  }
  const auto memory = [&](int64_t width) {
    return Tensor::empty({o.batch, o.heads, o.capacity, width}, o.dtype, o.device);
  };
  memory_ = {memory(o.head_dim), memory(options_.value_dim)};
}

void KVCache::append(const Tensor& keys, const Tensor& values) {
  const Options& o = options_;
  const int64_t end = length_ + (keys.rank() == 4 ? keys.size(2) : 0);
  const auto check = [&](const Tensor& from, int64_t width) {
    BS_CHECK(from.shape() == Shape({o.batch, o.heads, end - length_, width}) &&
                 from.dtype() == o.dtype && from.device() == o.device,
             "kv_cache: {} {} on {} does not fit a cache of {} {} on {}", from.dtype(),
             from.shape(), from.device(), o.dtype, Shape({o.batch, o.heads, o.capacity, width}),
             o.device);
  };
  check(keys, o.head_dim);
  check(values, o.value_dim);
  BS_CHECK(end <= capacity(), "kv_cache: {} tokens for a capacity of {}", end, capacity());
  if (pages_) {
    try {
      append_pages({keys, values}, end);
    } catch (...) {  // pages of tokens that did not come are free again
      drop_pages_behind();
      throw;
    }
  } else {
    copy(keys, memory_.keys.slice(2, length_, end));
    copy(values, memory_.values.slice(2, length_, end));
  }
  length_ = end;
}

void KVCache::append_pages(const Source& tokens, int64_t end) {
  const int64_t page = options_.page;
  for (int64_t at = length_; at < end;) {
    const auto number = static_cast<size_t>(at / page);
    const int64_t first = at % page, count = std::min(page - first, end - at);
    if (number == table_.size()) {
      table_.push_back(std::make_shared<const Page>(pages_));
    } else if (table_[number].use_count() > 1) {
      const auto own = std::make_shared<const Page>(pages_);
      for (const Tensor& all : {pages_->keys, pages_->values})
        copy(table_[number]->of(all).slice(2, 0, first), own->of(all).slice(2, 0, first));
      table_[number] = own;
    }
    const auto write = [&](const Tensor& from, const Tensor& all) {
      copy(from.slice(2, at - length_, at - length_ + count),
           table_[number]->of(all).slice(2, first, first + count));
    };
    write(tokens.keys, pages_->keys);
    write(tokens.values, pages_->values);
    at += count;
  }
}

Tensor KVCache::keys() const {
  return pages_ ? in_order(pages_->keys, options_.head_dim) : memory_.keys.slice(2, 0, length_);
}

Tensor KVCache::values() const {
  return pages_ ? in_order(pages_->values, options_.value_dim)
                : memory_.values.slice(2, 0, length_);
}

Tensor KVCache::in_order(const Tensor& pages, int64_t width) const {
  const Options& o = options_;
  if (table_.empty()) return Tensor::empty({o.batch, o.heads, 0, width}, o.dtype, o.device);
  const std::vector<int64_t> numbers = this->pages().table;
  const auto count = static_cast<int64_t>(numbers.size());
  const auto tokens = [&](const Tensor& x) { return x.flatten(2, 3).slice(2, 0, length_); };
  if (in_place()) return tokens(pages.slice(2, numbers.front(), numbers.front() + count));
  const Tensor index = Tensor::from(std::span<const int64_t>(numbers), {count}).to(o.device);
  return tokens(index_select(pages, 2, index));
}

bool KVCache::in_place() const {
  for (size_t i = 1; i < table_.size(); ++i)
    if (table_[i]->number != table_.front()->number + static_cast<int64_t>(i)) return false;
  return true;
}

PagedKeys KVCache::pages() const {
  BS_CHECK(pages_, "kv_cache: a cache without pages");
  PagedKeys pages{pages_->keys, pages_->values, {}, length_};
  for (const auto& page : table_) pages.table.push_back(page->number);
  return pages;
}

void KVCache::truncate(int64_t length) {
  BS_CHECK(length >= 0 && length <= length_, "kv_cache: {} of {} tokens", length, length_);
  length_ = length;
  if (pages_) drop_pages_behind();
}

void KVCache::drop_pages_behind() {
  table_.resize(static_cast<size_t>(ceil_div(length_, options_.page)));
}

void KVCache::drop(int64_t count) {
  BS_CHECK(count >= 0 && count <= length_, "kv_cache: {} of {} tokens", count, length_);
  if (pages_) {
    BS_CHECK(count % options_.page == 0, "kv_cache: {} tokens are no whole pages of {}", count,
             options_.page);
    table_.erase(table_.begin(), table_.begin() + count / options_.page);
  } else if (count > 0) {
    for (const Tensor& memory : {memory_.keys, memory_.values})
      copy(clone(memory.slice(2, count, length_)), memory.slice(2, 0, length_ - count));
  }
  length_ -= count;
  dropped_ += count;
}

KVCache KVCache::fork() const {
  if (!pages_) {
    KVCache other(options_);
    if (length_ > 0) other.append(keys(), values());
    other.dropped_ = dropped_;
    return other;
  }
  KVCache other(options_);
  other.pages_ = pages_;
  other.table_ = table_;
  other.length_ = length_;
  other.dropped_ = dropped_;
  return other;
}

int64_t KVCache::pages_in_use() const { return pages_ ? pages_->used() : 0; }

Tensor cached_attention(const Tensor& q, const KVCache& cache, const LayoutPtr& layout,
                        const bs::SparseAttentionOptions& options) {
  if (!cache.in_place()) return paged_attention(q, cache.pages(), layout, options).out;
  return sparse_attention(q, cache.keys(), cache.values(), layout, options).out;
}

}  // namespace bs::nn
