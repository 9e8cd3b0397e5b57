#pragma once
/** @file The problems of bench_block_sparse_matmul: which layouts, products and sizes; and their
 *  file, from which peers read the same ones. */
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/lib/json.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bs::bench {

/** @brief A pattern of block-sparse matrices. */
struct Pattern {
  std::string name;        ///< random, zipf, banded, bigbird, fixed or moe
  int rows = 0, cols = 0;  ///< blocks
  int block = 0;
  double density = 0;  ///< asked for; structured patterns come as near as they can
  int heads = 1;       ///< each of its own; random and zipf only
  bool operator==(const Pattern&) const = default;
};

/** @brief The layout of a pattern: the same at each call and on each machine.
 *
 *  zipf: row lengths fall as 1 / rank, from all columns to one block, rows shuffled. moe: experts
 * of unequal shares of the rows, each with as many columns. @throws Error for an unknown name. */
LayoutPtr make_layout(const Pattern& pattern);

/** @brief One product to measure. */
struct Product {
  std::string op;  ///< sdd, dsd or dds
  Transpose transpose;
  int64_t batch = 1;
  int64_t width = 0;  ///< the extent that the layout does not tell: k of sdd, n of dsd, m of dds
  std::string name() const;  ///< "dsd tn": left operand transposed
};

/** @brief Products on one layout. */
struct Cell {
  std::string set;  ///< the set this belongs to
  Pattern pattern;
  std::vector<Product> products;
  /** @brief What names the cell in records. */
  Json::Object json(const Layout& layout, const Product& product) const;
};

struct CellOptions {
  int64_t size = 4096;
  int64_t width = 0;  ///< of the products; 0: size
  std::vector<int> blocks = {16, 32, 64, 128};
  std::vector<double> densities = {};      ///< empty: those of the set
  std::vector<std::string> patterns = {};  ///< of the set `patterns`; empty: all
  int heads = 8;                           ///< of the set `heads`
};

/** @brief The cells of a set:
 *  - `reference`: the sizes of models that block-sparse products are used in (some need 2 GB)
 *  - `sweep`: random layouts from nearly empty to dense, for the crossover with the dense product
 *  - `transposes`: every product in every transposition
 *  - `patterns`: structured layouts, and rows of unequal length
 *  - `epilogue`: products of a layer, to be timed with bias and activation
 *  - `reductions`: the same, to be timed with sums over rows and columns
 *  - `heads`: random layouts, and rows of unequal length, of several heads
 *  @throws Error for an unknown set, or a block that does not divide the size. */
std::vector<Cell> make_cells(const std::string& set, const CellOptions& options);

/** @brief A layout of one head as JSON: {"pattern": name, "block", "rows", "cols", "row_offsets",
 *  "columns"}. */
Json export_layout(const std::string& name, const Layout& layout);
/** @brief Cells and layouts as JSON: {"layouts": [export_layout()], "products": [{"layout": index,
 *  "cell": json(), "what": name(), "op", "ta", "tb", "batch", "width"}], "tf32": whether f32 may be
 *  rounded to TF32}. */
Json export_cells(const std::vector<Cell>& cells, bool tf32);

}  // namespace bs::bench
