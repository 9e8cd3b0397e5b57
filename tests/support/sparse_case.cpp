#include <bs/lib/check.h>
#include <bs/tests/support/sparse_case.h>

#include <algorithm>
#include <random>

namespace bs::test {

namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

/// Calls f(element of the values of one matrix, element of its dense form [heads, height, width]).
template <class F>
void for_each_element(const Mask& mask, F&& f) {
  int64_t value = 0;
  for (int h = 0; h < mask.heads; ++h)
    for (int r = 0; r < mask.rows; ++r)
      for (int c = 0; c < mask.cols; ++c) {
        if (!mask.has(h, r, c)) continue;
        for (int64_t i = 0; i < mask.block; ++i)
          for (int64_t j = 0; j < mask.block; ++j, ++value)
            f(value, (h * mask.height() + r * mask.block + i) * mask.width() + c * mask.block + j);
      }
}

/// Offset in `own` of the matrix that stands at position `z` of the broadcast axes `full`.
int64_t matrix_offset(const Shape& own, const Shape& full, int64_t z) {
  int64_t at = 0;
  int64_t step = own[-1] * own[-2];
  for (int axis = full.rank() - 1, mine = own.rank() - 3; axis >= 0; --axis, --mine) {
    if (mine >= 0) {
      if (own[mine] != 1) at += z % full[axis] * step;
      step *= own[mine];
    }
    z /= full[axis];
  }
  return at;
}

/// to += x from, whose elements lie `step` apart. Products spend their time here, so sanitizers,
/// which would look at each element, are kept out.
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) void add_row(
    double x, const double* from, int64_t step, double* to, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] += x * from[j * step];
}

}  // namespace

Mask Mask::random(int heads, int rows, int cols, int block, double density, uint64_t seed) {
  Mask mask(heads, rows, cols, block);
  std::mt19937_64 generator(seed);
  for (uint8_t& k : mask.kept) k = static_cast<double>(generator() >> 11) * 0x1p-53 < density;
  return mask;
}

size_t Mask::number(int h, int r, int c) const {
  BS_CHECK(h >= 0 && h < heads && r >= 0 && r < rows && c >= 0 && c < cols,
           "mask of {} heads of {} x {} blocks: there is no block {}, {}, {}", heads, rows, cols, h,
           r, c);
  return static_cast<size_t>((h * rows + r) * cols + c);
}

Mask Mask::turned() const {
  Mask other(heads, cols, rows, block);
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c) other.at(h, c, r) = has(h, r, c);
  return other;
}

int64_t Mask::nnz() const { return std::count(kept.begin(), kept.end(), 1); }

LayoutPtr Mask::layout() const {
  return Layout::from_mask(Tensor::from(std::span<const uint8_t>(kept), {heads, rows, cols}),
                           block);
}

Shape Mask::values(Shape lead) const {
  for (int64_t extent : {nnz(), int64_t{block}, int64_t{block}}) lead.push_back(extent);
  return lead;
}

Shape Mask::dense(Shape lead, int64_t m, int64_t n) const {
  if (heads > 1) lead.push_back(heads);
  lead.push_back(m);
  lead.push_back(n);
  return lead;
}

Reference densify(const Reference& values, const Mask& mask, double absent) {
  const Shape lead = values.shape.slice(0, values.shape.rank() - 3);
  Reference dense(mask.dense(lead, mask.height(), mask.width()));
  std::fill(dense.values.begin(), dense.values.end(), absent);
  const int64_t from = mask.nnz() * mask.block * mask.block;
  const int64_t to = mask.heads * mask.height() * mask.width();
  for (int64_t z = 0; z < lead.product(); ++z)
    for_each_element(mask, [&](int64_t value, int64_t at) {
      dense[index(z * to + at)] = values[index(z * from + value)];
    });
  return dense;
}

Reference sparsify(const Reference& dense, const Mask& mask) {
  const int inner = mask.heads > 1 ? 3 : 2;
  const Shape lead = dense.shape.slice(0, dense.shape.rank() - inner);
  Reference values(mask.values(lead));
  const int64_t matrix = mask.height() * mask.width();
  const int64_t heads = inner == 3 ? dense.shape[-3] : 1;
  const int64_t to = mask.nnz() * mask.block * mask.block;
  for (int64_t z = 0; z < lead.product(); ++z)
    for_each_element(mask, [&](int64_t value, int64_t at) {
      const int64_t from = heads == 1 ? at % matrix : at;
      values[index(z * to + value)] = dense[index(z * heads * matrix + from)];
    });
  return values;
}

Reference product(const Reference& a, const Reference& b, bool trans_a, bool trans_b) {
  const Shape lead = broadcast_shapes("reference", a.shape.slice(0, a.shape.rank() - 2),
                                      b.shape.slice(0, b.shape.rank() - 2));
  const int64_t m = a.shape[trans_a ? -1 : -2], depth = a.shape[trans_a ? -2 : -1];
  const int64_t n = b.shape[trans_b ? -2 : -1];
  Shape shape = lead;
  shape.push_back(m);
  shape.push_back(n);
  Reference c(shape);
  if (n == 0) return c;  // b has no memory
  for (int64_t z = 0; z < lead.product(); ++z) {
    const int64_t a_at = matrix_offset(a.shape, lead, z), b_at = matrix_offset(b.shape, lead, z);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t k = 0; k < depth; ++k) {
        const double x = a[index(a_at + (trans_a ? k * m + i : i * depth + k))];
        if (x == 0) continue;
        const double* from = b.values.data() + b_at + (trans_b ? k : k * n);
        add_row(x, from, trans_b ? depth : 1, c.values.data() + (z * m + i) * n, n);
      }
  }
  return c;
}

}  // namespace bs::test
