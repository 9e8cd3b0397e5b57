#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <type_traits>

namespace bs::cpu {
namespace {

/// The even step, a multiple of `unit`, that covers `n` in as few steps of at most `limit`.
constexpr int64_t even_step(int64_t n, int64_t limit, int64_t unit) {
  return ceil_div(ceil_div(n, std::max<int64_t>(1, ceil_div(n, limit))), unit) * unit;
}

template <class E>
struct Matrix {
  E* data;
  int64_t row, col;  ///< strides
  E* at(int64_t i, int64_t j) const { return data + i * row + j * col; }
  Matrix transposed() const { return {data, col, row}; }
};

template <class E>
Matrix<E> item_of(const Matrices<E>& all, int64_t i) {
  return {all.data + i * all.batch, all.row, all.col};
}

template <class T, class In, class Out>
struct Problem {
  int64_t m, n, k;
  Matrix<const In> a, b;
  T beta;
  Matrix<Out> c;

  Problem transposed() const {
    return {n, m, k, b.transposed(), a.transposed(), beta, c.transposed()};
  }
  bool is_row() const { return m == 1 && (b.row == 1 || b.col == 1); }
};

/// Columns [first, last) of a one-row product, bound by reading B once.
template <class T, class In, class Out>
void row_product(const Problem<T, In, Out>& p, int64_t first, int64_t last) {
  constexpr int64_t span = 512, sums_at_once = 4 * Tile<T>::lanes;
  T* x = scratch<T>(3, p.k);
  for (int64_t l = 0; l < p.k; ++l) x[l] = convert<T>(*p.a.at(0, l));
  T y[span], wide[span];
  for (int64_t j0 = first; j0 < last; j0 += span) {
    const int64_t n = std::min(span, last - j0);
    if (p.b.col == 1) {
      std::fill_n(y, n, T(0));
      for (int64_t l = 0; l < p.k; ++l) {
        const T* row = wide;
        if constexpr (std::is_same_v<T, In>) {
          row = p.b.at(l, j0);
        } else {
          widen(n, p.b.at(l, j0), wide);
        }
        for (int64_t j = 0; j < n; ++j) y[j] += x[l] * row[j];
      }
    } else {
      for (int64_t j = 0; j < n; ++j) {
        T sums[sums_at_once] = {};
        T rest = 0;
        for (int64_t l0 = 0; l0 < p.k; l0 += span) {
          const int64_t depth = std::min(span, p.k - l0);
          const T* col = wide;
          if constexpr (std::is_same_v<T, In>) {
            col = p.b.at(l0, j0 + j);
          } else {
            widen(depth, p.b.at(l0, j0 + j), wide);
          }
          int64_t l = 0;
          for (; l + sums_at_once <= depth; l += sums_at_once) {
            for (int64_t s = 0; s < sums_at_once; ++s) sums[s] += x[l0 + l + s] * col[l + s];
          }
          for (; l < depth; ++l) rest += x[l0 + l] * col[l];
        }
        for (const T s : sums) rest += s;
        y[j] = rest;
      }
    }
    store_sums(1, n, y, n, p.beta, p.c.at(0, j0), p.c.row, p.c.col);
  }
}

/// How one product is cut. Operands of a chunk of C are packed together. Threads take its tiles one
/// by one, in steps of the depth. The depth steps depend on k alone. E is what panels
/// hold.
template <class E>
struct Plan {
  using T = PanelSum<E>;

  int64_t chunk_m, chunk_n, tile_m, tile_n, depth;
  bool direct_a, direct_b;
  E *a = nullptr, *b = nullptr;
  T* c = nullptr;
  int threads;
  std::atomic<int64_t> next[2] = {0, 0};

