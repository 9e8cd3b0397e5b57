// Attention to keys and values in pages against sparse_attention of them in their order.
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/paged_attention.h>
#include <bs/lib/integers.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 2, heads = 4, kv_heads = 2, head_dim = 16, value_dim = 8;

/// Tokens in order, and the same in pages at random places; what no token fills is `filling`.
struct Case {
  Tensor keys, values;
  PagedKeys pages;
};

Case make_case(int64_t length, int64_t page, DType dtype, double filling) {
  const int64_t used = ceil_div(length, page), count = used + 3;
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  order.resize(static_cast<size_t>(used));
  const auto tensor = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
  const auto paged = [&](const Reference& in_order) {
    const int64_t width = in_order.shape[3];
    Reference memory({batch, kv_heads, count, page, width});
    std::fill(memory.values.begin(), memory.values.end(), filling);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < kv_heads; ++h)
        for (int64_t i = 0; i < length; ++i)
          for (int64_t e = 0; e < width; ++e)
            memory.at({b, h, order[static_cast<size_t>(i / page)], i % page, e}) =
                in_order.at({b, h, i, e});
    return tensor(memory);
  };
  const Reference k = random_reference({batch, kv_heads, length, head_dim}, 1);
  const Reference v = random_reference({batch, kv_heads, length, value_dim}, 2);
  return {tensor(k), tensor(v), {paged(k), paged(v), order, length}};
}

}  // namespace

TEST_CASE("paged_attention gives the bits of sparse_attention, wherever pages lie") {
  for (const int block : {8, 32, 64})
    for (const int64_t page : {1, 8, 20, 32, 64})
      for (const int64_t length : {1, 31, 70}) {
        CAPTURE(block);
        CAPTURE(page);
        CAPTURE(length);
        const auto rows = static_cast<int>(ceil_div(80, block));
        const LayoutPtr layout = patterns::dense({.rows = rows, .block = block});
        for (const DType dtype : {f64, f32, f16, bf16}) {
          const Case c = make_case(length, page, dtype, 0);
          SparseAttentionOptions o;
          o.causal = true;
          o.window_before = 40;
          o.first_query = length - 1;
          const Tensor q =
              random_reference({batch, heads, 3, head_dim}, 3).tensor(dtype, test_device());
          const SparseAttentionResult paged = paged_attention(q, c.pages, layout, o);
          const SparseAttentionResult whole = sparse_attention(q, c.keys, c.values, layout, o);
          CHECK(same_bits(paged.out, whole.out));
          CHECK(same_bits(paged.lse, whole.lse));
        }
      }
}

TEST_CASE("paged_attention: what pages hold beside the tokens changes nothing") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 32});
  for (const double filling :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e30}) {
    const Case c = make_case(37, 32, f32, filling);
    SparseAttentionOptions o;
    o.first_query = 0;
    const Tensor q = random_reference({batch, heads, 37, head_dim}, 3).tensor(f32, test_device());
    const Reference paged = Reference::of(paged_attention(q, c.pages, layout, o).out);
    const Reference whole = Reference::of(sparse_attention(q, c.keys, c.values, layout, o).out);
    check_close("filling", paged, whole, 1e-6);
  }
}

TEST_CASE("paged_attention: no tokens, and no queries") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 32});
  SparseAttentionOptions o;
  o.first_query = 0;
  const PagedKeys none{zeros({batch, kv_heads, 0, 8, head_dim}, f32, test_device()),
                       zeros({batch, kv_heads, 0, 8, value_dim}, f32, test_device())};
  const Tensor q = random_reference({batch, heads, 2, head_dim}, 3).tensor(f32, test_device());
  const Reference out = Reference::of(paged_attention(q, none, layout, o).out);
  CHECK(out.shape == Shape{batch, heads, 2, value_dim});
  CHECK(largest(out) == 0);
  const Case c = make_case(9, 8, f32, 0);
  CHECK(paged_attention(q.slice(2, 0, 0), c.pages, layout, o).out.numel() == 0);
}

TEST_CASE("paged_attention refuses tables that do not fit") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 32});
  const Tensor q = zeros({batch, heads, 2, head_dim}, f32, test_device());
  Case c = make_case(20, 8, f32, 0);
  c.pages.table = {0, 1};
  CHECK_THROWS_WITH_AS(paged_attention(q, c.pages, layout),
                       "paged_attention: a table of 2 pages of 8 for 20 tokens", Error);
  c.pages.table = {0, 1, 6};
  CHECK_THROWS_WITH_AS(paged_attention(q, c.pages, layout), "paged_attention: page 6 of 6", Error);
  c.pages.table = {0, 1, 2};
  c.pages.values = c.pages.values.slice(2, 0, 5);
  CHECK_THROWS_WITH_AS(paged_attention(q, c.pages, layout),
                       "paged_attention: keys [2, 2, 6, 8, 16] and values [2, 2, 5, 8, 8] are not "
                       "[batch, heads, pages, page, width]",
                       Error);
  c.pages.values = zeros({batch, kv_heads, 6, 8, value_dim}, f32, test_device());
  SparseAttentionOptions ragged;
  ragged.query_starts = {0, 2};
  CHECK_THROWS_WITH_AS(paged_attention(q, c.pages, layout, ragged),
                       "paged_attention: ragged sequences have no pages", Error);
}
