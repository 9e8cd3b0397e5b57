#include <bs/bench/plain_case_list.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/multinomial.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/rope.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>
#include <bs/kernels/unary.h>

#include <algorithm>
#include <array>

namespace bs::bench {

namespace {

/// Single elements, chosen by their places along the last axis.
void add_elements(Cases& c, const Tensor& x, const Tensor& y) {
  const double n = c.whole(), number = 8.0 * static_cast<double>(c.rows * c.columns);
  const Tensor places = c.indices({c.rows, c.columns}, c.columns);
  const char* const layout = "last axis";
  const auto selected = [&](const char* what, double moved, auto run) {
    c.add(what, layout, moved + number, run);
  };
  selected("gather", 2 * n, [=] { return gather(x, 1, places); });
  selected("gather_backward", 2 * n,
           [=, shape = x.shape()] { return gather_backward(y, shape, 1, places); });
  selected("scatter", 3 * n, [=] { return scatter(x, 1, places, y); });
  selected("scatter number", 2 * n, [=] { return scatter(x, 1, places, 1.5); });
  selected("scatter_add", 3 * n, [=] { return scatter_add(x, 1, places, y); });
  selected("sort_backward", 2 * n, [=, order = argsort(x, 1), shape = x.shape()] {
    return sort_backward(y, order, shape, 1);
  });
  c.add("take", "all", 2 * n + number,
        [=, all = c.indices({c.rows, c.columns}, c.rows * c.columns)] { return take(x, all); });
  c.add("bincount", "all", number, [=] { return bincount(places); });
}

/// Whole rows or columns, chosen by their numbers.
void add_rows_by_number(Cases& c, const Tensor& x, const Tensor& y) {
  const double n = c.whole();
  const int64_t rows = c.rows, columns = c.columns;
  const Tensor some = c.indices({rows}, rows), across = c.indices({columns}, columns);
  c.add("index_select", "first axis", 2 * n, [=] { return index_select(x, 0, some); });
  c.add("index_select", "last axis", 2 * n, [=] { return index_select(x, 1, across); });
  c.add("index_select_backward", "first axis", 2 * n,
        [=] { return index_select_backward(y, 0, some, rows); });
  c.add("index_select_backward", "last axis", 2 * n,
        [=] { return index_select_backward(y, 1, across, columns); });
  c.add("index_add", "first axis", 3 * n, [=] { return index_add(x, 0, some, y); });
  const int64_t few = std::min<int64_t>(8, rows);
  c.add("index_add", "few places", n, [=, table = x.slice(0, 0, few), at = c.indices({rows}, few)] {
    return index_add(table, 0, at, y);
  });
  c.add("index_copy", "first axis", 3 * n, [=] { return index_copy(x, 0, some, y); });
  c.add("index", "rows", 2 * n, [=] { return index(x, {some}); });
  c.add("index_put", "rows", 3 * n, [=] { return index_put(x, {some}, y); });
  c.add("index_put add", "rows", 3 * n, [=] { return index_put(x, {some}, y, true); });
  c.add("one_hot", "last axis", n, [=, dtype = c.dtype(), classes = c.indices({rows}, columns)] {
    return one_hot(classes, columns, dtype);
  });
}

void add_joints(Cases& c, const Tensor& x, const Tensor& y) {
  const double n = c.whole();
  const std::array<Tensor, 2> both{x, y};
  c.add("concat", "first axis", 4 * n, [=] { return concat(both, 0); });
  c.add("concat", "last axis", 4 * n, [=] { return concat(both, 1); });
  c.add("stack", "first axis", 4 * n, [=] { return stack(both, 0); });
  c.add("stack", "last axis", 4 * n, [=] { return stack(both, 2); });
  c.add("split_backward", "last axis", 4 * n,
        [=, sizes = std::vector(2, c.columns)] { return split_backward(both, sizes, 1); });
  const Shape wide{c.rows, 2 * c.columns};
  c.add("slice_backward", "left half", 3 * n,
        [=, end = c.columns] { return slice_backward(x, wide, 1, 0, end); });
  c.add("slice_backward", "every second", 3 * n,
        [=, end = wide[1]] { return slice_backward(x, wide, 1, 0, end, 2); });
}

void add_scans(Cases& c, const Tensor& x, const Tensor& y) {
  const double n = c.whole(), number = 8.0 * static_cast<double>(c.rows * c.columns);
  const char* const layout = "last axis";
  // Near 1, so that products stay far from the least numbers.
  const Tensor near = add(mul(x, .1), 1), product = cumprod(near, 1);
  c.add("cumsum", layout, 2 * n, [=] { return cumsum(x, 1); });
  c.add("cumsum", "first axis", 2 * n, [=] { return cumsum(x, 0); });
  c.add("cumsum reverse", layout, 2 * n, [=] { return cumsum(x, 1, true); });
  c.add("cumprod", layout, 2 * n, [=] { return cumprod(near, 1); });
  c.add("cumprod_backward", layout, 4 * n, [=] { return cumprod_backward(near, product, y, 1); });
  c.add("searchsorted", layout, 2 * n + number,
        [=, sorted = sort(x, 1).values] { return searchsorted(sorted, y); });
}

void add_orders(Cases& c, const Tensor& x) {
  const auto elements = static_cast<double>(c.rows * c.columns);
  const double n = c.whole(), number = 8.0 * elements;
  const int64_t k = std::min<int64_t>(16, c.columns), middle = (c.columns + 1) / 2;
  const char* const layout = "last axis";
  c.add("sort", layout, 2 * n + number, [=] { return sort(x, 1).values; });
  c.add("argsort", layout, n + number, [=] { return argsort(x, 1); });
  c.add("topk 16", layout, n, [=] { return topk(x, k, 1).values; });
  c.add("kthvalue", layout, n, [=] { return kthvalue(x, middle, 1).values; });
  c.add("unique", "all", 2 * n + number, [=] { return unique(x).values; });
  const Tensor mask = gt(x, 0);
  c.add("nonzero", "half of all", elements + number / 2, [=] { return flat_nonzero(mask); });
  c.add("nonzero", "coordinates", elements + number, [=] { return nonzero(mask); });
  c.add("masked_select", "half of all", 1.5 * n + elements, [=] { return masked_select(x, mask); });
  // Each run draws the same numbers.
  const auto drawn = [&](const char* what, bool replacement) {
    c.add(what, layout, n, [=, weights = abs(x)] {
      Generator generator(3);
      return multinomial(weights, k, {.replacement = replacement}, generator);
    });
  };
  drawn("multinomial 16", false);
  drawn("multinomial 16 replaced", true);
}

}  // namespace

void add_selections(Cases& c) {
  const Tensor x = c.matrix(), y = c.matrix();
  add_rows_by_number(c, x, y);
  add_elements(c, x, y);
  add_joints(c, x, y);
  add_scans(c, x, y);
  add_orders(c, x);
  if (!c.has_heads()) return;
  const double n = c.whole();
  const Tensor table =
      rope_table(c.rows / 4, 64, 10000, 0, c.dtype() == f64 ? f64 : f32, c.device());
  const Tensor v = c.heads(x).permute({0, 2, 1, 3});
  c.add("rope", "bshd", 2 * n, [=] { return rope(v, table); });
  c.add("rope_backward", "bshd", 2 * n, [=] { return rope_backward(v, table); });
}

void add_fills(Cases& c) {
  const double n = c.whole();
  const Shape shape{c.rows, c.columns};
  const DType dtype = c.dtype();
  const Device device = c.device();
  // Each run draws the same numbers.
  const auto drawn = [&](const char* what, auto draw) {
    c.add(what, "contiguous", n, [=] {
      Generator generator(3);
      return draw(generator);
    });
  };
  c.add("full", "contiguous", n, [=] { return full(shape, 1.5, dtype, device); });
  c.add("zeros", "contiguous", n, [=] { return zeros(shape, dtype, device); });
  c.add("fill", "contiguous", n, [x = c.matrix()]() -> std::vector<Tensor> {
    fill(x, 1.5);
    return {x};
  });
  const int64_t count = shape.product();
  c.add("arange", "contiguous", 8.0 * static_cast<double>(count),
        [=] { return arange(count, i64, device); });
  c.add("linspace", "contiguous", n, [=] { return linspace(0, 1, count, dtype, device); });
  c.add("eye", "contiguous", n, [=] { return eye(shape[0], shape[1], dtype, device); });
  drawn("rand", [=](Generator& g) { return rand(shape, dtype, device, g); });
  drawn("randn", [=](Generator& g) { return randn(shape, dtype, device, g); });
  drawn("randint", [=](Generator& g) { return randint(0, 100, shape, dtype, device, g); });
  drawn("bernoulli", [=](Generator& g) { return bernoulli(.3, shape, dtype, device, g); });
  const auto redrawn = [&](const char* what, auto draw) {
    drawn(what, [=, x = c.matrix()](Generator& g) {
      draw(x, g);
      return x;
    });
  };
  redrawn("uniform_", [](const Tensor& x, Generator& g) { uniform_(x, -1, 1, g); });
  redrawn("normal_", [](const Tensor& x, Generator& g) { normal_(x, 0, 0.02, g); });
}

}  // namespace bs::bench
