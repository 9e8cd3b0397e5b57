#include <bs/kernels/block_sparse_softmax.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::exp2_of;
using device::Pack;
using device::Raw;
using device::wide;

constexpr int warp = 32;
constexpr int warps = 4;  ///< of a block

/// Shares of work, one a warp: the same number of neighbouring rows of one row of blocks, whose
/// blocks lie side by side in memory. A row is read by 32 / rows lanes, or by more where it is
/// long; the warp then takes its rows in turns.
struct Shares {
  LayoutView layout;
  uint32_t count;
  Divisor in_line, lines;  ///< shares of a row of blocks; rows of blocks of a matrix
  int rows;                ///< of a share
  bool causal;
  const bool* keep;  ///< [masks, width], or null
  Divisor matrices_a_mask;
};

/// One row of elements in packs of N, its pieces one block apart, as one of `lanes` lanes sees it,
/// which keeps `held` packs at once.
template <class T, int N, int held>
struct Row {
  using Packs = Raw<T, N>[held];

  const int32_t* cols;
  const bool* keep;
  int64_t first;  ///< offset of the first piece
  int block;
  int log_per_piece;  ///< log2 of the packs of a piece
  int packs;          ///< of the whole row
  int last_seen;      ///< column
  int lanes, lane;

  /// Offset of a pack from `first`.
  __device__ int offset(int pack) const {
    const int inside = pack & ((1 << log_per_piece) - 1);
    return (pack >> log_per_piece) * block * block + inside * N;
  }
  /// Whether any lane has a pack at place k of a chunk, and whether this one has.
  __device__ bool any_has(int chunk, int k) const { return (chunk * held + k) * lanes < packs; }
  __device__ int pack(int chunk, int k) const { return lane + (chunk * held + k) * lanes; }

  __device__ void load(const T* x, int chunk, Packs& packs_of_lane) const {
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (const int p = pack(chunk, k); p < packs)
        packs_of_lane[k] = *reinterpret_cast<const Raw<T, N>*>(x + first + offset(p));
  }
  /// Calls f(k, pack number) for this lane's packs of a chunk.
  template <class F>
  __device__ void for_each(int chunk, F&& f) const {
#pragma unroll
    for (int k = 0; k < held; ++k)
      if (any_has(chunk, k))
        if (const int p = pack(chunk, k); p < packs) f(k, p);
  }
  __device__ void store(T* x, int pack, const wide<T> (&values)[N]) const {
    *reinterpret_cast<Pack<T, N>*>(x + first + offset(pack)) = device::narrow_pack<T, N>(values);
  }
  __device__ int chunks() const { return (packs + held * lanes - 1) / (held * lanes); }

  /// Which elements of a pack are hidden, a bit each.
  __device__ unsigned hidden(int pack) const {
    const int inside = pack & ((1 << log_per_piece) - 1);
    const int column = cols[pack >> log_per_piece] * block + inside * N;
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) bits |= static_cast<unsigned>(column + j > last_seen) << j;
    if (keep) {
      const auto seen = *reinterpret_cast<const Pack<bool, N>*>(keep + column);
#pragma unroll
      for (int j = 0; j < N; ++j) bits |= static_cast<unsigned>(!seen.at[j]) << j;
    }
    return bits;
  }
  /// Reduces over the lanes of the row.
  template <class Op>
  __device__ wide<T> reduce(wide<T> value, Op op) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
    return value;
  }
};

/// Calls f(row) for the rows of a share; the warp is in it as one.
template <class T, int N, int held, class F>
__device__ void for_each_row(const Shares& shares, F&& f) {
  const LayoutView& l = shares.layout;
  const uint32_t share = blockIdx.x * warps + threadIdx.y;
  if (share >= shares.count) return;
  const uint32_t at = shares.in_line.divide(share), matrix = shares.lines.divide(at);
  const auto line = static_cast<int>(at - matrix * shares.lines.number);
  const auto first_row = static_cast<int>(share - at * shares.in_line.number) * shares.rows;
  const int32_t begin = l.row_offsets[line], blocks = l.row_offsets[line + 1] - begin;
  Row<T, N, held> row;
  row.block = l.block;
  row.log_per_piece = 31 - __clz(l.block / N);
  row.packs = blocks << row.log_per_piece;
  row.cols = l.col_of + begin;
  row.lanes = warp / shares.rows;
  while (row.lanes < warp && row.packs > held * row.lanes) row.lanes *= 2;
  row.lane = static_cast<int>(threadIdx.x) & (row.lanes - 1);
  row.keep = nullptr;
  if (shares.keep)
    row.keep = shares.keep + int64_t{shares.matrices_a_mask.divide(matrix)} * l.cols * l.block;
  const int64_t start = (int64_t{matrix} * l.nnz + begin) * l.block * l.block;
  for (int i = 0; i < shares.rows; i += warp / row.lanes) {
    const int inside = first_row + i + static_cast<int>(threadIdx.x) / row.lanes;
    row.first = start + inside * l.block;
    row.last_seen = shares.causal ? line % l.rows * l.block + inside : l.cols * l.block;
    f(row);
  }
}

