#include <bs/bench/block_sparse_cells.h>
#include <bs/lib/patterns.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

namespace bs::bench {

namespace {

using Engine =
    std::mt19937_64;  // the same numbers everywhere, unlike the distributions of <random>

size_t below(Engine& engine, size_t n) { return engine() % n; }

/// Lengths that fall as scale / rank, in [1, cols].
std::vector<int> zipf_lengths(int rows, int cols, double scale) {
  std::vector<int> lengths;
  for (int rank = 1; rank <= rows; ++rank)
    lengths.push_back(std::clamp(static_cast<int>(std::lround(scale / rank)), 1, cols));
  return lengths;
}

LayoutPtr zipf(const Pattern& p) {
  const auto total = [&](double scale) {
    const std::vector<int> lengths = zipf_lengths(p.rows, p.cols, scale);
    return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  };
  const double wanted = p.density * p.rows * p.cols;
  double low = 1, high = static_cast<double>(p.cols) * p.rows;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (static_cast<double>(total(middle)) < wanted ? low : high) = middle;
  }
  std::vector<int> lengths = zipf_lengths(p.rows, p.cols, high);
  Engine engine;
  std::vector<int> columns(static_cast<size_t>(p.cols));
  std::iota(columns.begin(), columns.end(), 0);
  std::vector<BlockIndex> blocks;
  for (int head = 0; head < p.heads; ++head) {
    for (size_t r = lengths.size(); r > 1; --r)
      std::swap(lengths[r - 1], lengths[below(engine, r)]);
    for (int r = 0; r < p.rows; ++r)
      for (size_t i = 0; i < static_cast<size_t>(lengths[static_cast<size_t>(r)]); ++i) {
        std::swap(columns[i], columns[i + below(engine, columns.size() - i)]);
        blocks.push_back({head, r, columns[i]});
      }
  }
  return Layout::from_blocks(p.heads, p.rows, p.cols, p.block, std::move(blocks));
}

/// Experts in pairs that own 3/2 and 1/2 of an equal share of the block rows.
LayoutPtr moe(const Pattern& p) {
  const int most = std::min(p.rows, p.cols);
  const auto wanted = static_cast<unsigned>(std::lround(1 / p.density));
  const int experts = std::min(static_cast<int>(std::bit_floor(std::max(wanted, 1U))), most);
  const int share = p.rows / experts;
  std::vector<int64_t> tokens(static_cast<size_t>(experts), int64_t{share} * p.block);
  for (size_t e = 0; e + 1 < tokens.size(); e += 2) {
    tokens[e] += int64_t{share / 2} * p.block;
    tokens[e + 1] -= int64_t{share / 2} * p.block;
  }
  return patterns::moe(tokens, p.cols / experts * int64_t{p.block}, p.block);
}

/// The window and its share of columns for all whose density is nearest: powers of two.
LayoutPtr fixed(const Pattern& p) {
  patterns::FixedOptions best;
  double nearest = 2;
  for (int local = 1; local <= p.rows; local *= 2)
    for (int global = 1; global <= local; global *= 2) {
      const double window = static_cast<double>(local) / p.rows;
      const double density = window + (1 - window) * global / local;
      if (std::abs(density - p.density) >= nearest) continue;
      nearest = std::abs(density - p.density);
      best = {.local_blocks = local, .global_blocks = global};
    }
  return patterns::fixed({.rows = p.rows, .block = p.block}, best);
}

LayoutPtr bigbird(const Pattern& p) {
  const int row = std::clamp(static_cast<int>(p.density * p.rows), 4, p.rows);
  const int global = std::max(1, row / 8), window = row / 4 * 2 + 1;
  return patterns::bigbird({.rows = p.rows, .block = p.block},
                           {.random_blocks = std::max(1, row - window - 2 * global),
                            .window_blocks = std::min(window, p.rows),
                            .global_blocks = global});
}

std::vector<Product> untransposed(int64_t width) {
  return {{"sdd", {}, 1, width}, {"dsd", {}, 1, width}, {"dds", {}, 1, width}};
}

/// op, m, k, n of the product, as one writes it.
Cell reference_cell(const Product& product, int64_t m, int64_t k, int64_t n, int block,
                    double density) {
  const Transpose t = product.transpose;
  int64_t rows = m, cols = n;
  if (product.op == "dsd") rows = t.a ? k : m, cols = t.a ? m : k;
  if (product.op == "dds") rows = t.b ? n : k, cols = t.b ? k : n;
  Cell cell{.set = "reference",
            .pattern = {.name = "random",
                        .rows = static_cast<int>(rows / block),
                        .cols = static_cast<int>(cols / block),
                        .block = block,
                        .density = density},
            .products = {product}};
  cell.products[0].width = product.op == "sdd" ? k : product.op == "dsd" ? n : m;
  return cell;
}

std::vector<Cell> reference_cells() {
  constexpr int64_t n = 8192;
  std::vector<Cell> cells{
      reference_cell({"dsd", {}}, n, n, n, 128, 0.25),
      reference_cell({"dsd", {}}, n, n, n, 64, 0.1),
      reference_cell({"dsd", {}}, n, n, n, 32, 0.1),
      reference_cell({"dsd", {}}, n, n, n, 16, 0.05),
      reference_cell({"dsd", {.a = true}}, 4096, 16384, 4096, 64, 0.25),
      reference_cell({"sdd", {.b = true}}, n, 4096, n, 128, 0.25),
      reference_cell({"sdd", {.b = true}}, n, 4096, n, 32, 0.1),
      // Scores of 32 heads, and a layer of 64 experts for 32768 tokens.
      reference_cell({"sdd", {.b = true}, 32}, 4096, 64, 4096, 64, 0.1),
      reference_cell({"sdd", {}}, 32768, 768, 64 * 3072, 128, 1.0 / 64),
      reference_cell({"dsd", {}}, 32768, 64 * 3072, 768, 128, 1.0 / 64),
  };
  cells[8].pattern.name = cells[9].pattern.name = "moe";
  return cells;
}

}  // namespace

