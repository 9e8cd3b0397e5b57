#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/transducer/transducer_lattice.cuh>

#include <cub/block/block_scan.cuh>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int locate_threads = 1024;

/// Where utterances begin. Those whose lengths do not fit become empty and invalid, as do those
/// from the first on that is given too few packed rows: rows in use end there.
__global__ void __launch_bounds__(locate_threads)
    locate_kernel(Integers frames, Integers labels, TransducerSizes s, int64_t* table) {
  using Scan = cub::BlockScan<int64_t, locate_threads>;
  let_next_launch_begin();
  __shared__ typename Scan::TempStorage scratch;
  int64_t begin = 0;  // of the first utterance of this turn
  for (int64_t first = 0; first < s.batch; first += locate_threads) {
    const int64_t b = first + threadIdx.x;
    int64_t t = b < s.batch ? (frames.data ? frames[b] : s.frames) : 0;
    int64_t u = b < s.batch ? (labels.data ? labels[b] : s.labels) : 0;
    bool valid = u >= 0 && u <= s.labels && t >= 0 && t <= s.frames && t * (u + 1) <= INT32_MAX;
    if (!valid) t = u = 0;
    const int64_t rows = s.packed ? t * (u + 1) : s.frames * (s.labels + 1);
    int64_t row = 0;
    int64_t all = 0;
    Scan(scratch).ExclusiveSum(rows, row, all);
    __syncthreads();
    row += begin;
    begin += all;
    if (row + rows > s.rows) valid = false;
    if (b < s.batch) {
      int64_t* entry = table + 4 * b;
      entry[0] = row < s.rows ? row : s.rows;
      entry[1] = valid ? t : 0;
      entry[2] = valid ? u : 0;
      entry[3] = valid;
    }
    if (row <= s.rows && row + rows > s.rows) table[4 * s.batch] = row;
  }
  if (threadIdx.x == 0 && begin <= s.rows) table[4 * s.batch] = begin;
}

/// Forward and backward sums of an utterance by two blocks; the second knows the loss.
template <class W, int K>
__global__ void __launch_bounds__(32 * most_sweep_warps)
    lattice_kernel(Utterances utterances, Tables<W> tables, W* losses, double loss_scale) {
  let_next_launch_begin();
  wait_for_previous_launch();
  __shared__ Edges<W> edges;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* ring = reinterpret_cast<Transitions<W>*>(memory);
  const Utterance one = utterances[static_cast<int>(blockIdx.x)];
  if (blockIdx.y == 0) {
    if (one.frames > 0) sweep<W, K, true, SumOfPaths>(one, tables, tables.alpha, edges, ring);
    return;
  }
  if (one.frames > 0) sweep<W, K, false, SumOfPaths>(one, tables, tables.beta, edges, ring);
  if (threadIdx.x > 0) return;
  const Scaled<W> total = one.frames > 0 ? tables.beta[one.cell] : Scaled<W>::zero();
  const double loss = -loss_scale * scaled_log(total);
  losses[blockIdx.x] = one.valid ? static_cast<W>(loss) : W(NAN);
}

/// The best path by one block: its sums replace nothing, `best` is scratch. Then one thread walks
/// back along it.
template <class W, int K>
__global__ void __launch_bounds__(32 * most_sweep_warps)
    alignment_kernel(Utterances utterances, Tables<W> tables, Scaled<W>* best, int64_t* frames) {
  __shared__ Edges<W> edges;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* ring = reinterpret_cast<Transitions<W>*>(memory);
  const Utterance one = utterances[static_cast<int>(blockIdx.x)];
  if (one.frames == 0) return;
  sweep<W, K, true, BestPath>(one, tables, best, edges, ring);
  if (threadIdx.x > 0) return;
  int t = one.frames - 1;
  int u = one.labels;
  const int64_t end = one.cell_of(t, u);
  if (!((best[end] * tables.transitions[end].blank).value > 0)) return;
  while (u > 0) {
    const int64_t left = one.cell_of(t, u - 1);
    const Scaled<W> emit = normalized(best[left] * tables.transitions[left].label);
    if (t > 0) {
      const int64_t above = one.cell_of(t - 1, u);
      if (emit < normalized(best[above] * tables.transitions[above].blank)) {
        --t;
        continue;
      }
    }
    frames[blockIdx.x * utterances.labels + --u] = t;
  }
}

template <class W>
__global__ void posterior_kernel(Utterances utterances, Tables<W> tables, int64_t rows,
                                 W* posterior) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; r < rows; r += step) {
    const Utterance one = utterances[utterances.find(r)];
    const auto at = static_cast<unsigned>(r - one.row);
    const auto t = static_cast<int>(at / static_cast<unsigned>(one.stride));
    const auto u = static_cast<int>(at % static_cast<unsigned>(one.stride));
    if (t >= one.frames || u > one.labels) continue;
    const int64_t cell = one.cell_of(t, u);
    posterior[r] = scaled_ratio(tables.alpha[cell], tables.beta[cell], tables.beta[one.cell]);
  }
}

