#include <bs/kernels/block_sparse_softmax.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace bs::cuda {

namespace {

using device::exp2_of;
using device::Pack;
using device::Raw;
using device::wide;

constexpr int warp = 32, log_warp = 5;
constexpr int warps = 4;  ///< of a block

/// Shares of work, one a warp: the same number of neighbouring rows of one row of blocks, whose
/// blocks lie side by side in memory. A row is read by 32 / rows lanes, or by more where it is
/// long; the warp then takes its rows in turns. All of these are powers of two.
struct Shares {
  LayoutView layout;
  uint32_t count;
  Divisor lines, of_head;                 ///< rows of blocks of a matrix, of a head
  int log_block, log_lanes, log_of_line;  ///< lanes of a row; shares of a row of blocks
  bool causal;
  const bool* keep;  ///< [masks, width], or null
  Divisor matrices_a_mask;
};

template <class T>
__device__ T lowest() {
  return device::narrow<T>(-std::numeric_limits<wide<T>>::infinity());
}

/// Puts -infinity where a bit is set.
template <class T, int N>
__device__ void hide(Raw<T, N>& raw, unsigned bits) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    const T element = lowest<T>();
    const unsigned two = reinterpret_cast<const unsigned short&>(element) * 0x10001U;
#pragma unroll
    for (int i = 0; i < N / 2; ++i, bits >>= 2) {
      const unsigned low = (bits & 1) * 0x44, high = (bits & 2) * 0x2200;
      raw.at[i] = __byte_perm(raw.at[i], two, 0x3210 | low | high);
    }
  } else {
    auto& elements = reinterpret_cast<Pack<T, N>&>(raw);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (bits >> j & 1) elements.at[j] = lowest<T>();
  }
}

/// Bools as bits: of four by a product, whose partial sums have a bit each.
template <int N>
__device__ unsigned bits_of(const Pack<bool, N>& of) {
  unsigned bits = 0;
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      bits |= (reinterpret_cast<const unsigned&>(of.at[i]) * 0x01020408U >> 24 & 0xfU) << i;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) bits |= static_cast<unsigned>(of.at[i]) << i;
  }
  return bits;
}

/// The largest element of packs, of 16 bits two at a time; NaN is passed over.
template <class T, int N, int held>
__device__ wide<T> largest(const Raw<T, N> (&packs)[held]) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    using Two = decltype(device::narrow_pair(0.0F, 0.0F, T()));
    Two top{lowest<T>(), lowest<T>()};
#pragma unroll
    for (const Raw<T, N>& pack : packs)
#pragma unroll
      for (const unsigned& word : pack.at) top = __hmax2(top, reinterpret_cast<const Two&>(word));
    return fmax(device::widen(T(top.x)), device::widen(T(top.y)));
  } else {
    wide<T> top = -INFINITY;
#pragma unroll
    for (const Raw<T, N>& pack : packs) {
      wide<T> v[N];
      device::widen_pack<T, N>(pack, v);
#pragma unroll
      for (int j = 0; j < N; ++j) top = fmax(top, v[j]);
    }
    return top;
  }
}

/// One row of elements in packs of N, its pieces one block apart, as one of its lanes sees it,
/// which keeps `held` packs at once: a chunk.
template <class T, int N, int held>
struct Row {
  using Packs = Raw<T, N>[held];

  const int32_t* cols;
  const bool* keep;
  int64_t first;  ///< offset of the first piece
  int log_block, log_lanes;
  int packs;  ///< of the whole row: one at least
  int seen;   ///< columns up to the last that is seen
  int lane;

  /// Packs of a piece.
  __device__ int log_packs() const { return log_block - (31 - __clz(N)); }
  __device__ int inside(int pack) const { return (pack & ((1 << log_packs()) - 1)) * N; }
  /// Offset of a pack from `first`.
  __device__ unsigned offset(int pack) const {
    return static_cast<unsigned>((pack >> log_packs() << 2 * log_block) + inside(pack));
  }
  /// Which pack this lane has at place k of a chunk, or would have if there were as many.
  __device__ int pack(int chunk, int k) const { return lane + (chunk * held + k << log_lanes); }
  __device__ int chunks() const { return ((packs - 1) / held >> log_lanes) + 1; }

