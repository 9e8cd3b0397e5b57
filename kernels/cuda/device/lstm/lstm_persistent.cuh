#pragma once
// The steps of an LSTM in one kernel, for 16-bit types. Each CTA has 8 or 16 cells of the sequences
// of its groups, and keeps their rows of W_hh: in registers, and where these do not suffice in
// shared memory. Only h travels, from all CTAs to all, as lstm_exchange.cuh tells.
//
// The 32 rows (4 gates) of 8 cells are two tiles of mma.m16n8k16, whose columns are sequences:
// tile 0 is i over f, tile 1 g over o, so that a lane gets all gates of its cell. The depth, all
// cells, is divided among the 8 warps; their sums meet in shared memory, where thread (sequence,
// cell) adds them up. Depth may be in any order if both operands agree: a lane takes 8 neighbouring
// cells of a sequence at once, which make its part of two steps of 16.
//
// Groups of sequences are independent of each other. Those that a CTA has take turns, so that one
// is worked on while the h of another is on its way.
#include <bs/kernels/cuda/device/lstm/lstm_cell.cuh>
#include <bs/kernels/cuda/device/lstm/lstm_exchange.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>

namespace bs::cuda::device {

/// One direction.
template <class T>
struct PersistentLstm {
  T* gates;     ///< [steps, batch, 4 cells], in: the input's part of the sums; out: gates
  T* h;         ///< [steps + 1, batch, cells], unwritten but for the first slot
  float* c;     ///< [steps + 1, batch, cells]
  const T* hh;  ///< [4 cells, cells]
  const long long* lengths;  ///< [batch], or null
  int steps, batch;
  bool reverse, hard;
};

/// Gates without the last bits of exponentials, which 16 bits do not show.
template <bool hard>
__device__ inline float quick_gate(float z) {
  if constexpr (hard) return gate<true>(z);
  return __fdividef(1.0F, 1.0F + __expf(-z));
}
template <bool hard>
__device__ inline float quick_squash(float z) {
  if constexpr (hard) return squash<true>(z);
  return 1.0F - __fdividef(2.0F, 1.0F + __expf(2.0F * (z > 20.0F ? 20.0F : z)));
}

/// A cell of a sequence on its way through a step.
template <class T>
struct PersistentCell {
  T x[4];         ///< the input's part of the sums, as it lies in memory
  unsigned pair;  ///< h before, of this cell and its neighbour, where it may stay
  int length;     ///< of the sequence
  float c, h;
  LstmGates<float> z;

  template <bool hard>
  __device__ void compute() {
    z.i = quick_gate<hard>(z.i);
    z.f = quick_gate<hard>(z.f);
    z.g = quick_squash<hard>(z.g);
    z.o = quick_gate<hard>(z.o);
    c = z.f * c + z.i * z.g;
    h = z.o * quick_squash<hard>(c);
  }
};

/// KS: cells / 128; CB: blocks of 8 cells; Rows: sequences of a group.
template <class T, int KS, int CB, int Rows>
struct LstmCta {
  using Params = PersistentLstm<T>;
  static constexpr bool backward = false;
  using Shape = PersistentShape;
  static constexpr int hidden = 128 * KS, rows = Rows, own = Shape::block * CB;
  static constexpr int tiles = 2 * CB;        ///< of 16 rows of weights
  static constexpr int NT = rows / 8;         ///< of 8 sequences
  static constexpr int parts = Shape::warps;  ///< of the depth, one a warp
  static constexpr int total = hidden / 32;   ///< quads: 32 cells of depth, two steps of mma
  static constexpr int quads = (total + parts - 1) / parts;        ///< of a warp
  static constexpr int kept = CB == 1 ? quads : KS <= 12 ? 1 : 2;  ///< of which in registers
  static constexpr int room = (CB == 1 ? 16 : KS <= 8 ? 16 : KS <= 12 ? 12 : 8) / NT;
  static constexpr int ahead = quads < room ? quads : room;  ///< quads of h on their way at once
  static constexpr int sums_bytes = parts * rows * Shape::block * 16;
  static constexpr int weight_bytes = (quads - kept) * 2 * tiles * Shape::threads * 16;
  static constexpr int shared_bytes = sums_bytes + weight_bytes;

  using Weights = unsigned[2 * kept][tiles][4];
  using Sums = float[NT][tiles][4];
  using Cells = PersistentCell<T>[CB];

  const Params p;
  float4* sums;  ///< [parts][rows][8 cells], the cells of a sequence exchanged by `slot`
  uint4* rest;   ///< weights of the quads beyond `kept`: [2 (quads - kept)][tiles][threads]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int b = threadIdx.x / 8, u = threadIdx.x % 8;  ///< sequence of a group and cell of this thread
  int depth = warp * quads * 32;                 ///< the first cell of this warp's depth
  int unit = blockIdx.x * own + u;