LayoutPtr make_layout(const Pattern& p) {
  const patterns::Size size{.heads = p.heads, .rows = p.rows, .cols = p.cols, .block = p.block};
  if (p.name == "random") return patterns::random(size, {.density = p.density});
  if (p.name == "zipf") return zipf(p);
  BS_CHECK(p.heads == 1, "bench: the pattern '{}' has one head", p.name);
  if (p.name == "banded") {
    const int window = static_cast<int>(p.density * p.cols / 2) * 2 + 1;
    return patterns::sliding_window(size,
                                    {.window_blocks = std::min(window, p.cols), .causal = false});
  }
  if (p.name == "bigbird") return bigbird(p);
  if (p.name == "fixed") return fixed(p);
  BS_CHECK(p.name == "moe", "bench: unknown pattern '{}'", p.name);
  return moe(p);
}

std::string Product::name() const {
  return op + (transpose.a ? " t" : " n") + (transpose.b ? "t" : "n");
}

Json::Object Cell::json(const Layout& layout, const Product& product) const {
  Json::Object cell{{"set", set},
                    {"pattern", pattern.name},
                    {"block", pattern.block},
                    {"density", std::round(1e4 * layout.density()) / 1e4},
                    {"rows", layout.height()},
                    {"cols", layout.width()},
                    {"width", product.width}};
  if (product.batch > 1) cell.emplace_back("batch", product.batch);
  if (layout.heads() > 1) cell.emplace_back("heads", layout.heads());
  return cell;
}

std::vector<Cell> make_cells(const std::string& set, const CellOptions& options) {
  if (set == "reference") return reference_cells();
  const std::vector<std::string> sets{"sweep",    "transposes", "patterns",
                                      "epilogue", "reductions", "heads"};
  BS_CHECK(std::find(sets.begin(), sets.end(), set) != sets.end(),
           "bench: unknown set '{}'; there are reference, sweep, transposes, patterns, epilogue, "
           "reductions and heads",
           set);
  std::vector<double> densities = options.densities;
  if (densities.empty())
    densities = set == "sweep"        ? std::vector{0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0}
                : set == "transposes" ? std::vector{0.1, 0.3}
                                      : std::vector{0.1, 0.25};
  const int64_t width = options.width > 0 ? options.width : options.size;
  std::vector<Product> products = untransposed(width);
  if (set == "transposes")
    for (const Transpose t : {Transpose{.b = true}, Transpose{.a = true}, Transpose{true, true}})
      for (const Product& product : untransposed(width))
        products.push_back({product.op, t, 1, width});
  if (set == "epilogue" || set == "reductions")
    products = {{"dsd", {}, 1, width}, {"dds", {.b = true}, 1, width}};
  std::vector<std::string> names{"random"};
  if (set == "patterns") names = {"random", "zipf", "banded", "bigbird", "fixed", "moe"};
  if (set == "heads") names = {"random", "zipf"};
  if ((set == "patterns" || set == "heads") && !options.patterns.empty()) names = options.patterns;
  std::vector<Cell> cells;
  for (const int block : options.blocks) {
    BS_CHECK(options.size % block == 0, "bench: blocks of {} do not divide size {}", block,
             options.size);
    const int blocks = static_cast<int>(options.size / block);
    for (const std::string& name : names)
      for (const double density : densities)
        cells.push_back({set,
                         {name, blocks, blocks, block, density, set == "heads" ? options.heads : 1},
                         products});
  }
  return cells;
}

Json export_layout(const std::string& name, const Layout& layout) {
  const LayoutView view = layout.view(Device::cpu());
  return Json::Object{
      {"pattern", name},
      {"block", view.block},
      {"rows", view.rows},
      {"cols", view.cols},
      {"row_offsets", Json::Array(view.row_offsets, view.row_offsets + view.rows + 1)},
      {"columns", Json::Array(view.col_of, view.col_of + view.nnz)}};
}

Json export_cells(const std::vector<Cell>& cells, bool tf32) {
  Json::Array layouts, products;
  std::vector<Pattern> seen;
  for (const Cell& cell : cells) {
    const LayoutPtr layout = make_layout(cell.pattern);
    const auto found = std::find(seen.begin(), seen.end(), cell.pattern);
    const auto index = static_cast<int64_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(cell.pattern);
      layouts.push_back(export_layout(cell.pattern.name, *layout));
    }
    for (const Product& product : cell.products)
      products.emplace_back(Json::Object{{"layout", index},
                                         {"cell", cell.json(*layout, product)},
                                         {"what", product.name()},
                                         {"op", product.op},
                                         {"ta", product.transpose.a},
                                         {"tb", product.transpose.b},
                                         {"batch", product.batch},
                                         {"width", product.width}});
  }
  return Json::Object{
      {"layouts", std::move(layouts)}, {"products", std::move(products)}, {"tf32", tf32}};
}

}  // namespace bs::bench
