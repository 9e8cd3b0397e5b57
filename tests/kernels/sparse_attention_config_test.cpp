#include <bs/kernels/cuda/attention/sparse_attention_config.h>
#include <doctest/doctest.h>

#include <initializer_list>

using namespace bs::cuda;

TEST_CASE("sparse_attention: tiles fit the memory of an SM and cover every head_dim") {
  constexpr int most = 232448;    // bytes of shared memory a CTA may have on sm_90
  constexpr int list = 3 * 1024;  // what a BlockList takes, rounded up
  for (const int size : {2, 4, 8})
    for (int head_dim = 8; head_dim <= 128; head_dim += 8) {
      const int dim = sparse_attention_dim(size, head_dim);
      CHECK(dim >= head_dim);
      CHECK(dim <= 128);
      CHECK(dim % 32 == 0);
      const int line = dim * size + 16;
      const int rows = sparse_attention_rows(size) * line;
      for (const bool whole : {false, true}) {
        const auto bytes = [&](AttentionPass pass, int row_tiles) {
          const int cols = sparse_attention_tile(pass, size, dim, whole).cols;
          CHECK(cols % 16 == 0);
          CHECK(cols <= 64);
          const int numbers = 2 * 2 * cols * (size == 8 ? 8 : 4);
          const int all = row_tiles * rows + 4 * cols * line + numbers + list;
          CHECK(sparse_attention_shared_bytes(pass, size, dim, cols) <= all);
          return all;
        };
        CHECK(bytes(AttentionPass::forward, 1) <= most);
        CHECK(bytes(AttentionPass::query_gradient, 2) <= most);
        CHECK(bytes(AttentionPass::key_gradient, 2) <= most);
      }
    }
  CHECK(sparse_attention_whole(2, 64));
  CHECK_FALSE(sparse_attention_whole(2, 32));
  CHECK_FALSE(sparse_attention_whole(4, 128));
}
