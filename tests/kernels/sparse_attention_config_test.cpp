#include <bs/kernels/cuda/attention/sparse_attention_config.h>
#include <doctest/doctest.h>

#include <initializer_list>

using namespace bs::cuda;

namespace {
constexpr AttentionPass passes[] = {AttentionPass::forward, AttentionPass::query_gradient,
                                    AttentionPass::key_value_gradient, AttentionPass::key_gradient,
                                    AttentionPass::value_gradient};
}

TEST_CASE("sparse_attention: head_dims are padded") {
  for (const int size : {2, 4, 8})
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      const int dim = sparse_attention_dim(size, head_dim);
      CHECK(dim >= head_dim);
      CHECK(dim <= 256);
      CHECK(dim < head_dim + 64);
      CHECK(dim % 32 == 0);
    }
}

TEST_CASE("sparse_attention: what is launched fits every GPU") {
  // Shared memory of a CTA on sm_86, sm_89 and sm_120; on sm_80; on sm_90 and sm_100.
  for (const int most : {101376, 166912, 232448})
    for (const int size : {2, 4, 8})
      for (int head_dim = 32; head_dim <= 256; head_dim += 32)
        for (const AttentionPass pass : passes)
          for (const bool whole : {false, true})
            for (const bool plain : {false, true}) {
              const int dim = sparse_attention_dim(size, head_dim);
              const auto tile = sparse_attention_tile(pass, size, dim, whole, plain, most);
              if (tile.cols == 0) {
                CHECK(size > 2);  // 16-bit types always have a tile
                continue;
              }
              CHECK(tile.cols % 16 == 0);
              CHECK(tile.cols <= 64);
              CHECK(sparse_attention_shared_bytes(pass, size, dim, tile) <= most);
            }
}

TEST_CASE("sparse_attention: little shared memory costs tiles of wide f32 and f64 rows alone") {
  const auto tiled = [](AttentionPass pass, int size, int dim, int most) {
    return sparse_attention_tile(pass, size, dim, false, true, most).cols > 0;
  };
  for (const AttentionPass pass : passes) {
    CHECK(tiled(pass, 4, 128, 101376));
    CHECK(tiled(pass, 8, 64, 101376));
    CHECK(tiled(pass, 8, 128, 166912));
    CHECK(tiled(pass, 4, 192, 232448));
    CHECK(tiled(pass, 8, 256, 232448));
  }
}

TEST_CASE("sparse_attention: plain tiles on a large GPU are as wide as registers let them") {
  const auto tile = [](AttentionPass pass, int dim) {
    return sparse_attention_tile(pass, 2, dim, true, true, 232448);
  };
  CHECK(tile(AttentionPass::forward, 128).cols == 64);
  CHECK(tile(AttentionPass::query_gradient, 128).cols == 64);
  CHECK(tile(AttentionPass::key_value_gradient, 128).cols == 32);
  CHECK(tile(AttentionPass::forward, 128).stages == 2);
  CHECK(sparse_attention_whole(2, 64, true));
  CHECK_FALSE(sparse_attention_whole(2, 32, true));
  CHECK_FALSE(sparse_attention_whole(4, 128, true));
  CHECK_FALSE(sparse_attention_whole(2, 128, false));
}
