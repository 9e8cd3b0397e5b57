#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cpu/block_sparse_epilogue.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/lib/failure.h>

namespace bs::cpu {

namespace {

/// Slots of scratch(); the lower ones are gemm's.
enum Slot { packed_left = 4, packed_right = 5, own_blocks = 6, wide_sums = 7 };

/// Multiply-adds that pay for waking a thread.
constexpr double worth_a_thread = 1 << 20;

/// `p` moved on by elements. That of a tensor without elements is null and stays so.
template <class T>
T* moved(T* p, int64_t by) {
  return p == nullptr ? p : p + by;
}

/// Rows of sums, `length` neighbours in each, on their way through an epilogue. `at` is where the
/// first lies in rows and columns, `in` where in tensors of the result's shape.
template <class W>
void finish(EpilogueRows<W>& rows, EpilogueReductions<W>& reductions, const W* sums, int64_t count,
            int64_t length, EpiloguePlace at, EpiloguePlace in) {
  constexpr int64_t most = EpilogueRows<W>::most;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < length; j += most) {
      const EpiloguePlace place{in.batch, in.row + i, in.column + j};
      const int64_t some = std::min(most, length - j);
      rows.run({at.batch, at.row + i, at.column + j}, place, some, sums + i * length + j);
      reductions.take(rows, place, some);
    }
}

/// A dsd in independent tasks. Every matrix of the batch is cut into strips of columns and, where
/// these are too few for the team, into runs of block rows. A task packs its strip of B, which then
/// stays in the cache while the blocks stream past it. A block row is one chain of products, summed
/// in registers. E is what panels hold.
template <class T, class E>
class Dsd {
  static constexpr bool of_pairs = std::is_same_v<E, Bfloat16x2>;

 public:
  using W = Wide<T>;

  Dsd(const DsdProblem& problem, const T* values, const T* b, T* c, int team)
      : p_(problem), values_(values), b_(b), c_(c) {
    constexpr int64_t cached = 512 * 1024 / static_cast<int64_t>(sizeof(E));  // half of a usual L2
    constexpr int64_t panel = Tile<E>::cols;
    const int64_t depth = std::max<int64_t>(1, panel_depth<E>(p_.k()) * p_.sum.numel());
    const int64_t wanted = team > 1 ? 4 * team : 1;
    strip_ = std::max<int64_t>(2, cached / depth / panel) * panel;
    strip_ = std::min(strip_, ceil_div(p_.n, panel) * panel);
    while (strip_ > panel && p_.batch.numel() * strips() < wanted)
      strip_ = ceil_div(strip_ / 2, panel) * panel;
    const int64_t missing = ceil_div(wanted, std::max<int64_t>(1, p_.batch.numel() * strips()));
    runs_ = std::min<int64_t>(missing, p_.block_rows());
    const int64_t block = p_.layout.block, m = p_.block_rows() * block;
    reductions_ =
        by_columns()
            ? EpilogueReductions<W>(p_.epilogue, {p_.batch.numel(), p_.n, m}, panel, block)
            : EpilogueReductions<W>(p_.epilogue, {p_.batch.numel(), m, p_.n}, block, panel);
  }

  /// Behind the last task.
  void reduce() const { reductions_.reduce(); }

  int64_t tasks() const { return p_.batch.numel() * strips() * runs_; }

  void run(int64_t task) {
    const int64_t run = task % runs_, strip = task / runs_ % strips(), z = task / runs_ / strips();
    const int64_t column = strip * strip_, width = std::min(strip_, p_.n - column);
    const int64_t block = p_.layout.block;
    const int64_t k = panel_depth<E>(p_.k()), block_k = panel_depth<E>(block);
    const PanelLayout left = !p_.transposed ? direct_a<E>(block_k, 1)
                             : of_pairs     ? packed_a<E>(block_k)
                                            : direct_a<E>(1, block);
    const E* packed = pack(z, column, width);
    T* c = c_ + p_.batch.offset(2, z) + column * p_.c.col;
    const int64_t first = p_.block_rows() * run / runs_, end = p_.block_rows() * (run + 1) / runs_;
    std::vector<const T*> blocks;
    std::vector<PanelPair<E>> chain;
    const auto multiply = [&]<class Out>(int64_t row, Out* to, int64_t rows, int64_t cols) {
      collect(z, row, packed, packed_b_size<E>(k, width), blocks, chain);
      multiply_panels<E, Out>(block, width, block_k, chain, left, packed_b<E>(k), W(1), W(0), to,
                              rows, cols);
    };
    if (p_.epilogue) return finish_rows(z, first, end, column, width, multiply);
    for (int64_t row = first; row < end; ++row)
      multiply(row, c + row * block * p_.c.row, p_.c.row, p_.c.col);
  }