  __device__ static int slot(int sequence, int cell) { return cell ^ sequence / 2 % 4 * 2; }
  /// Whether quad q is there; where parts are not even, the last warps have less to do.
  __device__ bool has(int q) const { return total % parts == 0 || warp * quads + q < total; }

  /// The rows of W_hh of this CTA and the depth of this warp.
  __device__ void load_weights(Weights& a) const {
#pragma unroll
    for (int s = 0; s < 2 * quads; ++s)
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        unsigned w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const long long row = (tile % 2 * 2 + i % 2) * static_cast<long long>(hidden) +
                                blockIdx.x * own + tile / 2 * Shape::block + lane / 4;
          const int k = depth + s / 2 * 32 + lane % 4 * 8 + (s % 2 * 2 + i / 2) * 2;
          w[i] = has(s / 2) ? *reinterpret_cast<const unsigned*>(p.hh + row * hidden + k) : 0;
          if (s < 2 * kept) a[s < 2 * kept ? s : 0][tile][i] = w[i];
        }
        if (s >= 2 * kept)
          rest[((s - 2 * kept) * tiles + tile) * Shape::threads + threadIdx.x] =
              make_uint4(w[0], w[1], w[2], w[3]);
      }
  }

  /// Asks for what a step of the cells needs, besides h of all; `at` are the sequence's cells in
  /// a slot. Nothing here waits for memory.
  __device__ void load(const T* x, const float* before, const T* h, int sequence,
                       Cells& cells) const {
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      PersistentCell<T>& cell = cells[block];
#pragma unroll
      for (int g = 0; g < 4; ++g) cell.x[g] = x[g * hidden + block * Shape::block];
      cell.c = before[block * Shape::block];
      if (!p.lengths) continue;
      cell.length = static_cast<int>(p.lengths[sequence]);
      cell.pair = take_word(h + block * Shape::block - u % 2);
    }
  }

  /// This warp's part of the sums of `count` sequences, of which this lane has its part of the
  /// first at `from`. True where a piece had not come, and the sums are not right.
  __device__ bool multiply(const T* from, int count, const Weights& a, Sums& sum) const {
    Piece v[ahead][NT];
    bool lacks = false;
    // Once a piece lacks, no more are taken; that also keeps the compiler from taking all at once.
    const auto load_quad = [&](int q) {
#pragma unroll
      for (int j = 0; j < NT; ++j)
        v[q % ahead][j] =
            take(from + (j * 8 * hidden + q * 32), has(q) && j * 8 + lane / 4 < count && !lacks);
    };
#pragma unroll
    for (int q = 0; q < ahead; ++q) load_quad(q);
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const Piece(&mine)[NT] = v[q % ahead];
#pragma unroll
      for (int j = 0; j < NT; ++j) lacks = lacks || mine[j].lacks();
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          unsigned left[4];
          if (q < kept) {
#pragma unroll
            for (int i = 0; i < 4; ++i) left[i] = a[q < kept ? 2 * q + e : 0][tile][i];
          } else {
            const uint4 w =
                rest[(((q - kept) * 2 + e) * tiles + tile) * Shape::threads + threadIdx.x];
            left[0] = w.x, left[1] = w.y, left[2] = w.z, left[3] = w.w;
          }
#pragma unroll
          for (int j = 0; j < NT; ++j) {
            const unsigned right[2] = {mine[j].word[2 * e], mine[j].word[2 * e + 1]};
            mma_16816(sum[j][tile], left, right, T{});
          }
        }
      if (q + ahead < quads) load_quad(q + ahead);
    }
    return lacks;
  }

  __device__ static void zero(Sums& sum) {
#pragma unroll
    for (int i = 0; i < NT * tiles * 4; ++i) sum[i / (tiles * 4)][i / 4 % tiles][i % 4] = 0.0F;
  }

  /// The sums of a block of cells, of all parts of the depth and the input.
  __device__ void add_sums(const Sums& sum, int block, PersistentCell<T>& cell) const {
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int sequence = j * 8 + lane % 4 * 2 + i;
        const float(&low)[4] = sum[j][2 * block];
        const float(&high)[4] = sum[j][2 * block + 1];
        sums[(warp * rows + sequence) * 8 + slot(sequence, lane / 4)] =
            make_float4(low[i], low[2 + i], high[i], high[2 + i]);
      }
    __syncthreads();
    if (b >= rows) return;
    float4 s[parts];
