#include <bs/kernels/paged_attention.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/sparse_attention_check.h>

#include <algorithm>

namespace bs {

namespace {

void check_pages(const char* op, const PagedKeys& pages) {
  const Tensor &k = pages.keys, &v = pages.values;
  BS_CHECK(k.rank() == 5 && v.rank() == 5 && k.shape().slice(0, 4) == v.shape().slice(0, 4),
           "{}: keys {} and values {} are not [batch, heads, pages, page, width]", op, k.shape(),
           v.shape());
  const int64_t count = k.size(2), page = k.size(3);
  const auto listed = static_cast<int64_t>(pages.table.size());
  BS_CHECK(pages.length >= 0 && (pages.length == 0 || page > 0), "{}: {} tokens in pages of {}", op,
           pages.length, page);
  const int64_t needed = pages.length == 0 ? 0 : (pages.length - 1) / page + 1;
  BS_CHECK(listed == needed, "{}: a table of {} pages of {} for {} tokens", op, listed, page,
           pages.length);
  for (const int64_t number : pages.table)
    BS_CHECK(number >= 0 && number < count, "{}: page {} of {}", op, number, count);
}

}  // namespace

namespace detail {

Tensor shape_of_pages(const PagedKeys& pages, const Tensor& memory) {
  const Shape shape{memory.size(0), memory.size(1), pages.length, memory.size(4)};
  if (pages.length == 0) return Tensor::empty(shape, memory.dtype(), memory.device());
  return memory.select(2, 0).slice(2, 0, 1).expand(shape);
}

Tensor gathered_pages(const PagedKeys& pages, const Tensor& memory, const Tensor& table) {
  if (pages.length == 0) return shape_of_pages(pages, memory);
  return index_select(memory, 2, table).flatten(2, 3).slice(2, 0, pages.length);
}

}  // namespace detail

SparseAttentionResult paged_attention(const Tensor& q, const PagedKeys& pages,
                                      const LayoutPtr& layout,
                                      const SparseAttentionOptions& options) {
  constexpr const char* op = "paged_attention";
  check_pages(op, pages);
  BS_CHECK(options.query_starts.empty() && options.key_starts.empty(),
           "{}: ragged sequences have no pages", op);
  const Tensor k = detail::shape_of_pages(pages, pages.keys);
  const Tensor v = detail::shape_of_pages(pages, pages.values);
  detail::check_attention(op, q, k, v, layout, options);
  SparseAttentionResult result = detail::empty_attention_result(q, v);
  if (q.numel() == 0) return result;
  const PagedKeys dense{contiguous(pages.keys), contiguous(pages.values), pages.table,
                        pages.length};
  BS_DISPATCH(q.device(), paged_attention, detail::dense_attention_rows(q), dense, *layout,
              result.out, result.lse, detail::resolved_attention(options, q, k));
  return result;
}

}  // namespace bs