  /// Calls f(k, pack number) for each place of a chunk; what would be behind the last pack is that
  /// one again.
  template <class F>
  __device__ void for_each_place(int chunk, F&& f) const {
#pragma unroll
    for (int k = 0; k < held; ++k) f(k, min(pack(chunk, k), packs - 1));
  }
  /// The same for this lane's packs alone.
  template <class F>
  __device__ void for_each(int chunk, F&& f) const {
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (const int p = pack(chunk, k); p < packs) f(k, p);
  }
  __device__ void load(const T* x, int chunk, Packs& to) const {
    const T* const from = x + first;
    for_each_place(chunk, [&](int k, int p) {
      to[k] = *reinterpret_cast<const Raw<T, N>*>(from + offset(p));
    });
  }
  /// The same with -infinity for what is hidden.
  __device__ void load_seen(const T* x, int chunk, Packs& to) const {
    load(x, chunk, to);
    int column[held];
    unsigned shown[held];
    for_each_place(chunk, [&](int k, int p) {
      column[k] = (cols[p >> log_packs()] << log_block) + inside(p);
      shown[k] = (1U << min(max(seen - column[k], 0), N)) - 1;
    });
    if (keep) {
      Pack<bool, N> kept[held];
#pragma unroll
      for (int k = 0; k < held; ++k)
        kept[k] = *reinterpret_cast<const Pack<bool, N>*>(keep + column[k]);
#pragma unroll
      for (int k = 0; k < held; ++k) shown[k] &= bits_of(kept[k]);
    }
    constexpr unsigned all = (1U << N) - 1;
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (shown[k] != all) hide<T, N>(to[k], ~shown[k]);
  }
  __device__ void store(T* x, int pack, const wide<T> (&values)[N]) const {
    T* const to = x + first;
    *reinterpret_cast<Pack<T, N>*>(to + offset(pack)) = device::narrow_pack<T, N>(values);
  }

  /// Reduces over the lanes of the row.
  template <class Op>
  __device__ wide<T> reduce(wide<T> value, Op op) const {
    for (int offset = 1 << log_lanes >> 1; offset > 0; offset /= 2)
      value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
    return value;
  }
};

/// Calls f(row) for the rows of a share, unless they are empty; the warp is in it as one.
template <class T, int N, int held, class F>
__device__ void for_each_row(const Shares& shares, F&& f) {
  const LayoutView& l = shares.layout;
  const uint32_t share = blockIdx.x * warps + threadIdx.y;
  if (share >= shares.count) return;
  const uint32_t at = share >> shares.log_of_line, matrix = shares.lines.divide(at);
  const uint32_t line = at - matrix * shares.lines.number;
  const int32_t begin = l.row_offsets[line], blocks = l.row_offsets[line + 1] - begin;
  if (blocks == 0) return;
  Row<T, N, held> row;
  row.log_block = shares.log_block;
  row.packs = blocks << row.log_packs();
  row.cols = l.col_of + begin;
  row.log_lanes = shares.log_lanes;
  while (row.log_lanes < log_warp && row.packs > held << row.log_lanes) ++row.log_lanes;
  row.lane = static_cast<int>(threadIdx.x) & ((1 << row.log_lanes) - 1);
  row.keep = nullptr;
  if (shares.keep)
    row.keep = shares.keep + int64_t{shares.matrices_a_mask.divide(matrix)} * l.cols * l.block;
  const int64_t start = int64_t{matrix} * l.nnz + begin << 2 * row.log_block;
  const int rows = warp >> shares.log_lanes;
  const auto first_row = static_cast<int>(share & ((1U << shares.log_of_line) - 1)) * rows;
  int line_of_head = l.cols;  // so that nothing is above the diagonal
  if (shares.causal)
    line_of_head = static_cast<int>(line - shares.of_head.divide(line) * shares.of_head.number);
  for (int i = 0; i < rows; i += warp >> row.log_lanes) {
    const int inside = first_row + i + (static_cast<int>(threadIdx.x) >> row.log_lanes);
    row.first = start + (inside << row.log_block);
    row.seen = (line_of_head << row.log_block) + inside + 1;
    f(row);
  }
}

