#include <bs/kernels/cuda/attention/decode_attention.h>
#include <bs/kernels/paged_attention.h>
#include <bs/lib/cuda/upload.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

namespace {

/// [batch, kv_heads, rows, width], the pages behind each other as they lie.
Tensor rows_of_pages(const Tensor& memory) { return aligned_heads(memory.flatten(2, 3)); }

}  // namespace

void paged_attention(const Tensor& q, const PagedKeys& pages, const Layout& layout,
                     const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                     Stream stream) {
  const Tensor table =
      upload(std::vector<int32_t>(pages.table.begin(), pages.table.end()), q.device());
  const AttentionCall call =
      attention_call(q, detail::shape_of_pages(pages, pages.keys),
                     detail::shape_of_pages(pages, pages.values), layout, options);
  const DecodeKernel kernel = decode_kernel_for(call, q.device());
  const int64_t rows = pages.keys.size(2) * pages.keys.size(3);
  if (kernel.dim == 0 || pages.length == 0 || rows > INT32_MAX) {
    sparse_attention(q, detail::gathered_pages(pages, pages.keys, table),
                     detail::gathered_pages(pages, pages.values, table), layout, out, lse, options,
                     stream);
    return;
  }
  launch_decode(kernel, call, aligned_heads(q),
                {rows_of_pages(pages.keys), rows_of_pages(pages.values), table,
                 static_cast<int>(pages.keys.size(3))},
                layout, {out, lse}, stream);
}

}  // namespace bs::cuda