 private:
  /// Block rows [first, end) of a strip through the epilogue. Where C is written by columns,
  /// several at a time: what is finished together lies along them.
  template <class Multiply>
  void finish_rows(int64_t z, int64_t first, int64_t end, int64_t column, int64_t width,
                   const Multiply& multiply) {
    const BlockSparseEpilogue& e = *p_.epilogue;
    EpilogueRows<W> rows(e.expression, e.operands, e.scalars);
    const int64_t block = p_.layout.block;
    const int64_t together = by_columns() ? std::max<int64_t>(1, 256 / block) : 1;
    for (int64_t row = first; row < end; row += together) {
      const int64_t height = std::min(together, end - row) * block;
      const int64_t length = by_columns() ? height : width;
      W* sums = scratch<W>(wide_sums, height * width);
      for (int64_t i = 0; i * block < height; ++i)
        multiply(row + i, sums + i * block, by_columns() ? 1 : length, by_columns() ? length : 1);
      const EpiloguePlace at = by_columns() ? EpiloguePlace{z, column, row * block}
                                            : EpiloguePlace{z, row * block, column};
      finish(rows, reductions_, sums, by_columns() ? width : height, length, at, at);
    }
  }

  bool by_columns() const { return p_.c.col != 1; }

  int64_t strips() const { return ceil_div(p_.n, strip_); }

  /// A strip of every B that is summed into this C, one after the other.
  const E* pack(int64_t z, int64_t column, int64_t width) const {
    const int64_t size = packed_b_size<E>(panel_depth<E>(p_.k()), width);
    E* packed = scratch<E>(packed_right, p_.sum.numel() * size);
    const T* b = moved(b_, p_.batch.offset(1, z) + column * p_.b.col);
    for (int64_t s = 0; s < p_.sum.numel(); ++s)
      pack_b<E, T>(p_.k(), width, moved(b, p_.sum.offset(1, s)), p_.b.row, p_.b.col,
                   packed + s * size);
    return packed;
  }

  /// The products that one block row of C is the sum of.
  void collect(int64_t z, int64_t row, const E* packed, int64_t size, std::vector<const T*>& blocks,
               std::vector<PanelPair<E>>& chain) const {
    const LayoutView& l = p_.layout;
    const int64_t area = int64_t{l.block} * l.block;
    const int64_t step = panel_depth<E>(l.block) * Tile<E>::cols;
    const int32_t* offsets = p_.transposed ? l.col_offsets : l.row_offsets;
    blocks.clear();
    chain.clear();
    for (int64_t s = 0; s < p_.sum.numel(); ++s) {
      const int64_t first = p_.batch.offset(0, z) + p_.sum.offset(0, s);
      const int64_t head = p_.batch.offset(3, z) + p_.sum.offset(2, s);
      const int64_t line = head * p_.block_rows() + row;
      for (int32_t at = offsets[line]; at < offsets[line + 1]; ++at) {
        const int64_t number = p_.transposed ? l.transposed[at] : at;
        const int64_t depth = p_.transposed ? l.transposed_row[at] : l.col_of[at];
        blocks.push_back(values_ + (first + number * area));  // null where there are no blocks
        chain.push_back({nullptr, packed + s * size + depth * step});
      }
    }
    if (in_place()) {
      for (size_t i = 0; i < chain.size(); ++i) chain[i].a = reinterpret_cast<const E*>(blocks[i]);
      return;
    }
    const int64_t size_of_own = packed_a_size<E>(l.block, panel_depth<E>(l.block));
    E* own = scratch<E>(own_blocks, static_cast<int64_t>(blocks.size()) * size_of_own);
    for (size_t i = 0; i < chain.size(); ++i, own += size_of_own) {
      if constexpr (of_pairs)
        pack_a(l.block, l.block, blocks[i], 1, l.block, own);
      else
        widen(area, blocks[i], own);
      chain[i].a = own;
    }
  }

  /// Whether blocks hold left operands as they lie: elements, or pairs of neighbours in a row.
  bool in_place() const { return std::is_same_v<E, T> || (of_pairs && !p_.transposed); }

