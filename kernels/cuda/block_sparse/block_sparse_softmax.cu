#include <bs/kernels/block_sparse_softmax.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::wide;
using device::widen;

/// Packs that a thread keeps of a row; those beyond are read again.
constexpr int held = 8;
constexpr int most_threads = 512;

/// All rows of elements of a batch of matrices, and what hides their elements.
struct Rows {
  LayoutView layout;
  int64_t count;
  bool causal;
  const bool* keep;  ///< [masks, width], or null
  int64_t matrices_a_mask;
};

/// One row of elements in packs of N, its pieces one block apart.
template <class T, int N>
struct Row {
  const int32_t* cols;
  const bool* keep;
  int64_t first;  ///< offset of the first piece
  int block;
  int log_per_piece;  ///< log2 of the packs of a piece
  int packs;          ///< of the whole row
  int last_seen;      ///< column
  bool masked;

  __device__ Row(const Rows& rows, int64_t row) {
    const LayoutView& l = rows.layout;
    block = l.block;
    log_per_piece = 31 - __clz(block / N);
    const auto i = static_cast<int>(row % block);
    const int64_t line = row / block % (int64_t{l.heads} * l.rows);
    const int64_t matrix = row / block / (int64_t{l.heads} * l.rows);
    const int32_t begin = l.row_offsets[line];
    packs = (l.row_offsets[line + 1] - begin) << log_per_piece;
    cols = l.col_of + begin;
    first = (matrix * l.nnz + begin) * block * block + int64_t{i} * block;
    const auto index = static_cast<int>(line % l.rows) * block + i;
    last_seen = rows.causal ? index : l.cols * block;
    masked = rows.causal || rows.keep;
    keep = rows.keep ? rows.keep + matrix / rows.matrices_a_mask * l.cols * block : nullptr;
  }
  __device__ int64_t offset(int pack) const {
    const int inside = pack & ((1 << log_per_piece) - 1);
    return first + int64_t{pack >> log_per_piece} * block * block + inside * N;
  }
  __device__ Pack<T, N> load(const T* x, int pack) const {
    return *reinterpret_cast<const Pack<T, N>*>(x + offset(pack));
  }
  __device__ void store(T* x, int pack, const Pack<T, N>& values) const {
    *reinterpret_cast<Pack<T, N>*>(x + offset(pack)) = values;
  }
  /// Sets hidden elements of a pack to -infinity.
  __device__ void hide(int pack, wide<T> (&scores)[N]) const {
    if (!masked) return;
    const int inside = pack & ((1 << log_per_piece) - 1);
    const int column = cols[pack >> log_per_piece] * block + inside * N;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (column + j > last_seen || (keep && !keep[column + j])) scores[j] = -INFINITY;
  }
};

/// The part of a row that belongs to this thread: `held` packs in registers, the rest in memory.
template <class T, int N>
struct Part {
  const T* x;
  Pack<T, N> packs[held];

  __device__ Part(const T* from, const Row<T, N>& row) : x(from) {
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int p = threadIdx.x + k * blockDim.x;
      packs[k] = p < row.packs ? row.load(x, p) : Pack<T, N>{};
    }
  }
};

/// Calls f(pack number, that pack of each part) for this thread's share of a row.
template <class T, int N, class F, class... Parts>
__device__ void walk(const Row<T, N>& row, F&& f, const Parts&... parts) {
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int p = threadIdx.x + k * blockDim.x;
    if (p < row.packs) f(p, parts.packs[k]...);
  }
  for (int p = threadIdx.x + held * blockDim.x; p < row.packs; p += blockDim.x)
    f(p, row.load(parts.x, p)...);
}

/// The threads of a row: a warp, several of which share a block, or a whole block.
template <class W, class Op>
__device__ W row_reduce(W value, Op op, W identity) {
  return blockDim.x == 32 ? device::warp_reduce(value, op)
                          : device::block_reduce(value, op, identity);
}

