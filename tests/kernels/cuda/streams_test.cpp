// What products and attention owe to streams: the host waits for none, and a graph may have them.
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/streams.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// The same rows of blocks in the opposite order: as much work, of the same kernels.
Mask upside_down(const Mask& mask) {
  Mask turned = mask;
  for (int row = 0; row < mask.rows; ++row)
    std::copy_n(mask.kept.begin() + row * mask.cols, mask.cols,
                turned.kept.begin() + (mask.rows - 1 - row) * mask.cols);
  return turned;
}

/// One product on a layout, as a dense matrix.
Tensor product_on(const std::string& op, const LayoutPtr& layout, const Tensor& values,
                  const Tensor& a, const Tensor& b) {
  if (op == "sdd") return to_dense(sdd(a, b, layout));
  const SparseTensor s{layout, values};
  return op == "dsd" ? dsd(s, b) : dds(a, s);
}

}  // namespace

TEST_CASE("block-sparse products: the first one on a layout waits for nothing" *
          doctest::skip(!test_device().is_cuda())) {
  constexpr int size = 1024;
  const Unguarded memory(test_device());
  const Tensor a = whole({size, size}, 1, bf16), b = whole({size, size}, 2, bf16);
  for (const auto& [dtype, block] : {std::pair{bf16, 16}, {bf16, 64}, {bf16, 128}, {f32, 16}})
    for (const std::string op : {"sdd", "dsd", "dds"}) {
      CAPTURE(op);
      CAPTURE(block);
      const Mask mask = Mask::random(1, size / block, size / block, block, 0.3, 3);
      const Tensor values = whole(mask.values(), 4, dtype);
      const Tensor left = cast(a, dtype), right = cast(b, dtype);
      // Kernels are loaded, and memory is taken, by another layout with as many blocks.
      for (int i = 0; i < 2; ++i) product_on(op, upside_down(mask).layout(), values, left, right);
      const LayoutPtr layout = mask.layout();
      synchronize(test_device());
      HeldStream held(current_stream(test_device()));
      const Tensor got = product_on(op, layout, values, left, right);
      CHECK(held.release());
      const Tensor dense = to_dense({layout, values});
      const Tensor all = op == "sdd"   ? matmul(left, right)
                         : op == "dsd" ? matmul(dense, right)
                                       : matmul(left, dense);
      const Tensor expected = op == "sdd" ? to_dense(to_sparse(all, layout)) : all;
      CHECK(Reference::of(got).values == Reference::of(expected).values);
    }
}

TEST_CASE("gemm: several products in a graph have their tables in every run" *
          doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  for (const auto& [mode, scheduler] : {std::pair{GemmMode::array, GemmScheduler::device},
                                        {GemmMode::grouped, GemmScheduler::device},
                                        {GemmMode::grouped, GemmScheduler::host}}) {
    GemmDescription d = small_gemm();
    d.mode = mode;
    d.scheduler = scheduler;
    std::vector<Linear> products;
    for (const int64_t size : {128, 8, 512})
      products.emplace_back(d, Shape{}, mode == GemmMode::array ? 128 : size, 72, 40, 7);
    std::vector<GemmArguments> arguments, others;
    for (const Linear& x : products) arguments.push_back(x.arguments(2, 1));
    const GemmOperation operation(d);
    const Recorded recorded(current_stream(test_device()), [&] { operation.run(arguments); });
    for (int run = 0; run < 2; ++run) {
      for (const Linear& x : products) fill(x.d.tensor, -1);
      recorded.run();
      for (const Linear& x : products) x.check(2, 1);
      // Tables of other products take the host's memory that is free.
      const std::vector<Linear> beside(3, Linear(d, {}, 128, 72, 40, 9));
      others.clear();
      for (const Linear& x : beside) others.push_back(x.arguments(1, 0));
      operation.run(others);
      synchronize(test_device());
    }
  }
}

TEST_CASE("sparse_attention: a graph has its kernels in the order of the stream" *
          doctest::skip(!test_device().is_cuda())) {
  // On Hopper kernels begin while the one before them ends.
  const Unguarded memory(test_device());
  const LayoutPtr layout = patterns::dense({.rows = 5, .cols = 5, .block = 64}, {.causal = true});
  const Shape shape{1, 2, 320, 128};
  const Tensor q = whole(shape, 1, bf16), k = whole(shape, 2, bf16), v = whole(shape, 3, bf16),
               dout = whole(shape, 4, bf16);
  SparseAttentionOptions options{.scale = 0.01};
  options.causal = true;
  std::vector<Tensor> got;
  for (int i = 0; i < 4; ++i) got.push_back(Tensor::empty(shape, bf16, test_device()));
  const auto compute = [&](const std::vector<Tensor>& to) {
    const SparseAttentionResult forward = sparse_attention(q, k, v, layout, options);
    const SparseAttentionGradients g =
        sparse_attention_backward(q, k, v, forward, dout, layout, options);
    const Tensor all[] = {forward.out, g.dq, g.dk, g.dv};
    for (size_t i = 0; i < 4; ++i) copy(all[i], to[i]);
  };
  std::vector<Tensor> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(Tensor::empty(shape, bf16, test_device()));
  compute(expected);
  const Recorded recorded(current_stream(test_device()), [&] { compute(got); });
  for (int run = 0; run < 3; ++run) {
    for (const Tensor& x : got) fill(x, -1);
    recorded.run();
    for (size_t i = 0; i < 4; ++i)
      CHECK(Reference::of(got[i]).values == Reference::of(expected[i]).values);
  }
}