  const DsdProblem& p_;
  const T* values_;
  const T* b_;
  T* c_;
  int64_t strip_ = 0;  ///< columns, a multiple of a panel's
  int64_t runs_ = 1;   ///< runs of block rows
  /// Of pieces that lie in one task, however many there are.
  EpilogueReductions<W> reductions_;
};

/// One head of one S of an sdd, computed by a team. For each step of the depth, over all products
/// of the sum, A and B are packed together. Then blocks are taken one by one. E is what panels
/// hold.
template <class T, class E>
class Sdd {
 public:
  using W = Wide<T>;

  Sdd(const SddProblem& problem, EpilogueReductions<W>& reductions, const T* a, const T* b,
      T* values, int64_t task)
      : p_(problem),
        reductions_(reductions),
        batch_(task / p_.layout.heads),
        head_(task % p_.layout.heads),
        a_(moved(a, p_.batch.offset(0, batch_) + head_ * p_.a_head)),
        b_(moved(b, p_.batch.offset(1, batch_) + head_ * p_.b_head)),
        values_(moved(values, p_.batch.offset(2, batch_))),
        first_(p_.layout.row_offsets[head_ * p_.layout.rows]),
        count_(p_.layout.row_offsets[(head_ + 1) * p_.layout.rows] - first_) {
    values_ = moved(values_, first_ * area());
    const int64_t cuts = std::max<int64_t>(1, ceil_div(p_.k, Tile<E>::depth * panel_steps<E>));
    depth_ = ceil_div(ceil_div(p_.k, cuts), 8) * 8;
    steps_ = p_.k > 0 ? ceil_div(p_.k, depth_) * p_.sum.numel() : 0;
  }

  void run(int team) {
    if (count_ == 0) return;
    if (steps_ == 0) {
      if (!p_.epilogue) return static_cast<void>(std::fill_n(values_, count_ * area(), T()));
      const std::vector<W> nothing(static_cast<size_t>(area()));
      EpilogueRows<W> rows(p_.epilogue->expression, p_.epilogue->operands, p_.epilogue->scalars);
      for (int64_t i = 0; i < count_; ++i) finish_block(rows, nothing.data(), i);
      return;
    }
    const int64_t depth = panel_depth<E>(depth_);
    E* left = scratch<E>(packed_left, packed_a_size<E>(m(), depth));
    E* right = scratch<E>(packed_right, packed_b_size<E>(depth, n()));
    const bool rounds = p_.epilogue || (!std::is_same_v<T, W> && steps_ > 1);
    W* sums = rounds ? scratch<W>(wide_sums, count_ * area()) : nullptr;
    Failure failure;
    std::atomic<int64_t> next = 0;
    run_team(team,
             [&](const TeamThread& thread) { sum_up(thread, left, right, sums, next, failure); });
    failure.rethrow();
  }

 private:
  /// A thread's part of the work; `next` counts the blocks of a step that threads have taken.
  void sum_up(const TeamThread& thread, E* left, E* right, W* sums, std::atomic<int64_t>& next,
              Failure& failure) const {
    std::optional<EpilogueRows<W>> rows;
    failure.guard([&] {
      if (const BlockSparseEpilogue* e = p_.epilogue)
        rows.emplace(e->expression, e->operands, e->scalars);
    });
    thread.barrier();
    if (failure.any()) return;
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t cuts = steps_ / p_.sum.numel(), from = step % cuts * depth_;
      const int64_t k = std::min(depth_, p_.k - from), depth = panel_depth<E>(k);
      pack(thread, left, right, step / cuts, from, k);
      if (thread.number() == 0) next = 0;
      thread.barrier();
      for (int64_t i; (i = next++) < count_;) {
        const int64_t row = p_.layout.row_of[first_ + i], col = p_.layout.col_of[first_ + i];
        const PanelPair<E> pair{left + packed_a_at<E>(depth, row * p_.layout.block, 0),
                                right + packed_b_at<E>(depth, 0, col * p_.layout.block)};
        multiply(pair, depth, step, sums, i);
        if (rows && step == steps_ - 1) finish_block(*rows, sums + i * area(), i);
      }
      thread.barrier();
    }
  }

  int64_t m() const { return int64_t{p_.layout.rows} * p_.layout.block; }
  int64_t n() const { return int64_t{p_.layout.cols} * p_.layout.block; }
  int64_t area() const { return int64_t{p_.layout.block} * p_.layout.block; }