template <class T, int N>
__global__ void __launch_bounds__(most_threads)
    softmax_kernel(const T* x, T* y, Rows rows, wide<T> scale) {
  using W = wide<T>;
  const int64_t number = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (number >= rows.count) return;
  const Row<T, N> row(rows, number);
  const Part<T, N> part(x, row);
  const auto scores = [&](int p, const Pack<T, N>& pack, W(&out)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = scale * widen(pack.at[j]);
    row.hide(p, out);
  };
  W top = -INFINITY;
  walk(
      row,
      [&](int p, const Pack<T, N>& pack) {
        W s[N];
        scores(p, pack, s);
#pragma unroll
        for (int j = 0; j < N; ++j) top = fmax(top, s[j]);
      },
      part);
  top = row_reduce(top, device::Max{}, W(-INFINITY));
  if (top == -INFINITY) top = 0;
  W sum = 0;
  walk(
      row,
      [&](int p, const Pack<T, N>& pack) {
        W s[N];
        scores(p, pack, s);
#pragma unroll
        for (int j = 0; j < N; ++j) sum += exp(s[j] - top);
      },
      part);
  sum = row_reduce(sum, device::Sum{}, W(0));
  const W factor = sum == 0 ? W(0) : 1 / sum;
  walk(
      row,
      [&](int p, const Pack<T, N>& pack) {
        W s[N];
        scores(p, pack, s);
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; ++j) out.at[j] = narrow<T>(exp(s[j] - top) * factor);
        row.store(y, p, out);
      },
      part);
}

template <class T, int N>
__global__ void __launch_bounds__(most_threads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, Rows rows, wide<T> scale) {
  using W = wide<T>;
  const int64_t number = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (number >= rows.count) return;
  const Row<T, N> row(rows, number);
  const Part<T, N> result(y, row), gradient(dy, row);
  W dot = 0;
  walk(
      row,
      [&](int, const Pack<T, N>& a, const Pack<T, N>& b) {
#pragma unroll
        for (int j = 0; j < N; ++j) dot += widen(a.at[j]) * widen(b.at[j]);
      },
      result, gradient);
  dot = row_reduce(dot, device::Sum{}, W(0));
  walk(
      row,
      [&](int p, const Pack<T, N>& a, const Pack<T, N>& b) {
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; ++j)
          out.at[j] = narrow<T>(scale * widen(a.at[j]) * (widen(b.at[j]) - dot));
        row.store(dx, p, out);
      },
      result, gradient);
}

Rows all_rows(const Layout& layout, const Tensor& values) {
  const int64_t area = int64_t{layout.block()} * layout.block();
  const int64_t matrices = values.numel() / (layout.nnz() * area);
  const int64_t rows = matrices * layout.heads() * layout.rows() * layout.block();
  return {layout.view(values.device()), rows, false, nullptr, 1};
}

/// Threads of a row, enough to keep the longest in registers where a block can, and rows of a
/// block.
template <int N>
dim3 block_for(const Layout& layout) {
  const int64_t longest = int64_t{layout.max_row()} * layout.block() / N;
  unsigned threads = 32;
  while (threads < most_threads && threads * held < longest) threads *= 2;
  return dim3(threads, threads == 32 ? 4 : 1);
}

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; }

/// Calls f(std::integral_constant<int, N>) with the elements of a pack: those of 16 bytes, or 1.
template <class T, class F>
void visit_pack(bool all_aligned, F&& f) {
  if (all_aligned) {
    f(std::integral_constant<int, device::pack_size<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

}  // namespace

void block_sparse_softmax(const Tensor& x, const Layout& layout, const Tensor& y,
                          const BlockSparseSoftmaxOptions& options, Stream stream) {
  Rows rows = all_rows(layout, x);
  rows.causal = options.causal;
  if (const Tensor& mask = options.key_padding_mask; mask.defined()) {
    rows.keep = mask.data<bool>();
    rows.matrices_a_mask =
        x.numel() / (layout.nnz() * layout.block() * layout.block()) / mask.size(0);
  }
  visit_floating("block_sparse_softmax", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    visit_pack<T>(aligned(x) && aligned(y), [&]<int N>(std::integral_constant<int, N>) {
      const dim3 block = block_for<N>(layout);
      const auto grid = static_cast<unsigned>(ceil_div(rows.count, block.y));
      softmax_kernel<D, N><<<grid, block, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), rows,
                                                               static_cast<wide<D>>(options.scale));
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax");
}

void block_sparse_softmax_backward(const Tensor& y, const Tensor& dy, const Layout& layout,
                                   const Tensor& dx, double scale, Stream stream) {
  const Rows rows = all_rows(layout, y);
  visit_floating("block_sparse_softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const bool all_aligned = aligned(y) && aligned(dy) && aligned(dx);
    visit_pack<T>(all_aligned, [&]<int N>(std::integral_constant<int, N>) {
      const dim3 block = block_for<N>(layout);
      const auto grid = static_cast<unsigned>(ceil_div(rows.count, block.y));
      softmax_backward_kernel<D, N><<<grid, block, 0, native(stream)>>>(
          pointer<T>(y), pointer<T>(dy), pointer<T>(dx), rows, static_cast<wide<D>>(scale));
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_sparse_softmax_backward");
}

}  // namespace bs::cuda
