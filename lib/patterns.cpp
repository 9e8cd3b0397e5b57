#include <bs/lib/patterns.h>

#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace bs::patterns {

namespace {

int columns(const Size& size) { return size.cols == -1 ? size.rows : size.cols; }

void check_size(const char* op, const Size& size) {
  BS_CHECK(size.heads >= 0 && size.rows >= 0 && columns(size) >= 0,
           "{}: negative extent: {} heads of {} x {} blocks", op, size.heads, size.rows, size.cols);
  constexpr int most = 1 << 24;  // before anything is made that grows with them
  BS_CHECK(std::max({size.heads, size.rows, columns(size)}) <= most,
           "{}: {} heads of {} x {} blocks; each is at most {}", op, size.heads, size.rows,
           columns(size), most);
}

void check_square(const char* op, const Size& size) {
  check_size(op, size);
  BS_CHECK(columns(size) == size.rows, "{}: the pattern must be square, not {} x {} blocks", op,
           size.rows, size.cols);
}

/// The finaliser of SplitMix64 (Steele et al. 2014): a bijection whose every bit depends on all.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// SplitMix64 as a counter-based generator: the n-th number of a seed and stream.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, int64_t stream)
      : state_(mix(seed) ^ mix(~static_cast<uint64_t>(stream))) {}
  /// Uniform in [0, n), without bias: numbers of an incomplete last round are drawn anew.
  int64_t below(int64_t n) {
    const auto range = static_cast<uint64_t>(n);
    const uint64_t incomplete = (0 - range) % range;
    uint64_t drawn = 0;
    do {
      drawn = mix(state_ += 0x9e3779b97f4a7c15ULL);
    } while (drawn < incomplete);
    return static_cast<int64_t>(drawn % range);
  }

 private:
  uint64_t state_;
};

/// A set of numbers >= 0, by open addressing: drawing millions costs no allocation each.
class NumberSet {
 public:
  explicit NumberSet(int64_t capacity)
      : slots_(std::bit_ceil(2 * static_cast<size_t>(capacity) + 1), -1) {}
  /// Whether it was not there before.
  bool insert(int64_t number) {
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(mix(static_cast<uint64_t>(number))) & mask;
    while (slots_[at] >= 0 && slots_[at] != number) at = (at + 1) & mask;
    return std::exchange(slots_[at], number) < 0;
  }

 private:
  std::vector<int64_t> slots_;
};

