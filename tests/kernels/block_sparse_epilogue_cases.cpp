#include <bs/kernels/math_mode.h>
#include <bs/kernels/settings.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/support/devices.h>

#include <cmath>

namespace bs::test {

Reference drawn(const Shape& shape, uint64_t seed, DType dtype) {
  return Reference::of(random_reference(shape, seed).tensor(dtype, Device::cpu()));
}

Reference whole_numbers(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed, -1.5, 1.5);
  for (double& x : r.values) x = std::round(x);
  return r;
}

Tensor whole(const Shape& shape, uint64_t seed, DType dtype) {
  return whole_numbers(shape, seed).tensor(dtype, test_device());
}

std::vector<Mode> modes_of_f32() {
  if (test_device().is_cpu()) return {{f32}};
  return {{f32}, {f32, true}};
}

void each_large_f32(const std::function<void(const Mask&, Transpose)>& visit) {
  // Blocks of 32 have kernels of their own too, at sizes where they would not pay.
  const SettingsGuard always(
      {.portable_products = settings().portable_products, .gathered_products = true});
  for (const Mode& mode : modes_of_f32())
    for (const int block : {32, 64, 128})
      for (const Transpose t : transposes) {
        if (block == 128 && test_device().is_cpu()) continue;  // where it is but a larger 64
        const TF32Guard guard(mode.tf32);
        visit(Mask::random(2, block == 32 ? 3 : 2, 5, block, 0.6, 20), t);
      }
}

Problem make(const Case& c, DType dtype) {
  const std::string op = c.op;
  const Mask& mask = c.mask;
  const Transpose t = c.t;
  Shape a, b;
  if (op == "sdd") {
    a = flipped(mask.dense(c.left, mask.height(), c.free), t.a);
    b = flipped(mask.dense(c.right, c.free, mask.width()), t.b);
  } else if (op == "dsd") {
    a = mask.values(c.left);
    b = flipped(mask.dense(c.right, t.a ? mask.height() : mask.width(), c.free), t.b);
  } else {
    a = flipped(mask.dense(c.left, c.free, t.b ? mask.width() : mask.height()), t.a);
    b = mask.values(c.right);
  }
  const auto operand = [&](const Shape& shape, uint64_t seed) {
    return c.whole ? whole_numbers(shape, seed) : drawn(shape, seed, dtype);
  };
  Problem p{operand(a, 1), operand(b, 2), Reference()};
  const Tensor x = p.a.tensor(dtype, test_device()), y = p.b.tensor(dtype, test_device());
  const LayoutPtr layout = mask.layout();
  if (op == "sdd") {
    p.sums = sparsify(product(p.a, p.b, t.a, t.b), mask);
    p.run = [=](const ProductOptions& o) { return sdd(x, y, layout, t, o).values; };
  } else if (op == "dsd") {
    p.sums = product(densify(p.a, mask), p.b, t.a, t.b);
    p.run = [=](const ProductOptions& o) { return dsd({layout, x}, y, t, o); };
  } else {
    p.sums = product(p.a, densify(p.b, mask), t.a, t.b);
    p.run = [=](const ProductOptions& o) { return dds(x, {layout, y}, t, o); };
  }
  p.m = c.is_sdd() ? mask.height() : p.sums.shape[-2];
  p.n = c.is_sdd() ? mask.width() : p.sums.shape[-1];
  p.matrices = p.sums.shape.slice(0, p.sums.shape.rank() - (c.is_sdd() ? 3 : 2));
  if (c.is_sdd() && mask.heads > 1) p.matrices.push_back(mask.heads);
  return p;
}

std::vector<Place> places(const Case& c, const Reference& sums) {
  std::vector<Place> out;
  if (!c.is_sdd()) {
    const int64_t m = sums.shape[-2], n = sums.shape[-1];
    for (int64_t i = 0; i < sums.shape.product(); ++i) out.push_back({i / n / m, i / n % m, i % n});
    return out;
  }
  const Mask& mask = c.mask;
  const int64_t batch = sums.shape.slice(0, sums.shape.rank() - 3).product();
  for (int64_t z = 0; z < batch; ++z)
    for (int h = 0; h < mask.heads; ++h)
      for (int r = 0; r < mask.rows; ++r)
        for (int q = 0; q < mask.cols; ++q)
          for (int i = 0; mask.has(h, r, q) && i < mask.block * mask.block; ++i)
            out.push_back({z * mask.heads + h, int64_t{r} * mask.block + i / mask.block,
                           int64_t{q} * mask.block + i % mask.block});
  return out;
}

std::string describe(const Case& c, DType dtype) {
  return format("{} block {} free {} transposed {} {} lead {} {} {}", c.op, c.mask.block, c.free,
                c.t.a, c.t.b, c.left, c.right, dtype);
}

}  // namespace bs::test
