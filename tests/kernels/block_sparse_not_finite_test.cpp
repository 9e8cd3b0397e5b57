// An infinity or NaN of the dense operand reaches the rows whose blocks meet it, and no others.
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/random.h>
#include <bs/kernels/settings.h>
#include <bs/lib/patterns.h>
#include <bs/lib/sha256.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Case {
  int64_t rows, depth, cols;
  int block;
  double density;  ///< of random blocks; 0: rows of eight kinds, those of a kind alike
  int heads = 1;
  bool epilogue = false;
};

/// C = op(S) B, or its transpose.
struct Way {
  DType dtype;
  bool left;  ///< C^T = B^T op(S)^T
  bool transposed, by_columns;
};

LayoutPtr layout_of(const Case& c, bool transposed) {
  const auto side = [&](int64_t extent) { return static_cast<int>(extent / c.block); };
  const int down = side(transposed ? c.depth : c.rows),
            across = side(transposed ? c.rows : c.depth);
  if (c.density == 0) return alike_rows(c.heads, down, across, 8, c.block).layout();
  return patterns::random({.heads = c.heads, .rows = down, .cols = across, .block = c.block},
                          {.density = c.density, .seed = 3});
}

/// A bias and a GELU, which leave finite what is finite, and nothing else.
ProductOptions options_of(const Case& c, const Way& way) {
  if (!c.epilogue) return {};
  const Element element = element_of(way.dtype);
  GemmEpilogue e(epilogue::gelu(epilogue::accumulator() + epilogue::row("bias", element)));
  e.set_d(element);
  return {.epilogue = e,
          .tensors = {{"bias", full({way.left ? c.rows : c.cols}, 1, way.dtype, test_device())}}};
}

/// Sets one number of the last of several matrices.
void put(const Tensor& x, int64_t row, int64_t col, double value) {
  const int64_t last = x.size(0) - 1;
  copy(full({1, 1, 1}, value, x.dtype(), x.device()),
       x.slice(0, last, last + 1).slice(1, row, row + 1).slice(2, col, col + 1));
}

/// Numbers that differ between products with and without `bad` at [k, j] of the dense operand,
/// beside those that it must reach; and those that it must and does not.
size_t wrong_numbers(const Case& c, const Way& way, double bad) {
  const Device device = test_device();
  const DType dtype = way.dtype;
  const bool left = way.left, transposed = way.transposed, by_columns = way.by_columns;
  const LayoutPtr layout = layout_of(c, transposed);
  const ProductOptions options = options_of(c, way);
  const Tensor values = full({layout->nnz(), c.block, c.block}, 1, dtype, device);
  const Shape shape =
      by_columns ? Shape{c.heads, c.cols, c.depth} : Shape{c.heads, c.depth, c.cols};
  const Tensor b = randint(-1, 2, shape, dtype, device);
  const int64_t k = c.depth / 2 + 1, j = c.cols - 1;
  const auto product = [&](double value) {
    put(b, by_columns ? j : k, by_columns ? k : j, value);
    const Transpose of_left{.a = !by_columns, .b = !transposed};
    return Reference::of(left ? dds(b, {layout, values}, of_left, options)
                              : dsd({layout, values}, b, {transposed, by_columns}, options));
  };
  const Reference clean = product(0), got = product(bad);
  const int of_k = static_cast<int>(k / c.block);
  size_t wrong = 0;
  for (int head = 0; head < c.heads; ++head)
    for (int64_t row = 0; row < c.rows; ++row) {
      const int own = static_cast<int>(row / c.block);
      const bool meets = head == c.heads - 1 &&
                         layout->contains(head, transposed ? of_k : own, transposed ? own : of_k);
      for (int64_t col = 0; col < c.cols; ++col) {
        const int64_t in_head = left ? col * c.rows + row : row * c.cols + col;
        const auto at = static_cast<size_t>(head * c.rows * c.cols + in_head);
        wrong += meets && col == j ? std::isfinite(got[at]) : got[at] != clean[at];
      }
    }
  return wrong;
}