  /// This thread's share of one step of A and B.
  void pack(const TeamThread& thread, E* left, E* right, int64_t product, int64_t from,
            int64_t k) const {
    const auto part = [&](int64_t panels, int64_t t) { return panels * t / thread.size(); };
    const int64_t number = thread.number();
    const int64_t of_a = ceil_div(m(), Tile<E>::rows), of_b = ceil_div(n(), Tile<E>::cols);
    pack_panels<Side::left>(part(of_a, number), part(of_a, number + 1), m(), k,
                            a_ + p_.sum.offset(0, product) + from * p_.a.col, p_.a.row, p_.a.col,
                            left);
    pack_panels<Side::right>(part(of_b, number), part(of_b, number + 1), n(), k,
                             b_ + p_.sum.offset(1, product) + from * p_.b.row, p_.b.col, p_.b.row,
                             right);
  }

  /// Adds one step to block `i`; low precision is rounded after the last.
  void multiply(const PanelPair<E>& pair, int64_t depth, int64_t step, W* sums, int64_t i) const {
    const int64_t block = p_.layout.block;
    const std::span<const PanelPair<E>> chain(&pair, 1);
    const PanelLayout a = packed_a<E>(depth), b = packed_b<E>(depth);
    const W beta = step == 0 ? W(0) : W(1);
    T* out = values_ + i * area();
    if (sums == nullptr) {
      multiply_panels<E, T>(block, block, depth, chain, a, b, W(1), beta, out, block, 1);
      return;
    }
    W* sum = sums + i * area();
    multiply_panels<E, W>(block, block, depth, chain, a, b, W(1), beta, sum, block, 1);
    if (step == steps_ - 1 && !p_.epilogue)
      store_sums<W, T>(block, block, sum, block, W(0), out, block, 1);
  }

  /// Block `i` of this head through the epilogue.
  void finish_block(EpilogueRows<W>& rows, const W* sums, int64_t i) const {
    const int64_t block = p_.layout.block, number = first_ + i;
    finish(rows, reductions_, sums, block, block,
           {batch_ * p_.layout.heads + head_, p_.layout.row_of[number] * block,
            p_.layout.col_of[number] * block},
           {batch_, number * block, 0});
  }

  const SddProblem& p_;
  EpilogueReductions<W>& reductions_;
  int64_t batch_, head_;
  const T* a_;
  const T* b_;
  T* values_;      ///< of this head's first block
  int64_t first_;  ///< number of this head's first block
  int64_t count_;  ///< blocks of this head
  int64_t depth_;  ///< products are packed this deep at most
  int64_t steps_;  ///< packings, over all products of the sum
};

}  // namespace

void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p, Stream) {
  const double area = double(p.layout.block) * p.layout.block;
  const double products = double(p.batch.numel()) * double(p.sum.numel()) / p.layout.heads;
  const int team = team_size(products * double(p.layout.nnz) * area * double(p.n), worth_a_thread);
  visit_floating("dsd", values.dtype(), [&]<class T>(Type<T>) {
    visit_panel<Wide<T>, T>([&]<class E>(Type<E>) {
      Dsd<T, E> dsd(p, values.data<T>(), b.data<T>(), c.data<T>(), team);
      parallel_each(dsd.tasks(), team, [&](int64_t task) { dsd.run(task); });
      dsd.reduce();
    });
  });
}

void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p, Stream) {
  const int64_t tasks = p.batch.numel() * p.layout.heads;
  const double area = double(p.layout.block) * p.layout.block;
  const double products = double(p.batch.numel()) * double(p.sum.numel());
  const int team = team_size(products * double(p.layout.nnz) * area * double(p.k), worth_a_thread);
  // Few heads are computed one after the other, each by the whole team.
  const bool together = tasks < 4 * team;
  visit_floating("sdd", values.dtype(), [&]<class T>(Type<T>) {
    const int64_t block = p.layout.block;
    EpilogueReductions<Wide<T>> reductions(
        p.epilogue, {p.batch.numel(), p.layout.nnz * block, block}, block, block);
    visit_panel<Wide<T>, T>([&]<class E>(Type<E>) {
      parallel_each(tasks, together ? 1 : team, [&](int64_t task) {
        Sdd<T, E>(p, reductions, a.data<T>(), b.data<T>(), values.data<T>(), task)
            .run(together ? team : 1);
      });
    });
    reductions.reduce(p.layout);
  });
}

}  // namespace bs::cpu
