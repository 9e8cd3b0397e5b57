// The rate of sdd, dsd and dds over layouts, densities and transpositions, beside that of the dense
// product of the same size, which takes turns with them on the device. Useful work only:
// 2 nnz block^2 n FLOP. `--export FILE` writes the problems for peers, and measures nothing.
#include <bs/bench/arguments.h>
#include <bs/bench/block_sparse_cells.h>
#include <bs/bench/record.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace bs;
using bench::Cell;
using bench::Product;

namespace {

constexpr const char* help =
    "bench_block_sparse_matmul [options]\n"
    "  --sets A,B              of sweep, transposes, patterns, reference, epilogue,\n"
    "                          reductions, heads; default transposes\n"
    "  --size N                rows, columns and depth (not of reference), default 2048\n"
    "  --width N               of the dense operand where it is free: k of sdd, n of dsd, m of "
    "dds;\n"
    "                          default: as --size\n"
    "  --blocks 16,32,...      --densities 0.1,0.25,... instead of those of the set\n"
    "  --patterns A,B          of the set patterns: random, zipf, banded, bigbird, fixed, moe;\n"
    "                          of the set heads: random, zipf\n"
    "  --heads N               of the set heads, default 8\n"
    "  --products A,B          only those whose name begins so: sdd, \"dsd tn\", ...\n"
    "  --tf32 0|1              whether f32 operands are rounded to tf32\n"
    "  --export FILE           writes layouts and products for peers, and stops\n";

/// No dense product beyond this: it takes a second on the fastest GPUs, and its result gigabytes.
constexpr double most_dense_flops = 4e12;
constexpr int samples = 64;

/// Row `i` of a matrix, or column `i`, on the host, in double.
std::vector<double> line(const Tensor& matrix, int axis, int64_t i) {
  const Tensor t = contiguous(matrix.select(axis, i)).to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  visit_floating("bench", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (double& v : out) v = static_cast<double>(*from++);
  });
  return out;
}

/// Compares entry (i, j) of op(a) op(b), of any one matrix of a batch, with the sum in double.
void check_entry(const std::string& what, const Tensor& a, const Tensor& b, Transpose t, int64_t i,
                 int64_t j, double got) {
  const std::vector<double> x = line(a, t.a ? 1 : 0, i), y = line(b, t.b ? 0 : 1, j);
  double sum = 0, size = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += x[k] * y[k];
    size += std::abs(x[k] * y[k]);
  }
  const double bound = bench::sum_error(a.dtype(), static_cast<double>(x.size()), size, sum) +
                       (a.dtype() == f32 && tf32_allowed() ? 0x1p-10 * size : 0);
  BS_CHECK(std::abs(got - sum) <= bound, "bench: {} is wrong at ({}, {}): {}, not {}", what, i, j,
           got, sum);
}

/// A product with its operands. The sparse one is the left of dsd, the right of dds.
struct Problem {
  Problem(const Product& asked, LayoutPtr pattern, const bench::Settings& settings)
      : product(asked), layout(std::move(pattern)) {
    const Transpose t = product.transpose;
    const int64_t height = layout->height(), width = layout->width(), free = product.width;
    const auto random = [&](int64_t rows, int64_t cols, bool transposed) {
      Shape shape{transposed ? cols : rows, transposed ? rows : cols};
      if (layout->heads() > 1) shape.insert(0, layout->heads());
      if (product.batch > 1) shape.insert(0, product.batch);
      return randn(shape, settings.dtype, settings.device);
    };
    if (product.op == "sdd") {
      a = random(height, free, t.a);
      b = random(free, width, t.b);
      return;
    }
    const int64_t block = layout->block();
    s = {layout, randn({layout->nnz(), block, block}, settings.dtype, settings.device)};
    if (product.op == "dsd") {
      b = random(t.a ? height : width, free, t.b);
    } else {
      a = random(free, t.b ? width : height, t.a);
    }
  }

  Tensor run(const LayoutPtr& pattern, const ProductOptions& options = {}) const {
    if (product.op == "sdd") return sdd(a, b, pattern, product.transpose, options).values;
    const SparseTensor sparse{pattern, s.values};
    return product.op == "dsd" ? dsd(sparse, b, product.transpose, options)
                               : dds(a, sparse, product.transpose, options);
  }

