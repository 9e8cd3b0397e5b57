#include <bs/examples/kronecker/products.h>

#include <bs/autograd/kron.h>
#include <bs/autograd/matmul.h>
#include <bs/autograd/view.h>

namespace bs::example {

namespace {

/// [rows, P_N ... P_1]: multiply along the fastest axis, then make it the slowest of the row.
Variable steps(const Variable& x, const std::vector<Variable>& factors, const Watch& watch) {
  const int64_t rows = x.size(0), width = x.size(1);
  Variable h = x;
  for (const Variable& w : factors) {
    const int64_t p = w.size(0);
    h = watch("multiply", [&] { return matmul(reshape(h, {rows, width / p, p}), w); });
    h = watch("move axis", [&] { return reshape(transpose(h, 1, 2), {rows, width}); });
  }
  return h;
}

/// The whole batch as one matrix, whose transpose is multiplied from the left; rows come back last.
Variable flat(const Variable& x, const std::vector<Variable>& factors, const Watch& watch) {
  const int64_t rows = x.size(0), width = x.size(1);
  Variable h = x;
  for (const Variable& w : factors) {
    const int64_t p = w.size(0);
    h = watch("multiply", [&] {
      return matmul(transpose(w, 0, 1), transpose(reshape(h, {rows * width / p, p}), 0, 1));
    });
  }
  return watch("move rows", [&] {
    return reshape(transpose(reshape(h, {width, rows}), 0, 1), {rows, width});
  });
}

Variable fused(const Variable& x, const std::vector<Variable>& factors, const Watch& watch) {
  return watch("kron_matmul", [&] { return kron_matmul(x, factors); });
}

}  // namespace

Variable unwatched(const char*, const std::function<Variable()>& work) { return work(); }

const std::vector<Product>& products() {
  static const std::vector<Product> all = {
      {"steps", "a product and a moved axis for each factor", steps},
      {"flat", "a product of the whole batch for each factor", flat},
      {"fused", "kron_matmul", fused}};
  return all;
}

}  // namespace bs::example
