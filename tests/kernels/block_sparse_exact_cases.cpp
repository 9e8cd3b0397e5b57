#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

namespace bs::test {

Mask unequal_rows(int rows, int cols, int block, std::mt19937& random) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  Mask mask(1, rows, cols, block, 0);
  const int longest = below(rows);
  for (int row = 0; row < rows; ++row) {
    const int kept = row == longest ? cols : cols / (1 + below(cols) + row);
    for (int k = 0; k < kept; ++k) mask.at(0, row, below(cols)) = 1;
  }
  return mask;
}

Mask alike_rows(int heads, int rows, int cols, int kinds, int block) {
  Mask mask(heads, rows, cols, block, 0);
  for (int head = 0; head < heads; ++head)
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        mask.at(head, row, col) = (row * 5 + head) % kinds == col % kinds;
  return mask;
}

void check_as_dense(const Mask& mask, int64_t n, int64_t k, Transpose t, DType dtype) {
  const Device device = test_device();
  const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, dtype, device); };
  const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(0, 1) : x; };
  CAPTURE(to_string(Shape{mask.block, mask.rows, mask.cols, n, k}));
  const SparseTensor s{mask.layout(), whole(mask.values())};
  const Tensor dense = to_dense(s);
  const Tensor right = whole(flipped({t.a ? mask.height() : mask.width(), n}, t.b));
  const Tensor got = dsd(s, right, t);
  CHECK(same_bits(got, matmul(op(dense, t.a), op(right, t.b))));
  CHECK(same_bits(got, dsd(s, right, t)));
  const Tensor left = whole(flipped({n, t.b ? mask.width() : mask.height()}, t.a));
  CHECK(same_bits(dds(left, s, t), matmul(op(left, t.a), op(dense, t.b))));
  const Tensor a = whole(flipped({mask.height(), k}, t.a));
  const Tensor b = whole(flipped({k, mask.width()}, t.b));
  const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
  CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
}

void check_heads_as_dense(const Mask& mask, int64_t n, int64_t k, Transpose t, DType dtype) {
  const Device device = test_device();
  const int heads = mask.heads;
  const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, dtype, device); };
  const auto op = [](const Tensor& x, bool turned) { return turned ? x.transpose(-2, -1) : x; };
  CAPTURE(to_string(Shape{heads, mask.block, mask.rows, mask.cols, n, k}));
  const SparseTensor s{mask.layout(), whole(mask.values({2}))};
  const Tensor dense = to_dense(s);  // [2, heads, m, k]
  const Tensor right = whole(flipped({2, heads, t.a ? mask.height() : mask.width(), n}, t.b));
  const Tensor got = dsd(s, right, t);
  CHECK(same_bits(got, matmul(op(dense, t.a), op(right, t.b))));
  CHECK(same_bits(got, dsd(s, right, t)));
  const Tensor left = whole(flipped({heads, n, t.b ? mask.width() : mask.height()}, t.a));
  CHECK(same_bits(dds(left, s, t), matmul(op(left, t.a), op(dense, t.b))));
  const Tensor a = whole(flipped({2, heads, mask.height(), k}, t.a));
  const Tensor b = whole(flipped({heads, k, mask.width()}, t.b));
  const SparseTensor want = to_sparse(matmul(op(a, t.a), op(b, t.b)), mask.layout());
  CHECK(same_bits(sdd(a, b, mask.layout(), t).values, want.values));
  // A right operand that all heads share: its gradient is summed over them.
  const SparseTensor one{mask.layout(), whole(mask.values())};
  const Tensor stacked = to_dense(one).view({heads * mask.height(), mask.width()});
  const Tensor dc = whole({heads, n, mask.height()}).transpose(-2, -1);
  for (const Tensor& x : {contiguous(dc), dc})
    CHECK(
        same_bits(dsd_backward_b(one, x, {1, mask.width(), n}).squeeze(0),
                  matmul(stacked.transpose(0, 1), contiguous(x).view({heads * mask.height(), n}))));
}

}  // namespace bs::test