/// Powers of two are taken of the scores times log2 e; the largest is rounded before it is
/// subtracted, which changes nothing, for it divides out.
template <class T, int N, int held, bool masked>
__global__ void __launch_bounds__(warp* warps)
    softmax_kernel(const T* x, T* y, const __grid_constant__ Shares shares, wide<T> scale) {
  using W = wide<T>;
  const W factor = scale * W(1.4426950408889634);
  for_each_row<T, N, held>(shares, [&](const Row<T, N, held>& row) {
    typename Row<T, N, held>::Packs raw;
    unsigned hidden[held];
    const auto load = [&](int chunk) {
      row.load(x, chunk, raw);
      if constexpr (masked) row.for_each(chunk, [&](int k, int p) { hidden[k] = row.hidden(p); });
    };
    // Calls f(pack number, scores); those that are hidden are -infinity.
    const auto for_each = [&](int chunk, W top, auto&& f) {
      row.for_each(chunk, [&](int k, int p) {
        W v[N];
        device::widen_pack<T, N>(raw[k], v);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          v[j] = fma(v[j], factor, -top);
          if (masked && (hidden[k] >> j & 1)) v[j] = -INFINITY;
        }
        f(p, v);
      });
    };
    const int chunks = row.chunks();
    W top = -INFINITY;
    for (int c = 0; c < chunks; ++c) {
      load(c);
      for_each(c, W(0), [&](int, const W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) top = fmax(top, v[j]);
      });
    }
    top = row.reduce(top, [](W a, W b) { return fmax(a, b); });
    if (top == -INFINITY) top = 0;
    W sum = 0;
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      for_each(c, top, [&](int, const W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) sum += exp2_of(v[j]);
      });
    }
    sum = row.reduce(sum, device::Sum{});
    const W share = sum == 0 ? W(0) : 1 / sum;
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      for_each(c, top, [&](int p, W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] = exp2_of(v[j]) * share;
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
    dot = row.reduce(dot, device::Sum{});
    for (int c = 0; c < chunks; ++c) {
      if (chunks > 1) load(c);
      for_each(c, [&](int p, W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) a[j] *= scale * (b[j] - dot);
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
  int64_t lanes = std::max(warp / block, 1);
  while (lanes < warp && layout.nnz() * block / pack > 4 * lanes * lines) lanes *= 2;
  Shares shares{};
  shares.layout = layout.view(values.device());
  shares.rows = static_cast<int>(warp / lanes);
  shares.in_line = Divisor(block / shares.rows);
  shares.lines = Divisor(lines);
  shares.count = static_cast<uint32_t>(matrices * lines * shares.in_line.number);
  return shares;
}

/// Calls f with the packs that lanes keep of a row: four, or eight where there are long rows.
template <int N, class F>
void visit_held(const Layout& layout, F&& f) {
  constexpr int few = 4;
  if (N > 2 && int64_t{layout.max_row()} * layout.block() <= few * warp * N)
    return f(std::integral_constant<int, few>{});
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
          visit_held<N>(layout, [&]<int held>(std::integral_constant<int, held>) {
            // Operands that are not aligned are rare: one kernel serves them with masks and
            // without.
            constexpr bool one = N == 1;
            const auto kernel =
                masked || one ? softmax_kernel<D, N, held, true> : softmax_kernel<D, N, held, one>;
            kernel<<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(x), pointer<T>(y), shares, static_cast<wide<D>>(options.scale));
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
      visit_held<N>(layout, [&]<int held>(std::integral_constant<int, held>) {
        softmax_backward_kernel<D, N, held>
            <<<grid_of(shares), dim3(warp, warps), 0, native(stream)>>>(
                pointer<T>(y), pointer<T>(dy), pointer<T>(dx), shares, static_cast<wide<D>>(scale));
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax_backward");
}

}  // namespace bs::cuda