/// Powers of two of scores times log2 e, the factor, beside the largest of a row. The factor is
/// positive, so the largest score is that of the largest element. It is rounded before it is
/// subtracted, which changes nothing, for it divides out.
template <class T, int N>
struct Powers {
  using W = wide<T>;
  W factor, shift;

  /// What is subtracted from scores of which `top` is the largest so far.
  static __device__ W shift_of(W top) { return top == -INFINITY ? W(0) : top; }
  __device__ void get(const Raw<T, N>& raw, W (&v)[N]) const {
    device::widen_pack<T, N>(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = exp2_of(fma(v[j], factor, -shift));
  }
  __device__ W sum(const Raw<T, N>& raw) const {
    W v[N], sum = 0;
    get(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += v[j];
    return sum;
  }
  __device__ void get_shares(const Raw<T, N>& raw, W share, W (&v)[N]) const {
    get(raw, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] *= share;
  }
};

/// Blocks on a multiprocessor: as many as leave what lanes keep in registers.
template <class T, int N, int held>
constexpr int resident = sizeof(wide<T>) > 4  ? 4
                         : held > 8           ? 3
                         : N == 1 || held > 4 ? 5
                                              : 8;

/// A row that its lanes keep is read once. Of a longer one a lane's sum is beside the largest score
/// that it has seen so far, and the row is read again.
template <class T, int N, int held, bool masked>
__global__ void __launch_bounds__(warp* warps, resident<T, N, held>)
    softmax_kernel(const T* x, T* y, const __grid_constant__ Shares shares, wide<T> factor) {
  using W = wide<T>;
  for_each_row<T, N, held>(shares, [&](const Row<T, N, held>& row) {
    const auto larger = [](W a, W b) { return fmax(a, b); };
    typename Row<T, N, held>::Packs raw;
    const auto load = [&](int chunk) {
      if constexpr (masked) {
        row.load_seen(x, chunk, raw);
      } else {
        row.load(x, chunk, raw);
      }
    };
    Powers<T, N> powers{factor, 0};
    const int chunks = row.chunks();
    W top = -INFINITY, sum = 0;
    for (int c = 0; c < chunks; ++c) {
      load(c);
      const W before = top;
      top = fmax(top, largest<T, N>(raw) * factor);
      if (chunks == 1) top = row.reduce(top, larger);
      powers.shift = Powers<T, N>::shift_of(top);
      sum *= exp2_of(before - powers.shift);
      row.for_each(c, [&](int k, int) { sum += powers.sum(raw[k]); });
    }
    if (chunks > 1) {
      powers.shift = Powers<T, N>::shift_of(row.reduce(top, larger));
      sum *= exp2_of(top - powers.shift);
    }
    sum = row.reduce(sum, device::Sum{});
    const W share = sum == 0 ? W(0) : 1 / sum;
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      row.for_each(c, [&](int k, int p) {
        W v[N];
        powers.get_shares(raw[k], share, v);
        row.store(y, p, v);
      });
    }
  });
}

template <class T, int N, int held>
__global__ void __launch_bounds__(warp* warps)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, const __grid_constant__ Shares shares,
                            wide<T> scale) {
  using W = wide<T>;
  for_each_row<T, N, held>(shares, [&](const Row<T, N, held>& row) {
    typename Row<T, N, held>::Packs result, gradient;
    const auto load = [&](int chunk) {
      row.load(y, chunk, result);
      row.load(dy, chunk, gradient);
    };
    // Calls f(pack number, y, dy).
    const auto for_each = [&](int chunk, auto&& f) {
      row.for_each(chunk, [&](int k, int p) {
        W a[N], b[N];
        device::widen_pack<T, N>(result[k], a);
        device::widen_pack<T, N>(gradient[k], b);
        f(p, a, b);
      });
    };
    const int chunks = row.chunks();
    W dot = 0;
    for (int c = 0; c < chunks; ++c) {
      load(c);
      for_each(c, [&](int, const W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) dot += a[j] * b[j];
      });
    }
    dot = scale * row.reduce(dot, device::Sum{});
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      for_each(c, [&](int p, W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) a[j] *= fma(scale, b[j], -dot);
        row.store(dx, p, a);
      });
    }
  });
}