  double flops() const { return layout->flops(product.width) * static_cast<double>(product.batch); }
  double bytes() const {
    const auto size = static_cast<double>(size_of(product.op == "dsd" ? b.dtype() : a.dtype()));
    const double values = static_cast<double>(layout->nnz()) * layout->block() * layout->block();
    const auto height = static_cast<double>(layout->height());
    const auto width = static_cast<double>(layout->width());
    const double dense = (height + width) * static_cast<double>(product.width * layout->heads());
    const double batch = static_cast<double>(product.batch);
    return size * (product.op == "sdd" ? batch * (values + dense) : values + batch * dense);
  }
  /// FLOPs of the same product without zeros left out.
  double dense_flops() const { return flops() / std::max(layout->density(), 1e-9); }

  void check() const {
    const Tensor c = run(layout);
    const Transpose t = product.transpose;
    const LayoutView view = layout->view(Device::cpu());
    const bool is_sdd = product.op == "sdd";
    const auto one = [&](const Tensor& x) { return product.batch > 1 ? x.select(0, 0) : x; };
    int64_t head = 0;
    const auto matrix = [&](const Tensor& x) {
      return layout->heads() > 1 ? one(x).select(0, head) : one(x);
    };
    const Tensor stored = is_sdd ? Tensor() : matrix(to_dense(s));
    const Tensor first = is_sdd ? one(c) : matrix(c);
    for (int64_t sample = 0; sample < samples; ++sample) {
      if (is_sdd && view.nnz == 0) return;
      if (is_sdd) {
        const int64_t p = sample * 7919 % view.nnz;
        head = view.head_of[p];
        const int64_t r = sample * 13 % view.block, q = sample * 29 % view.block;
        const int64_t i = int64_t{view.row_of[p]} * view.block + r;
        const int64_t j = int64_t{view.col_of[p]} * view.block + q;
        check_entry(product.name(), matrix(a), matrix(b), t, i, j,
                    first.select(0, p).select(0, r).select(0, q).item());
      } else {
        const int64_t i = sample * 7919 % first.size(0), j = sample * 104729 % first.size(1);
        check_entry(product.name(), product.op == "dsd" ? stored : matrix(a),
                    product.op == "dds" ? stored : matrix(b), t, i, j,
                    first.select(0, i).select(0, j).item());
      }
    }
  }

  /// The dense product of the same extents, or nothing where it is too large.
  bench::Work dense() const {
    if (dense_flops() > most_dense_flops) return {};
    const Transpose t = product.transpose;
    const Tensor sparse = product.op == "sdd" ? Tensor() : to_dense(s);
    const auto op = [](const Tensor& x, bool transposed) {
      return transposed ? x.transpose(-2, -1) : x;
    };
    const Tensor left = op(product.op == "dsd" ? sparse : a, t.a);
    const Tensor right = op(product.op == "dds" ? sparse : b, t.b);
    return [left, right] { matmul(left, right); };
  }

  Product product;
  LayoutPtr layout;
  Tensor a, b;
  SparseTensor s;
};

/// Bias and GELU of a dense result: in the product, without and with its argument kept, and in
/// kernels of their own behind it.
void run_epilogues(const Cell& cell, const LayoutPtr& layout, const Problem& problem,
                   const bench::Settings& settings, bench::Record& record) {
  const Tensor plain = problem.run(layout);
  const Element element = element_of(settings.dtype);
  const Tensor bias = randn({plain.size(-1)}, settings.dtype, settings.device);
  const Tensor before = Tensor::empty_like(plain);
  const epilogue::Value t = epilogue::accumulator() + epilogue::row("bias", element);
  const GemmEpilogue fused(epilogue::gelu_tanh(t));
  const GemmEpilogue kept = GemmEpilogue(fused).store("before", t, element);
  const std::vector<bench::Work> works{
      [&] { problem.run(layout); },
      [&] {
        problem.run(layout, {.epilogue = fused, .tensors = {{"bias", bias}}});
      },
      [&] {
        problem.run(layout, {.epilogue = kept, .tensors = {{"bias", bias}, {"before", before}}});
      },
      [&] { gelu(problem.run(layout) + bias, Gelu::tanh); },
  };
  const std::vector<bench::Timing> times =
      bench::interleave(settings.device, works, settings.measure);
  const char* const names[] = {"bs", "fused", "fused, kept", "apart"};
  const double result =
      static_cast<double>(plain.numel()) * static_cast<double>(size_of(settings.dtype));
  for (size_t i = 0; i < works.size(); ++i)
    record.add({.cell = cell.json(*layout, problem.product),
                .what = problem.product.name(),
                .by = names[i],
                .time = times[i],
                .flops = problem.flops(),
                .bytes = problem.bytes() + (i >= 2 ? result : 0)});
}