/// The sum of losses times `scale`, in double and in a fixed order.
template <class W>
__global__ void reduce_kernel(const W* losses, int64_t n, double scale, W* loss) {
  wait_for_previous_launch();
  double sum = 0;
  for (int64_t b = threadIdx.x; b < n; b += blockDim.x) sum += losses[b];
  sum = device::block_reduce(sum, device::Sum{}, 0.0);
  if (threadIdx.x == 0) *loss = static_cast<W>(sum * scale);
}

/// Calls f(columns of a lane, threads) for utterances of up to `labels` labels: a column a lane
/// while there are warps, for a warp's diagonal takes as long as it has columns a lane.
template <class W, class F>
void visit_columns(int64_t labels, Device device, F&& f) {
  const auto memory = static_cast<size_t>(device_properties(device).shared_memory_optin);
  const auto most = std::min<int64_t>(
      most_sweep_warps, static_cast<int64_t>((memory - sizeof(Edges<W>)) / ring_bytes<W, 1>(32)));
  const int64_t warps = ceil_div(labels + 1, 32);
  if (warps <= most) return f(std::integral_constant<int, 1>{}, static_cast<unsigned>(32 * warps));
  f(std::integral_constant<int, 4>{}, static_cast<unsigned>(32 * most));
}

/// Lets a kernel have so much dynamic shared memory; returns the size.
template <class Kernel>
size_t allow(Kernel kernel, size_t bytes) {
  BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  return bytes;
}

/// Calls f(Type<W>) with the type that a lattice is kept in.
template <class F>
void visit_lattice(const TransducerLossResult& result, F&& f) {
  result.lse.dtype() == f64 ? f(Type<double>{}) : f(Type<float>{});
}

}  // namespace

void locate_utterances(const TransducerSizes& s, const Tensor& logit_lengths,
                       const Tensor& target_lengths, const Tensor& table, Stream stream) {
  const auto lengths = [](const Tensor& t) { return t.defined() ? integers(t) : Integers{}; };
  locate_kernel<<<1, locate_threads, 0, native(stream)>>>(
      lengths(logit_lengths), lengths(target_lengths), s, table.data<int64_t>());
  BS_CUDA_CHECK_LAUNCH("transducer_loss");
}

void sum_paths(const TransducerSizes& s, const TransducerLossResult& result, const Tensor& losses,
               const TransducerLossOptions& options, Stream stream) {
  visit_lattice(result, [&]<class W>(Type<W>) {
    visit_columns<W>(s.labels, losses.device(),
                     [&]<int K>(std::integral_constant<int, K>, unsigned threads) {
                       if (s.batch == 0) return;
                       const size_t bytes = allow(lattice_kernel<W, K>, ring_bytes<W, K>(threads));
                       launch_early(lattice_kernel<W, K>, dim3(static_cast<unsigned>(s.batch), 2),
                                    threads, bytes, stream, utterances(s, result.utterances),
                                    tables_of<W>(result.lattice), pointer<W>(losses),
                                    1 + options.fastemit_lambda);
                     });
    if (options.reduction == Reduction::none) return;
    const double scale =
        options.reduction == Reduction::mean ? 1 / static_cast<double>(s.batch) : 1.0;
    launch_early(reduce_kernel<W>, 1, 256, 0, stream, pointer<W>(losses), s.batch, scale,
                 pointer<W>(result.loss));
  });
}

void transducer_posterior(const TransducerSizes& s, const TransducerLossResult& result,
                          const Tensor& posterior, Stream stream) {
  constexpr int threads = 256;
  visit_lattice(result, [&]<class W>(Type<W>) {
    posterior_kernel<<<grid_size(s.rows, threads, posterior.device()), threads, 0,
                       native(stream)>>>(utterances(s, result.utterances),
                                         tables_of<W>(result.lattice), s.rows,
                                         pointer<W>(posterior));
  });
  BS_CUDA_CHECK_LAUNCH("transducer_posterior");
}

void transducer_alignment(const TransducerSizes& s, const TransducerLossResult& result,
                          const Tensor& frames, Stream stream) {
  const Tensor best = Tensor::empty_like(result.lattice.select(0, 0));
  visit_lattice(result, [&]<class W>(Type<W>) {
    visit_columns<W>(
        s.labels, frames.device(), [&]<int K>(std::integral_constant<int, K>, unsigned threads) {
          const size_t bytes = allow(alignment_kernel<W, K>, ring_bytes<W, K>(threads));
          alignment_kernel<W, K>
              <<<static_cast<unsigned>(s.batch), threads, bytes, native(stream)>>>(
                  utterances(s, result.utterances), tables_of<W>(result.lattice),
                  static_cast<Scaled<W>*>(best.data()), frames.data<int64_t>());
        });
  });
  BS_CUDA_CHECK_LAUNCH("transducer_alignment");
}

}  // namespace bs::cuda
