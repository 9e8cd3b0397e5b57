#include <bs/autograd/rearrange.h>

#include <bs/autograd/concat.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/index_select.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

#include <algorithm>

namespace bs {

Variable flip(const Variable& x, const Dims& axes) {
  Variable y = x;
  for (const int64_t named : axes) {
    const int axis = normalize_axis("flip", static_cast<int>(named), x.rank());
    const auto last = static_cast<double>(x.size(axis)) - 1;
    y = index_select(y, axis, arange(last, -1, -1, i64, x.device()));
  }
  return y;
}

Variable roll(const Variable& x, int64_t shift, int axis) {
  const int at = normalize_axis("roll", axis, x.rank());
  const int64_t n = x.size(at);
  const int64_t by = n == 0 ? 0 : (shift % n + n) % n;
  if (by == 0) return x;
  return concat({slice(x, at, n - by, n), slice(x, at, 0, n - by)}, at);
}

Variable tile(const Variable& x, const Dims& counts) {
  BS_CHECK(counts.rank() >= x.rank(), "tile: {} counts for shape {}", counts.rank(), x.shape());
  const int added = counts.rank() - x.rank();
  Variable y = x;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    const int64_t count = counts[axis + added];
    BS_CHECK(count >= 0, "tile: counts {} of shape {}", counts, x.shape());
    if (count == 1) continue;
    Shape wide = y.shape(), joined = y.shape();
    wide.insert(axis, count);
    BS_CHECK(!__builtin_mul_overflow(joined[axis], count, &joined[axis]),
             "tile: counts {} of shape {}", counts, x.shape());
    y = reshape(expand(unsqueeze(y, axis), wide), joined);
  }
  if (added == 0) return y;
  Shape shape = y.shape();
  for (int i = added - 1; i >= 0; --i) shape.insert(0, counts[i]);
  return contiguous(expand(y, shape));
}

Variable repeat_interleave(const Variable& x, int64_t count, int axis) {
  const int at = normalize_axis("repeat_interleave", axis, x.rank());
  BS_CHECK(count >= 0, "repeat_interleave: {} times", count);
  Shape wide = x.shape(), joined = x.shape();
  wide.insert(at + 1, count);
  BS_CHECK(!__builtin_mul_overflow(joined[at], count, &joined[at]),
           "repeat_interleave: {} times axis {} of {}", count, axis, x.shape());
  return reshape(expand(unsqueeze(x, at + 1), wide), joined);
}

namespace {

/// column - row of a matrix [rows, columns], i64.
Tensor offsets(int64_t rows, int64_t columns, Device device) {
  return sub(arange(columns, i64, device), arange(rows, i64, device).unsqueeze(1));
}

Tensor matrix_offsets(const char* op, const Variable& x) {
  BS_CHECK(x.rank() >= 2, "{}: shape {} has no matrices", op, x.shape());
  return offsets(x.size(-2), x.size(-1), x.device());
}

}  // namespace

Variable tril(const Variable& x, int64_t diagonal) {
  return where(le(matrix_offsets("tril", x), diagonal), x, 0);
}

Variable triu(const Variable& x, int64_t diagonal) {
  return where(ge(matrix_offsets("triu", x), diagonal), x, 0);
}

Variable diag(const Variable& x, int64_t diagonal) {
  BS_CHECK(x.rank() == 1 || x.rank() == 2, "diag: shape {} is no vector and no matrix", x.shape());
  constexpr int64_t most = int64_t{1} << 31;  // with one more a result would not fit any memory
  BS_CHECK(diagonal >= -most && diagonal <= most, "diag: diagonal {} of shape {}", diagonal,
           x.shape());
  const int64_t down = std::max<int64_t>(0, -diagonal), right = std::max<int64_t>(0, diagonal);
  if (x.rank() == 2) {
    const int64_t n = std::max<int64_t>(0, std::min(x.size(0) - down, x.size(1) - right));
    const int64_t from = n == 0 ? 0 : down * x.size(1) + right;
    const Tensor at = add(mul(arange(n, i64, x.device()), x.size(1) + 1), from);
    return index_select(reshape(x, {x.data().numel()}), 0, at);
  }
  // Element i stands in column i + right, which is where the padded vector has it.
  const int64_t n = x.size(0), size = n + down + right;
  const Variable padded =
      concat({zeros({right}, x.dtype(), x.device()), x, zeros({down}, x.dtype(), x.device())}, 0);
  const Tensor there = eq(offsets(size, size, x.device()), diagonal);
  return where(there, padded, 0);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors) {
  Shape shape;
  for (const Tensor& v : vectors) {
    BS_CHECK(v.rank() == 1, "meshgrid: shape {} is no vector", v.shape());
    shape.push_back(v.size(0));
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < vectors.size(); ++i) {
    Shape own = Dims::filled(shape.rank(), 1);
    own[static_cast<int>(i)] = vectors[i].size(0);
    out.push_back(contiguous(vectors[i]).view(own).expand(shape));
  }
  return out;
}

}  // namespace bs