/// Sums over rows, and over columns, of a dense result: in the product, and of the rounded result
/// by kernels of their own.
void run_reductions(const Cell& cell, const LayoutPtr& layout, const Problem& problem,
                    const bench::Settings& settings, bench::Record& record) {
  const Tensor plain = problem.run(layout);
  const Tensor rows = Tensor::empty({plain.size(-2)}, f32, settings.device);
  const Tensor columns = Tensor::empty({plain.size(-1)}, f32, settings.device);
  const epilogue::Value sums = epilogue::accumulator();
  const GemmEpilogue of_rows = GemmEpilogue(sums).row_sum("rows", sums);
  const GemmEpilogue of_columns = GemmEpilogue(sums).column_sum("columns", sums);
  const GemmEpilogue nothing(sums);
  const std::vector<bench::Work> works{
      [&] { problem.run(layout, {.epilogue = nothing}); },
      [&] {
        problem.run(layout, {.epilogue = of_rows, .tensors = {{"rows", rows}}});
      },
      [&] {
        problem.run(layout, {.epilogue = of_columns, .tensors = {{"columns", columns}}});
      },
      [&] { sum(problem.run(layout), Dims{-1}); },
      [&] { sum(problem.run(layout), Dims{-2}); },
  };
  const std::vector<bench::Timing> times =
      bench::interleave(settings.device, works, settings.measure);
  const char* const names[] = {"empty epilogue", "row sums", "column sums", "row sums apart",
                               "column sums apart"};
  for (size_t i = 0; i < works.size(); ++i)
    record.add({.cell = cell.json(*layout, problem.product),
                .what = problem.product.name(),
                .by = names[i],
                .time = times[i],
                .flops = problem.flops(),
                .bytes = problem.bytes()});
}

void run(const Cell& cell, const LayoutPtr& layout, const Product& product,
         const bench::Settings& settings, bench::Record& record) {
  const Problem problem(product, layout, settings);
  problem.check();
  if (cell.set == "epilogue") return run_epilogues(cell, layout, problem, settings, record);
  if (cell.set == "reductions") return run_reductions(cell, layout, problem, settings, record);
  std::vector<bench::Work> works{[&] { problem.run(layout); }};
  if (const bench::Work dense = problem.dense()) works.push_back(dense);
  const std::vector<bench::Timing> times =
      bench::interleave(settings.device, works, settings.measure);
  // What the first product on a new layout costs above the others: its tables on the device.
  const LayoutPtr twin = Layout::from_mask(layout->mask(), layout->block());
  const double first = bench::once(settings.device, [&] { problem.run(twin); });
  record.add({.cell = cell.json(*layout, product),
              .what = product.name(),
              .time = times[0],
              .flops = problem.flops(),
              .bytes = problem.bytes(),
              .further = {{"plan_seconds", std::max(0.0, first - times[0].median)}}});
  if (works.size() > 1)
    record.add({.cell = cell.json(*layout, product),
                .what = product.name(),
                .by = "dense",
                .time = times[1],
                .flops = problem.flops(),
                .bytes = problem.bytes()});
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> sets{"transposes"};
  bench::CellOptions options{.size = 2048};
  std::vector<std::string> wanted{""};  // what every name begins with
  std::string exported;
  int tf32 = 0;
  arguments.read("--sets", sets);
  arguments.read("--size", options.size);
  arguments.read("--width", options.width);
  arguments.read("--blocks", options.blocks);
  arguments.read("--densities", options.densities);
  arguments.read("--patterns", options.patterns);
  arguments.read("--heads", options.heads);
  arguments.read("--products", wanted);
  arguments.read("--export", exported);
  arguments.read("--tf32", tf32);
  arguments.finish();

  std::vector<Cell> cells;
  for (const std::string& set : sets)
    for (Cell& cell : bench::make_cells(set, options)) {
      std::erase_if(cell.products, [&](const Product& product) {
        return std::none_of(wanted.begin(), wanted.end(), [&](const std::string& beginning) {
          return product.name().starts_with(beginning);
        });
      });
      cells.push_back(std::move(cell));
    }
  if (!exported.empty()) {
    bench::write_text(exported, bench::export_cells(cells, tf32 != 0).dump() + "\n");
    return 0;
  }
  const TF32Guard guard(tf32 != 0);
  bench::Record record("block_sparse_matmul", settings);
  for (const Cell& cell : cells) {
    const LayoutPtr layout = bench::make_layout(cell.pattern);
    for (const Product& product : cell.products) run(cell, layout, product, settings, record);
  }
  record.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