/// Rows of a share: as many as a warp reads at once, in four packs a lane, where rows are of the
/// average length.
Shares shares_of(const Layout& layout, const Tensor& values, int pack) {
  const int block = layout.block();
  const int64_t area = int64_t{block} * block, lines = int64_t{layout.heads()} * layout.rows();
  const int64_t matrices = values.numel() / (layout.nnz() * area);
  Shares shares{};
  shares.layout = layout.view(values.device());
  shares.log_block = std::countr_zero(static_cast<unsigned>(block));
  shares.log_lanes = std::max(log_warp - shares.log_block, 0);
  while (shares.log_lanes < log_warp &&
         layout.nnz() * block / pack > (4 * lines << shares.log_lanes))
    ++shares.log_lanes;
  shares.log_of_line = shares.log_block - log_warp + shares.log_lanes;
  shares.lines = Divisor(lines);
  shares.of_head = Divisor(layout.rows());
  shares.count = static_cast<uint32_t>(matrices * lines << shares.log_of_line);
  return shares;
}

/// Calls f with the packs that lanes keep of a row: as few as hold the longest rows, up to `most`.
template <int N, int most, class F>
void visit_held(const Layout& layout, const Shares& shares, F&& f) {
  const int64_t packs = int64_t{layout.max_row()} * layout.block() / N;
  if constexpr (N > 2) {
    if (packs <= int64_t{2} << shares.log_lanes) return f(std::integral_constant<int, 2>{});
    if (packs <= int64_t{4} * warp) return f(std::integral_constant<int, 4>{});
    if (most > 8 && packs > int64_t{8} * warp) return f(std::integral_constant<int, most>{});
  }
  f(std::integral_constant<int, 8>{});
}

dim3 grid_of(const Shares& shares) {
  return dim3(cuda::grid_of("block_sparse_softmax", ceil_div(shares.count, warps)));
}

}  // namespace

void block_sparse_softmax(const Tensor& x, const Layout& layout, const Tensor& y,
                          const BlockSparseSoftmaxOptions& options, Stream stream) {
  const Tensor& mask = options.key_padding_mask;
  const bool masked = options.causal || mask.defined();
  visit_floating("block_sparse_softmax", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(
        aligned16(x, y, mask), layout.block(), [&]<int N>(std::integral_constant<int, N>) {
          Shares shares = shares_of(layout, x, N);
          shares.causal = options.causal;
          if (mask.defined()) {
            shares.keep = mask.data<bool>();
            const int64_t matrices = x.numel() / (layout.nnz() * layout.block() * layout.block());
            shares.matrices_a_mask = Divisor(matrices / mask.size(0));
          }
          using W = wide<D>;
          const W factor = std::max(static_cast<W>(options.scale * 1.4426950408889634),
                                    std::numeric_limits<W>::denorm_min());
          visit_held<N, 16>(layout, shares, [&]<int held>(std::integral_constant<int, held>) {
            // Operands that are not aligned are rare: one kernel serves them with masks and
            // without.
            constexpr bool one = N == 1;
            const auto kernel =
                masked || one ? softmax_kernel<D, N, held, true> : softmax_kernel<D, N, held, one>;
            kernel<<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(x), pointer<T>(y), shares, factor);
          });
        });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax");
}

void block_sparse_softmax_backward(const Tensor& y, const Tensor& dy, const Layout& layout,
                                   const Tensor& dx, double scale, Stream stream) {
  visit_floating("block_sparse_softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(aligned16(y, dy, dx), layout.block(), [&]<int N>(std::integral_constant<int, N>) {
      const Shares shares = shares_of(layout, y, N);
      visit_held<N, 8>(layout, shares, [&]<int held>(std::integral_constant<int, held>) {
        softmax_backward_kernel<D, N, held>
            <<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(y), pointer<T>(dy), pointer<T>(dx), shares, static_cast<wide<D>>(scale));
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax_backward");
}

}  // namespace bs::cuda