/// `count` different numbers below `n`, ascending, every set equally likely.
std::vector<int64_t> draw_sorted(CounterRandom& generator, int64_t n, int64_t count) {
  if (2 * count > n) {  // draw those to leave out
    const std::vector<int64_t> absent = draw_sorted(generator, n, n - count);
    std::vector<int64_t> rest;
    rest.reserve(static_cast<size_t>(count));
    auto skip = absent.begin();
    for (int64_t i = 0; i < n; ++i) {
      if (skip != absent.end() && *skip == i)
        ++skip;
      else
        rest.push_back(i);
    }
    return rest;
  }
  std::vector<int64_t> drawn;  // R. W. Floyd's algorithm
  drawn.reserve(static_cast<size_t>(count));
  NumberSet taken(count);
  for (int64_t top = n - count; top < n; ++top) {
    const int64_t number = generator.below(top + 1);
    const int64_t chosen = taken.insert(number) ? number : top;
    taken.insert(chosen);
    drawn.push_back(chosen);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

/// A pattern stated row by row: `keep_row(head, row, keep)` calls `keep(begin, end)` for runs of
/// columns, which may overlap and reach outside. Unless `heads_differ`, head 0 serves for all.
template <class KeepRow>
LayoutPtr build(const Size& size, bool causal, bool heads_differ, KeepRow&& keep_row) {
  const int cols = columns(size);
  std::vector<BlockIndex> blocks;
  std::vector<int64_t> kept_in(static_cast<size_t>(std::max(cols, 0)), -1);  // last row, by column
  const int built = heads_differ ? size.heads : std::min(size.heads, 1);
  for (int head = 0; head < built; ++head) {
    for (int row = 0; row < size.rows; ++row) {
      const int64_t line = int64_t{head} * size.rows + row;
      keep_row(head, row, [&](int begin, int end) {
        end = std::min(end, causal ? row + 1 : cols);
        for (int col = std::max(begin, 0); col < end; ++col) {
          int64_t& last = kept_in[static_cast<size_t>(col)];
          if (last != line) blocks.push_back({head, row, col});
          last = line;
        }
      });
    }
  }
  const size_t first = blocks.size();
  for (int head = built; head < size.heads; ++head)
    for (size_t i = 0; i < first; ++i) blocks.push_back({head, blocks[i].row, blocks[i].col});
  return Layout::from_blocks(size.heads, size.rows, cols, size.block, std::move(blocks));
}

void check_ranges(const char* op, const std::vector<BlockRange>& ranges) {
  for (const BlockRange& r : ranges)
    BS_CHECK(r.begin >= 0 && r.begin < r.end, "{}: global blocks [{}, {}) are no range", op,
             r.begin, r.end);
}

/// Columns that every row keeps; with `horizontal` the same rows keep every column.
template <class Keep>
void keep_globals(const std::vector<BlockRange>& ranges, int row, int cols, bool horizontal,
                  Keep&& keep) {
  for (const BlockRange& r : ranges) {
    keep(r.begin, r.end);
    if (horizontal && row >= r.begin && row < r.end) keep(0, cols);
  }
}

void check_window(const char* op, const Size& size, int window) {
  BS_CHECK(window >= 1 && window <= size.rows, "{}: a window of {} blocks in a pattern of {}", op,
           window, size.rows);
}

void check_random(const char* op, const Size& size, int count) {
  BS_CHECK(count >= 0 && count <= size.rows, "{}: {} random blocks in rows of {}", op, count,
           size.rows);
}

template <class Keep>
void keep_window(int window, int row, Keep&& keep) {
  keep(row - window / 2, row + window / 2 + 1);
}

/// `count` random columns, or all of a causal row that is shorter.
template <class Keep>
void keep_random(const Size& size, uint64_t seed, int count, bool causal, int head, int row,
                 Keep&& keep) {
  const int candidates = causal ? row + 1 : size.rows;
  CounterRandom generator(seed, int64_t{head} * size.rows + row);
  for (int64_t drawn : draw_sorted(generator, candidates, std::min(count, candidates))) {
    const auto col = static_cast<int>(drawn);
    keep(col, col + 1);
  }
}

}  // namespace

LayoutPtr dense(const Size& size, const DenseOptions& options) {
  check_size("dense", size);
  if (options.causal) check_square("dense", size);
  return build(size, options.causal, false, [&](int, int, auto&& keep) { keep(0, columns(size)); });
}

LayoutPtr fixed(const Size& size, const FixedOptions& options) {
  const int local = options.local_blocks;
  const int global = options.global_blocks;
  const int patterns = options.global_patterns;
  check_square("fixed", size);
  BS_CHECK(local >= 1 && global >= 1 && local % global == 0,
           "fixed: {} global blocks do not divide a window of {}", global, local);
  BS_CHECK(patterns >= 1 && patterns <= local / global,
           "fixed: {} global patterns; a window of {} blocks has {} groups of {}", patterns, local,
           local / global, global);
  BS_CHECK(!(options.horizontal && options.causal),
           "fixed: causal patterns have no horizontal globals");
  const int whole = size.rows - size.rows % local;  // end of the last whole window
  const int used = std::min(patterns, std::max(size.heads, 1));
  std::vector<std::vector<BlockRange>> globals(static_cast<size_t>(used));
  for (int p = 0; p < used; ++p) {
    const int first = local - (1 + p) * global;
    auto& ranges = globals[static_cast<size_t>(p)];
    for (int at = first; at < whole; at += local) ranges.push_back({at, at + global});
    if (whole < size.rows) {
      const int at = std::max(0, std::min(whole + first, size.rows - global));
      ranges.push_back({at, at + global});
    }
  }
  return build(size, options.causal, patterns > 1, [&](int head, int row, auto&& keep) {
    const int window = row / local * local;
    keep(window, window + std::min(local, size.rows - window));
    keep_globals(globals[static_cast<size_t>(head % used)], row, size.rows, options.horizontal,
                 keep);
  });
}

LayoutPtr strided(const Size& size, const StridedOptions& options) {
  check_square("strided", size);
  BS_CHECK(options.stride >= 1, "strided: stride {} is not positive", options.stride);
  const int stride = std::min(options.stride, std::max(size.rows, 1));  // the same pattern
  const bool alternate = options.alternate_heads;
  return build(size, options.causal, alternate, [&](int head, int row, auto&& keep) {
    if (!alternate || head % 2 == 0) keep(row - stride + 1, row + stride);
    if (!alternate || head % 2 == 1)
      for (int col = row % stride; col < size.rows; col += stride) keep(col, col + 1);
  });
}

LayoutPtr variable(const Size& size, const VariableOptions& options) {
  check_square("variable", size);
  check_ranges("variable", options.globals);
  check_random("variable", size, options.random_blocks);
  BS_CHECK(!options.windows.empty(), "variable: no window is given");
  for (int window : options.windows)
    BS_CHECK(window >= 1, "variable: a window of {} blocks", window);
  BS_CHECK(!(options.horizontal && options.causal),
           "variable: causal patterns have no horizontal globals");
  std::vector<BlockRange> windows;  // that of each row
  for (size_t i = 0; static_cast<int>(windows.size()) < size.rows; ++i) {
    const int length = options.windows[std::min(i, options.windows.size() - 1)];
    const auto begin = static_cast<int>(windows.size());
    const int end = begin + std::min(length, size.rows - begin);
    windows.resize(static_cast<size_t>(end), {begin, end});
  }
  const bool heads_differ = options.different_per_head && options.random_blocks > 0;
  return build(size, options.causal, heads_differ, [&](int head, int row, auto&& keep) {
    const BlockRange& own = windows[static_cast<size_t>(row)];
    keep(own.begin, own.end);
    keep_globals(options.globals, row, size.rows, options.horizontal, keep);
    keep_random(size, options.seed, options.random_blocks, options.causal, head, row, keep);
  });
}

LayoutPtr bigbird(const Size& size, const BigBirdOptions& options) {
  check_square("bigbird", size);
  check_window("bigbird", size, options.window_blocks);
  check_random("bigbird", size, options.random_blocks);
  BS_CHECK(options.global_blocks >= 0 && options.global_blocks <= size.rows,
           "bigbird: {} global blocks in a pattern of {}", options.global_blocks, size.rows);
  const std::vector<BlockRange> globals = {{0, options.global_blocks}};
  const bool heads_differ = options.different_per_head && options.random_blocks > 0;
  return build(size, options.causal, heads_differ, [&](int head, int row, auto&& keep) {
    keep_window(options.window_blocks, row, keep);
    keep_globals(globals, row, size.rows, true, keep);
    keep_random(size, options.seed, options.random_blocks, options.causal, head, row, keep);
  });
}

LayoutPtr longformer(const Size& size, const LongformerOptions& options) {
  check_square("longformer", size);
  check_window("longformer", size, options.window_blocks);
  check_ranges("longformer", options.globals);
  return build(size, options.causal, false, [&](int, int row, auto&& keep) {
    keep_window(options.window_blocks, row, keep);
    keep_globals(options.globals, row, size.rows, true, keep);
  });
}

LayoutPtr sliding_window(const Size& size, const SlidingWindowOptions& options) {
  check_square("sliding_window", size);
  check_window("sliding_window", size, options.window_blocks);
  return build(size, options.causal, false,
               [&](int, int row, auto&& keep) { keep_window(options.window_blocks, row, keep); });
}

LayoutPtr random(const Size& size, const RandomOptions& options) {
  check_size("random", size);
  if (options.causal) check_square("random", size);
  BS_CHECK(options.density >= 0 && options.density <= 1, "random: density {} is not in [0, 1]",
           options.density);
  const int64_t rows = size.rows;
  const int64_t cols = columns(size);
  const int64_t candidates = options.causal ? rows * (rows + 1) / 2 : rows * cols;
  const int64_t count = std::llround(options.density * static_cast<double>(candidates));
  std::vector<BlockIndex> blocks;
  for (int head = 0; head < size.heads; ++head) {
    CounterRandom generator(options.seed, options.different_per_head ? head : 0);
    int32_t row = 0;
    int64_t begin = 0;  // candidates of this row are [begin, end)
    int64_t end = options.causal ? 1 : cols;
    for (int64_t at : draw_sorted(generator, candidates, count)) {
      for (; at >= end; end += options.causal ? row + 1 : cols) {
        begin = end;
        ++row;
      }
      blocks.push_back({head, row, static_cast<int32_t>(at - begin)});
    }
  }
  return Layout::from_blocks(size.heads, size.rows, columns(size), size.block, std::move(blocks));
}

LayoutPtr moe(std::span<const int64_t> tokens, int64_t width, int block) {
  BS_CHECK(block >= 1 && width >= 0 && width % block == 0,
           "moe: a width of {} is no multiple of the block {}", width, block);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const int64_t cols = width / block;
  const auto experts = static_cast<int64_t>(tokens.size());
  int64_t rows = 0;
  for (int64_t count : tokens) {
    BS_CHECK(count >= 0 && count <= most, "moe: {} tokens for an expert", count);
    rows += ceil_div(count, block);
  }
  BS_CHECK(rows < most && cols < most && experts * cols < most,
           "moe: {} x {} blocks for each of {} experts are too many", rows, cols, experts);
  std::vector<BlockIndex> blocks;
  int32_t row = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = tokens[static_cast<size_t>(e)];
    for (const auto end = row + static_cast<int32_t>(ceil_div(count, block)); row < end; ++row)
      for (int64_t col = e * cols; col < (e + 1) * cols; ++col)
        blocks.push_back({0, row, static_cast<int32_t>(col)});
  }
  return Layout::from_blocks(1, row, static_cast<int>(experts * cols), block, std::move(blocks));
}