  template <class In, class Out>
  Plan(const Problem<T, In, Out>& p, int team) : threads(team) {
    constexpr int64_t MR = Tile<E>::rows, NR = Tile<E>::cols, most_side = 1024;
    constexpr bool same = std::is_same_v<E, In>;
    direct_a = same && p.n <= 8 * NR;
    direct_b = same && p.b.col == 1 && p.m <= 16 * MR && p.n % (NR / 2) == 0;
    depth = even_step(p.k, Tile<E>::depth * panel_steps<E>, 8);
    chunk_m = even_step(p.m, most_side, MR);
    chunk_n = even_step(p.n, most_side, NR);
    constexpr int64_t cached = 256 * 1024;  // bytes of a tile of A
    tile_m = even_step(chunk_m, cached / (Tile<E>::depth * static_cast<int64_t>(sizeof(E))), MR);
    tile_n = chunk_n;
    const auto tiles = [&] { return ceil_div(chunk_m, tile_m) * ceil_div(chunk_n, tile_n); };
    while (threads > 1 && tiles() < 4 * threads && (tile_m > 4 * MR || tile_n > 2 * NR)) {
      const bool across = tile_n > 2 * NR && (tile_n >= tile_m / 2 || tile_m <= 4 * MR);
      int64_t& side = across ? tile_n : tile_m;
      side = even_step(side, (side + 1) / 2, across ? NR : MR);
    }
    const int64_t copies = threads > 1 ? 2 : 1;
    if (!direct_a) a = scratch<E>(0, copies * size_a());
    if (!direct_b) b = scratch<E>(1, copies * size_b());
    if (!std::is_same_v<T, Out> && p.k > depth) c = scratch<T>(2, chunk_m * chunk_n);
  }

  /// Elements of one copy of the packed operands.
  int64_t size_a() const { return packed_a_size<E>(chunk_m, panel_depth<E>(depth)); }
  int64_t size_b() const { return packed_b_size<E>(panel_depth<E>(depth), chunk_n); }
};

/// A chunk of C and a step of the depth.
struct Region {
  int64_t i, j, l, m, n, k;
};

template <class E>
struct Operands {
  PanelPair<E> base;
  PanelLayout a, b;
};

/// Packs this thread's share of the operands of a region, or finds them where they lie.
template <class E, class T, class In, class Out>
Operands<E> prepare(const Problem<T, In, Out>& p, const Plan<E>& plan, int thread, int turn,
                    const Region& r) {
  constexpr int64_t MR = Tile<E>::rows, NR = Tile<E>::cols;
  const int copy = plan.threads > 1 ? turn : 0;
  E* a = plan.direct_a ? nullptr : plan.a + copy * plan.size_a();
  E* b = plan.direct_b ? nullptr : plan.b + copy * plan.size_b();
  const int64_t depth = panel_depth<E>(r.k);
  Operands<E> x{{a, b}, packed_a<E>(depth), packed_b<E>(depth)};
  if constexpr (std::is_same_v<E, In>) {
    if (plan.direct_a) x.base.a = p.a.at(r.i, r.l), x.a = direct_a<E>(p.a.row, p.a.col);
    if (plan.direct_b) x.base.b = p.b.at(r.l, r.j), x.b = direct_b<E>(p.b.row);
  }
  const auto share = [&](int64_t count, int t) { return count * t / plan.threads; };
  if (!plan.direct_b) {
    const int64_t count = ceil_div(r.n, NR);
    pack_panels<Side::right>(share(count, thread), share(count, thread + 1), r.n, r.k,
                             p.b.at(r.l, r.j), p.b.col, p.b.row, b);
  }
  if (!plan.direct_a) {
    const int64_t count = ceil_div(r.m, MR);
    pack_panels<Side::left>(share(count, thread), share(count, thread + 1), r.m, r.k,
                            p.a.at(r.i, r.l), p.a.row, p.a.col, a);
  }
  return x;
}

/// Multiplies the tiles of a region, taken one by one.
template <class E, class T, class In, class Out>
void run_tiles(const Problem<T, In, Out>& p, Plan<E>& plan, int turn, const Region& r,
               const Operands<E>& x) {
  constexpr int64_t MR = Tile<E>::rows, NR = Tile<E>::cols;
  const int64_t depth = panel_depth<E>(r.k);
  const bool first = r.l == 0, last = r.l + r.k == p.k;
  const int64_t tiles_m = ceil_div(r.m, plan.tile_m), tiles_n = ceil_div(r.n, plan.tile_n);
  for (int64_t t; (t = plan.next[turn]++) < tiles_m * tiles_n;) {
    const int64_t i = t % tiles_m * plan.tile_m, j = t / tiles_m * plan.tile_n;
    const int64_t rows = std::min(plan.tile_m, r.m - i), cols = std::min(plan.tile_n, r.n - j);
    const PanelPair<E> pair{x.base.a + i / MR * x.a.panel, x.base.b + j / NR * x.b.panel};
    const std::span<const PanelPair<E>> pairs(&pair, 1);
    Out* c = p.c.at(r.i + i, r.j + j);
    if (plan.c == nullptr) {
      multiply_panels(rows, cols, depth, pairs, x.a, x.b, T(1), first ? p.beta : T(1), c, p.c.row,
                      p.c.col);
      continue;
    }
    T* sum = plan.c + i * plan.chunk_n + j;
    multiply_panels(rows, cols, depth, pairs, x.a, x.b, T(1), T(first ? 0 : 1), sum, plan.chunk_n,
                    int64_t{1});
    if (last) store_sums(rows, cols, sum, plan.chunk_n, p.beta, c, p.c.row, p.c.col);
  }
}

/// One thread's share of a product; every thread of the team runs it. The packed operands of a team
/// have two copies, used in turn, so that one barrier a step is enough.
template <class E, class T, class In, class Out>
void work(const Problem<T, In, Out>& p, Plan<E>& plan, const TeamThread& thread) {
  int turn = 0;
  for (int64_t j0 = 0; j0 < p.n; j0 += plan.chunk_n) {
    for (int64_t i0 = 0; i0 < p.m; i0 += plan.chunk_m) {
      const int64_t m = std::min(plan.chunk_m, p.m - i0), n = std::min(plan.chunk_n, p.n - j0);
      for (int64_t l0 = 0; l0 < p.k; l0 += plan.depth, turn ^= 1) {
        const int64_t k = std::min(plan.depth, p.k - l0);
        const Operands<E> x = prepare(p, plan, thread.number(), turn, Region{i0, j0, l0, m, n, k});
        thread.barrier();
        // The other counter rested since the last barrier, and is taken up after the next.
        if (thread.number() == 0) plan.next[turn ^ 1] = 0;
        run_tiles(p, plan, turn, Region{i0, j0, l0, m, n, k}, x);
      }
    }
  }
}

/// C = beta C, the product being empty.
template <class T, class In, class Out>
void scale(const Problem<T, In, Out>& p) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      Out& x = *p.c.at(i, j);
      x = p.beta == T(0) ? convert<Out>(T(0)) : convert<Out>(p.beta * convert<T>(x));
    }
  }
}

