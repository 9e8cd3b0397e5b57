// What sparse_attention refuses, and what it says then.
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <string>

using namespace bs;
using namespace bs::test;

TEST_CASE("sparse_attention refuses what does not fit") {
  const auto layout = patterns::dense({.rows = 3, .cols = 3, .block = 8});
  const auto make = [](const Shape& shape, DType dtype = f32) {
    return Tensor::empty(shape, dtype, test_device());
  };
  const Tensor x = make({2, 2, 24, 8});
  const auto message = [&](const Tensor& q, const Tensor& k, const Tensor& v, const LayoutPtr& l,
                           const SparseAttentionOptions& o = {}) -> std::string {
    try {
      sparse_attention(q, k, v, l, o);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message(x, x, x, nullptr) == "sparse_attention: no layout");
  CHECK(message(make({24, 8}), x, x, layout) ==
        "sparse_attention: q [24, 8], k [2, 2, 24, 8] and v [2, 2, 24, 8] are not [batch, heads, "
        "sequence, head_dim]");
  CHECK(message(make({2, 2, 16, 8}), x, x, layout) ==
        "sparse_attention: 16 queries and 24 keys do not fit a layout of 3 x 3 blocks of 8");
  CHECK(message(x, make({2, 2, 32, 8}), make({2, 2, 32, 8}), layout) ==
        "sparse_attention: 24 queries and 32 keys do not fit a layout of 3 x 3 blocks of 8");
  CHECK(message(x, x, x, patterns::random({.heads = 3, .rows = 3, .cols = 3, .block = 8})) ==
        "sparse_attention: a layout of 3 heads for q [2, 2, 24, 8] of 2 heads");
  CHECK(message(x, make({2, 3, 24, 8}), make({2, 3, 24, 8}), layout) ==
        "sparse_attention: 3 heads of k do not divide 2 heads of q");
  CHECK(message(x, x, make({2, 2, 16, 8}), layout) ==
        "sparse_attention: k [2, 2, 24, 8] and v [2, 2, 16, 8] differ in batch, heads or keys");
  CHECK(message(x, make({2, 2, 24, 16}), make({2, 2, 24, 16}), layout) ==
        "sparse_attention: head_dims differ: q [2, 2, 24, 8], k [2, 2, 24, 16]");
  CHECK(message(x, make({1, 2, 24, 8}), make({1, 2, 24, 8}), layout) ==
        "sparse_attention: batch sizes differ: q [2, 2, 24, 8], k [1, 2, 24, 8]");
  CHECK(message(x, make({2, 2, 24, 8}, f64), x, layout) ==
        "sparse_attention: dtypes f32 and f64 differ");
  CHECK(message(make({2, 0, 24, 8}), x, x, layout) ==
        "sparse_attention: q [2, 0, 24, 8] has no heads");
  CHECK(message(x, x, x, layout, {.scale = -1}) ==
        "sparse_attention: scale -1 is negative or not finite");
  CHECK(message(x, x, x, layout, {.key_padding_mask = make({2, 24}, u8)}) ==
        "sparse_attention: key_padding_mask is u8, not bool");
  CHECK(message(x, x, x, layout, {.key_padding_mask = make({2, 16}, boolean)}) ==
        "sparse_attention: key_padding_mask [2, 16] is not [batch, keys] of k [2, 2, 24, 8]");
  CHECK(message(make({2, 2, 24, 8}, i32), make({2, 2, 24, 8}, i32), make({2, 2, 24, 8}, i32),
                layout) ==
        "sparse_attention: dtype i32 is not supported; expected f64, f32, f16 or bf16");
  CHECK_THROWS_WITH_AS(sparse_attention_qkv(make({2, 24, 40}), 2, layout),
                       "sparse_attention_qkv: qkv [2, 24, 40] is not [batch, sequence, 3 * 2 heads "
                       "* head_dim]",
                       Error);
  for (const DType dtype : {f64, f32, f16}) {
    const Tensor y = make({2, 2, 24, 8}, dtype);
    const DType sums = dtype == f64 ? f64 : f32, other = dtype == f32 ? f64 : f16;
    SparseAttentionResult forward = sparse_attention(y, y, y, layout);
    forward.lse = make({2, 2, 24}, other);
    CHECK_THROWS_WITH_AS(
        sparse_attention_backward(y, y, y, forward, y, layout),
        format("sparse_attention_backward: lse is {}, not {}, for q of {}", other, sums, dtype)
            .c_str(),
        Error);
  }
  if (test_device().is_cuda()) {
    CHECK(message(make({2, 2, 24, 12}), make({2, 2, 24, 12}), make({2, 2, 24, 12}), layout) ==
          "sparse_attention: head_dim 12 on cuda:0 is not a multiple of 8 up to 256");
    const Tensor host = Tensor::empty({2, 2, 24, 8}, f32);
    CHECK(message(x, host, host, layout) == "sparse_attention: tensors on cuda:0 and cpu");
  }
}