LayoutPtr documents(std::span<const int64_t> starts, int block, const DocumentOptions& options) {
  BS_CHECK(block >= 1, "documents: blocks of {}", block);
  BS_CHECK(!starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end()),
           "documents: {} starts do not ascend from 0", starts.size());
  const int64_t tokens = starts.back(), rows = tokens / block + (tokens % block == 0 ? 0 : 1);
  check_size("documents",
             {.rows = static_cast<int>(std::min<int64_t>(rows, std::numeric_limits<int>::max()))});
  std::vector<BlockIndex> blocks;
  auto first = starts.begin();  // of the document that has the row's first token
  for (int64_t row = 0; row < rows; ++row) {
    while (first[1] <= row * block) ++first;
    auto last = first;  // of the document that has its last token
    while (last[1] < std::min((row + 1) * block, tokens)) ++last;
    const int64_t end = options.causal ? row + 1 : ceil_div(last[1], block);
    for (int64_t col = *first / block; col < end; ++col)
      blocks.push_back({0, static_cast<int32_t>(row), static_cast<int32_t>(col)});
  }
  const int count = static_cast<int>(rows);
  return Layout::from_blocks(1, count, count, block, std::move(blocks));
}

LayoutPtr stack_heads(std::span<const LayoutPtr> layouts) {
  BS_CHECK(!layouts.empty(), "stack_heads: no layout is given");
  for (size_t i = 0; i < layouts.size(); ++i)
    BS_CHECK(layouts[i], "stack_heads: layout {} of {} is null", i, layouts.size());
  const Layout& first = *layouts.front();
  std::vector<BlockIndex> blocks;
  int heads = 0;
  for (const LayoutPtr& layout : layouts) {
    BS_CHECK(layout->rows() == first.rows() && layout->cols() == first.cols() &&
                 layout->block() == first.block(),
             "stack_heads: {} x {} blocks of {} beside {} x {} blocks of {}", first.rows(),
             first.cols(), first.block(), layout->rows(), layout->cols(), layout->block());
    const LayoutView v = layout->view(Device::cpu());
    for (int32_t i = 0; i < v.nnz; ++i)
      blocks.push_back({heads + v.head_of[i], v.row_of[i], v.col_of[i]});
    heads += layout->heads();
  }
  return Layout::from_blocks(heads, first.rows(), first.cols(), first.block(), std::move(blocks));
}

}  // namespace bs::patterns