template <class T, class In, class Out>
void multiply(const Problem<T, In, Out>& given, int threads) {
  Problem<T, In, Out> p = given;
  if (p.m <= 0 || p.n <= 0) return;
  if (p.k <= 0) return scale(p);
  const bool column = p.n == 1 && p.m > 1;
  if (column || (p.m > 1 && p.c.col != 1 && p.c.row == 1)) p = p.transposed();
  if (p.is_row()) {
    constexpr int64_t task = 256;
    parallel_each(ceil_div(p.n, task), threads,
                  [&](int64_t i) { row_product(p, i * task, std::min(p.n, (i + 1) * task)); });
    return;
  }
  visit_panel<T, In>([&]<class E>(Type<E>) {
    Plan<E> plan(p, threads);
    run_team(threads, [&](const TeamThread& thread) { work(p, plan, thread); });
  });
}

}  // namespace

template <class T, class In, class Out>
void gemm(const GemmShape& shape, const Matrices<const In>& a, const Matrices<const In>& b, T beta,
          const Matrices<Out>& c) {
  constexpr double worth_a_thread = 1 << 20;  // multiply-adds that pay for waking one
  const double each =
      static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const double total = each * static_cast<double>(shape.batch);
  const auto item = [&](int64_t i, int threads) {
    multiply<T, In, Out>(
        {shape.m, shape.n, shape.k, item_of(a, i), item_of(b, i), beta, item_of(c, i)}, threads);
  };
  const int inside = team_size(each, worth_a_thread);
  if (shape.batch <= 1 || (inside > 1 && shape.batch < int64_t{4} * inside)) {
    for (int64_t i = 0; i < shape.batch; ++i) item(i, inside);
    return;
  }
  parallel_each(shape.batch, team_size(total, worth_a_thread), [&](int64_t i) { item(i, 1); });
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#define BS_GEMM(T, In, Out)                                                                     \
  template void gemm(const GemmShape&, const Matrices<const In>&, const Matrices<const In>&, T, \
                     const Matrices<Out>&);
// NOLINTEND(bugprone-macro-parentheses)

BS_GEMM(float, float, float)
BS_GEMM(float, half, half)
BS_GEMM(float, half, float)
BS_GEMM(float, bfloat16, bfloat16)
BS_GEMM(float, bfloat16, float)
BS_GEMM(double, double, double)
BS_GEMM(double, float, float)

}  // namespace bs::cpu