#pragma unroll
    for (int w = 0; w < parts; ++w) s[w] = sums[(w * rows + b) * 8 + slot(b, u)];
#pragma unroll
    for (int step = 1; step < parts; step *= 2)
#pragma unroll
      for (int w = 0; w < parts; w += 2 * step) {
        s[w].x += s[w + step].x;
        s[w].y += s[w + step].y;
        s[w].z += s[w + step].z;
        s[w].w += s[w + step].w;
      }
    cell.z = {s[0].x + widen(cell.x[0]), s[0].y + widen(cell.x[1]), s[0].z + widen(cell.x[2]),
              s[0].w + widen(cell.x[3])};
  }

  /// Gates and state of a cell after step t.
  __device__ void compute(PersistentCell<T>& cell, long long t) const {
    const float before = cell.c;
    if (p.hard) {
      cell.template compute<true>();
    } else {
      cell.template compute<false>();
    }
    if (!p.lengths || t < cell.length) return;
    const auto h = static_cast<unsigned short>(u % 2 ? cell.pair >> 16 : cell.pair & 0xffffU);
    cell.h = widen(*reinterpret_cast<const T*>(&h));
    cell.c = before;
  }

  /// What a later step of `count` sequences will want from memory; `row` is their first in step t.
  __device__ void prefetch(long long t, long long row, int count) const {
    const long long distance = p.reverse ? -Shape::prefetch : Shape::prefetch;
    if (t + distance < 0 || t + distance >= p.steps) return;
    row += distance * p.batch;
    prefetch_lines(p.gates + row * 4 * hidden, count * hidden / 16, 0);
    prefetch_lines(p.h + (row + (p.reverse ? 0 : p.batch)) * hidden, count * hidden / 64, 128);
  }

  /// A step of the sequences from `first` on.
  __device__ void step(int n, int first, const Weights& a) const {
    const int count = min(rows, p.batch - first);
    const bool valid = b < count;
    const long long t = p.reverse ? p.steps - 1 - n : n, row = t * p.batch + first;
    const long long before = row + (p.reverse ? p.batch : 0);
    const long long after = row + (p.reverse ? 0 : p.batch);
    T* x = p.gates + (row + b) * 4 * hidden + unit;
    Cells cells;
    if (valid)
      load(x, p.c + (before + b) * hidden + unit, p.h + (before + b) * hidden + unit, first + b,
           cells);
    // Addresses before the wait. That of the result comes later: no register is left for it.
    const T* h = p.h + before * hidden + depth;
    const T* from = fixed(h + lane / 4 * hidden + lane % 4 * 8);
    const T* last = fixed(h + (count - 1) * hidden + lane * 8);
    T* next = p.h + (after + b) * hidden + unit;
    // A piece of each block of cells, of the last sequence: the others come at about the same time.
    const bool looks = n > 0 && lane < 4 * quads && depth + lane * 8 < hidden;
    Patience patience;
    while (__any_sync(all_lanes, looks && take_word(last) == unwritten)) patience.spend();
    Sums sum;
    bool lacks;
#pragma unroll 1
    do {
      zero(sum);
      lacks = multiply(from, count, a, sum);
      patience.spend();
    } while (__any_sync(all_lanes, n > 0 && lacks));
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      if (block > 0) __syncthreads();  // the sums of the block before have been taken
      add_sums(sum, block, cells[block]);
    }
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      compute(cells[block], t);
      publish(next + block * Shape::block, cells[block].h, valid);
    }
    if (valid) store(x, p.c + (after + b) * hidden + unit, cells);
    prefetch(t, row, count);
    __syncthreads();  // before the next sums
  }

  /// What nobody waits for.
  __device__ void store(T* x, float* after, const Cells& cells) const {
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      const LstmGates<float>& z = cells[block].z;
      T* to = x + block * Shape::block;
      to[0] = narrow<T>(z.i);
      to[hidden] = narrow<T>(z.f);
      to[2 * hidden] = narrow<T>(z.g);
      to[3 * hidden] = narrow<T>(z.o);
      after[block * Shape::block] = cells[block].c;
    }
  }

  /// All steps of `groups` groups of sequences from number `group` on.
  __device__ static void run(const Params& p, int group, int groups) {
    extern __shared__ float4 lstm_memory[];
    const LstmCta cta{p, lstm_memory, reinterpret_cast<uint4*>(lstm_memory) + sums_bytes / 16};
    Weights a;
    cta.load_weights(a);
    for (int n = 0; n < p.steps; ++n)
      for (int g = group; g < group + groups && g * rows < p.batch; ++g) cta.step(n, g * rows, a);
  }
};

}  // namespace bs::cuda::device