/// Each product of a case, whichever of its operands are transposed.
void check_all(const Case& c, DType dtype) {
  const SettingsGuard always(
      {.portable_products = settings().portable_products, .gathered_products = true});
  for (const bool transposed : {false, true})
    for (const bool by_columns : {false, true}) {
      if (c.rows > 1000 && (dtype == f64 || transposed != by_columns)) continue;
      CAPTURE(c.block);
      CAPTURE(c.density);
      CAPTURE(c.heads);
      CAPTURE(to_string(dtype));
      CAPTURE(transposed);
      CAPTURE(by_columns);
      CHECK(wrong_numbers(c, {dtype, false, transposed, by_columns}, infinity) == 0);
      CHECK(wrong_numbers(c, {dtype, true, transposed, by_columns}, std::nan("")) == 0);
      if (dtype != f32) continue;
      const TF32Guard rounded;
      const double bad = c.epilogue ? infinity : -infinity;  // of which GELU would make 0
      CHECK(wrong_numbers(c, {dtype, false, transposed, by_columns}, bad) == 0);
    }
}

/// Writes `name` where a product's choice of a plan is kept.
void choose(const std::string& folder, const std::string& name) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string path = file.path();
    if (!file.path().filename().string().starts_with("choice-")) continue;
    std::ifstream in(path);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    text = text.substr(0, text.find("\nchoice ")) + "\nchoice " + name + "\n";
    std::ofstream(path) << text << "sha256 " << sha256(text) << "\n";
  }
}

}  // namespace

TEST_CASE("block-sparse products: what is not finite reaches no row that lacks its block") {
  std::vector<Case> cases;
  for (const int block : {8, 16, 32, 64, 128}) {
    cases.push_back({512, 768, 264, block, .4});
    cases.push_back({512, 768, 136, block, .4, 3});
  }
  // So dense and large that a dense product would be the faster one.
  if (test_device().is_cuda())
    for (const int block : {8, 16, 64}) cases.push_back({2048, 2048, 4096, block, .95});
  int number = 0;
  for (const Case& c : cases)
    for (const DType dtype : {f16, bf16, f32, f64})
      if (is_sampled(number++)) check_all(c, dtype);
}

TEST_CASE("block-sparse products: nor does it in strips of alike rows, which a GPU gathers") {
  const int64_t side = large_on_gpu(2048, 1024);
  int number = 0;
  for (const int block : {8, 16, 32, 64, 128})
    for (const DType dtype : {bf16, f32})
      if (is_sampled(number++)) check_all({side, side, 136, block, 0, 2}, dtype);
}

TEST_CASE("block-sparse products: nor does it where an epilogue takes the sums") {
  const int64_t side = large_on_gpu(2048, 1024);
  for (const int block : {16, 64})
    for (const DType dtype : {bf16, f32}) {
      check_all({1024, 1536, 136, block, .4, 1, true}, dtype);
      check_all({side, side, 136, block, 0, 2, true}, dtype);
    }
}

TEST_CASE("block-sparse products: nor does it by any plan that BS_TUNE may choose" *
          doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  const Scratch scratch;
  const std::string cache = scratch / "cache";
  const Environment environment("BS_CACHE_DIR", cache);
  const SettingsGuard tuned({.portable_products = settings().portable_products, .tune = true});
  const std::pair<int, Way> products[] = {{16, {bf16, false, false, false}},
                                          {64, {bf16, true, true, false}},
                                          {32, {f32, false, true, true}}};
  for (const auto& product : products) {
    const int block = product.first;
    const Way& way = product.second;
    const Case c{2048, 2048, 1024, block, .3};
    CHECK(wrong_numbers(c, way, infinity) == 0);  // by the one that is soonest done
    for (const char* name :
         {"planned", "dense", "mma", "columns-256", "columns-128", "columns-64"}) {
      CAPTURE(block);
      CAPTURE(name);
      choose(cache, name);
      CHECK(wrong_numbers(c, way, infinity) == 0);
      CHECK(wrong_numbers(c, way, std::nan("")) == 0);
    }
  }
}
