#include <bs/kernels/paged_attention.h>
#include <bs/lib/cuda/upload.h>

#include <vector>

namespace bs::cuda {

void paged_attention(const Tensor& q, const PagedKeys& pages, const Layout& layout,
                     const Tensor& out, const Tensor& lse, const SparseAttentionOptions& options,
                     Stream stream) {
  const Tensor table =
      upload(std::vector<int32_t>(pages.table.begin(), pages.table.end()), q.device());
  sparse_attention(q, detail::gathered_pages(pages, pages.keys, table),
                   detail::gathered_pages(pages, pages.values, table), layout, out, lse, options,
                   stream);
}

}  // namespace bs::cuda
