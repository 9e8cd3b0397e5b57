#pragma once
// The steps of an LSTM's backward in one kernel, for 16-bit types; see lstm_persistent.cuh for the
// forward, whose division of cells and sequences it shares.
//
// What travels is the gradient of the sums, four numbers a cell. To read all of it would take each
// CTA four times as long as h, so the CTAs of a cluster of two divide the depth: each multiplies
// its half with the columns of W_hh that both need, and sends the sums of the other's cells to the
// other's shared memory, whose barrier counts the bytes: no fence is needed, which would wait for
// all stores on their way. There, thread (sequence, cell) adds what all parts of the depth sent.
// Two turns have memory of their own: who sends the next but one has seen that all read the last.
//
// Sequences are the rows of mma.m16n8k16 and cells its columns. A lane takes 8 neighbouring numbers
// of a sequence at once, which make its part of two steps of 16 of the depth.
#include <bs/kernels/cuda/device/lstm/lstm_cell.cuh>
#include <bs/kernels/cuda/device/lstm/lstm_exchange.cuh>
#include <bs/kernels/cuda/device/ptx/barrier.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>

namespace bs::cuda::device {

/// One direction.
template <class T>
struct PersistentLstmBackward {
  const T* gates;            ///< [steps, batch, 4 cells]
  const float* c;            ///< [steps + 1, batch, cells]
  const T* hh;               ///< [4 cells, cells]
  const T* dy;               ///< [steps, batch, cells], or null
  const float* dcells;       ///< [steps, batch, cells], or null
  float *dh, *dc;            ///< [batch, cells], in and out; dc is kept here between steps
  T* dgates;                 ///< [steps, batch, 4 cells], unwritten
  const long long* lengths;  ///< [batch], or null; then dh is kept between steps too
  int steps, batch;
  bool reverse, hard;
};

__device__ inline unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// For all threads of the cluster.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

__device__ inline unsigned address_in_rank(unsigned rank, const void* shared) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(shared)), "r"(rank));
  return address;
}
/// Two numbers to shared memory of the cluster, counted by a barrier there.
__device__ inline void send_to(unsigned address, unsigned barrier, float x, float y) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];" ::"r"(
          address),
      "r"(barrier), "f"(x), "f"(y)
      : "memory");
}

/// KS: cells / 128; CB: blocks of 8 cells; Rows: sequences of a group.
template <class T, int KS, int CB, int Rows>
struct LstmBackwardCta {
  using Params = PersistentLstmBackward<T>;
  static constexpr bool backward = true;
  using Shape = PersistentShape;
  static constexpr int hidden = 128 * KS, rows = Rows, own = Shape::block * CB;
  static constexpr int tiles = 2 * CB;               ///< of 8 columns, of both CTAs
  static constexpr int MT = rows / 16;               ///< of 16 sequences
  static constexpr int parts = Shape::warps;         ///< of the depth of a CTA, one a warp
  static constexpr int quads = hidden / 16 / parts;  ///< 32 numbers of depth, two steps of mma
  static constexpr int kept = CB == 1 || KS < 4 ? quads : KS <= 12 ? 2 : 4;  ///< in registers
  static constexpr int room = (CB == 1 || KS <= 12 ? 8 : 4) / MT;
  static constexpr int ahead = quads < room ? quads : room;      ///< quads on their way at once
  static constexpr int turn_bytes = 2 * parts * rows * own * 4;  ///< that a CTA gets a turn
  static constexpr int weight_bytes = (quads - kept) * tiles * Shape::threads * 16;
  static constexpr int shared_bytes = 2 * turn_bytes + weight_bytes + 16;

  using Weights = unsigned[2 * kept][tiles][2];
  using Sums = float[MT][tiles][4];

  const Params p;
  float* received;    ///< [2][2 ranks, parts][rows][own cells]
  Barrier* barriers;  ///< of both turns
  uint4* rest;        ///< weights of the quads beyond `kept`: [quads - kept][tiles][threads]
  unsigned rank = rank_in_cluster();
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int part = static_cast<int>(rank) * parts + warp;
  int b = threadIdx.x / 8, u = threadIdx.x % 8;
  int depth = part * quads * 32;  ///< the first number of this warp's depth
  int unit = blockIdx.x * own + u;

  __device__ long long step_of(int n) const { return p.reverse ? n : p.steps - 1 - n; }
  __device__ long long state(int sequence, int block) const {
    return static_cast<long long>(sequence) * hidden + unit + block * Shape::block;
  }

  /// The columns of both CTAs of the cluster, in the rows of this warp's depth.
  __device__ void load_weights(Weights& w) const {
    const int column = blockIdx.x / 2 * (2 * own) + lane / 4;
#pragma unroll
    for (int q = 0; q < quads; ++q)
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const long long row = depth + q * 32 + lane % 4 * 8 + i * 2;
          const T* at = p.hh + row * hidden + column + tile * 8;
          const unsigned low = *reinterpret_cast<const unsigned short*>(at);
          const unsigned high = *reinterpret_cast<const unsigned short*>(at + hidden);
          words[i] = low | high << 16;
          if (q < kept) w[q < kept ? 2 * q + i / 2 : 0][tile][i % 2] = words[i];
        }
        if (q >= kept)
          rest[((q - kept) * tiles + tile) * Shape::threads + threadIdx.x] =
              make_uint4(words[0], words[1], words[2], words[3]);
      }
  }

  /// What a step of a cell needs, besides the gradient that comes back through the weights.
  struct Input {
    T gates[4], dy;
    float before, after, dh, dc, dcell;
    long long length;
    LstmSlopes<float> by;
    bool active;
  };
  /// Asks for it; nothing here waits for memory.
  __device__ void load(int n, int sequence, Input (&in)[CB]) const {
    const long long t = step_of(n), step = static_cast<long long>(p.batch) * hidden;
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      Input& i = in[block];
      const long long at = state(sequence, block), now = t * step + at;
      const T* x = p.gates + 4 * (now - at + static_cast<long long>(sequence) * hidden) + unit +
                   block * Shape::block;
#pragma unroll
      for (int g = 0; g < 4; ++g) i.gates[g] = x[g * hidden];
      i.before = p.c[now + (p.reverse ? step : 0)];
      i.after = p.c[now + (p.reverse ? 0 : step)];
      i.dc = p.dc[at];
      if (p.dcells) i.dcell = p.dcells[now];
      if (p.dy) i.dy = p.dy[now];
      if (n == 0 || p.lengths) i.dh = p.dh[at];
      if (p.lengths) i.length = p.lengths[sequence];
    }
  }
  /// What can be computed of it before the gradient has come.
  __device__ void prepare(int n, Input (&in)[CB]) const {
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      Input& i = in[block];
      const LstmGates<float> z{widen(i.gates[0]), widen(i.gates[1]), widen(i.gates[2]),
                               widen(i.gates[3])};
      i.by = p.hard ? lstm_slopes<true>(z, i.before, i.after)
                    : lstm_slopes<false>(z, i.before, i.after);
      if (p.dcells) i.dc += i.dcell;
      if (n > 0 && !p.lengths) i.dh = 0.0F;
      if (p.dy) i.dh += widen(i.dy);
      i.active = !p.lengths || step_of(n) < i.length;
    }
  }

  /// Gradients of the sums of step number n, to all who wait; `through` came through the weights.
  __device__ void begin(int n, int sequence, bool valid, Input (&in)[CB],
                        const float (&through)[CB]) const {
    T* to = p.dgates + (step_of(n) * p.batch + sequence) * 4 * hidden + unit;
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      Input& i = in[block];
      i.dh += through[block];
      LstmGates<float> d{};
      if (i.active) d = lstm_cell_backward(i.by, i.dh, i.dc);
      publish(to + block * Shape::block, d.i, valid);
      publish(to + block * Shape::block + hidden, d.f, valid);
      publish(to + block * Shape::block + 2 * hidden, d.g, valid);
      publish(to + block * Shape::block + 3 * hidden, d.o, valid);
    }
    if (!valid) return;
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      p.dc[state(sequence, block)] = in[block].dc;
      if (p.lengths) p.dh[state(sequence, block)] = in[block].active ? 0.0F : in[block].dh;
    }
  }

  /// This warp's part of the product of `count` sequences with their gradients, of which this lane
  /// has its part of the first at `from`. True where a piece had not come.
  __device__ bool multiply(const T* from, int count, const Weights& w, Sums& sum) const {
    Piece v[ahead][2 * MT];  // rows of tile m come in halves of 8
    bool lacks = false;
    // Once a piece lacks, no more are taken; that also keeps the compiler from taking all at once.
    const auto load_quad = [&](int q) {
#pragma unroll
      for (int r = 0; r < 2 * MT; ++r)
        v[q % ahead][r] =
            take(from + (r * 8 * 4 * hidden + q * 32), r * 8 + lane / 4 < count && !lacks);
    };
#pragma unroll
    for (int q = 0; q < ahead; ++q) load_quad(q);
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const Piece(&mine)[2 * MT] = v[q % ahead];
#pragma unroll
      for (int r = 0; r < 2 * MT; ++r) lacks = lacks || mine[r].lacks();
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        unsigned right[2][2];
        if (q < kept) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            right[i / 2][i % 2] = w[q < kept ? 2 * q + i / 2 : 0][tile][i % 2];
        } else {
          const uint4 words = rest[((q - kept) * tiles + tile) * Shape::threads + threadIdx.x];
          right[0][0] = words.x, right[0][1] = words.y;
          right[1][0] = words.z, right[1][1] = words.w;
        }
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const unsigned(&top)[4] = mine[2 * m].word, (&bottom)[4] = mine[2 * m + 1].word;
            const unsigned left[4] = {top[2 * e], bottom[2 * e], top[2 * e + 1], bottom[2 * e + 1]};
            mma_16816(sum[m][tile], left, right[e], T{});
          }
      }
      if (q + ahead < quads) load_quad(q + ahead);
    }
    return lacks;
  }
  __device__ static void zero(Sums& sum) {
#pragma unroll
    for (int i = 0; i < MT * tiles * 4; ++i) sum[i / (tiles * 4)][i / 4 % tiles][i % 4] = 0.0F;
  }

  /// Sums to the CTAs whose cells they are of.
  __device__ void send(int turn, const Sums& sum) const {
    const float* mine =
        received + ((turn % 2 * 2 * parts + part) * rows + lane / 4) * own + lane % 4 * 2;
#pragma unroll
    for (int to = 0; to < 2; ++to) {
      const unsigned at = address_in_rank(to, mine);
      const unsigned barrier = address_in_rank(to, &barriers[turn % 2].word);
#pragma unroll
      for (int block = 0; block < CB; ++block)
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          const float(&s)[4] = sum[m][to * CB + block];
          const unsigned there = at + (m * 16 * own + block * Shape::block) * 4;
          send_to(there, barrier, s[0], s[1]);
          send_to(there + 8 * own * 4, barrier, s[2], s[3]);
        }
    }
  }

  __device__ float collect(int turn, int block) const {
    if (b >= rows) return 0.0F;
    float s[2 * parts];
#pragma unroll
    for (int w = 0; w < 2 * parts; ++w)
      s[w] = received[((turn % 2 * 2 * parts + w) * rows + b) * own + block * Shape::block + u];
#pragma unroll
    for (int step = 1; step < 2 * parts; step *= 2)
#pragma unroll
      for (int w = 0; w < 2 * parts; w += 2 * step) s[w] += s[w + step];
    return s[0];
  }

  /// What a later step of these sequences will want from memory.
  __device__ void prefetch(int n, int first, int count) const {
    if (n + Shape::prefetch >= p.steps) return;
    const long long row = step_of(n + Shape::prefetch) * p.batch + first;
    prefetch_lines(p.gates + row * 4 * hidden, count * hidden / 16, 0);
    prefetch_lines(p.c + (row + (p.reverse ? p.batch : 0)) * hidden, count * hidden / 32, 64);
    if (p.dy) prefetch_lines(p.dy + row * hidden, count * hidden / 64, 96);
    prefetch_lines(p.dgates + row * 4 * hidden, count * hidden / 16, 128);
  }

  /// What comes through the weights from step number n, and the step after it in this order.
  __device__ void step(int n, int turn, int first, const Weights& w) const {
    const int count = min(rows, p.batch - first), mine = first + b;
    const bool more = n + 1 < p.steps, valid = b < count;
    Input in[CB] = {};
    const int next = more ? n + 1 : n;  // a branch would double the code
    if (valid) load(next, mine, in);
    prefetch(n, first, count);
    // All addresses before the wait.
    const T* d = p.dgates + (step_of(n) * p.batch + first) * 4 * hidden + depth;
    const T* from = fixed(d + lane / 4 * 4 * hidden + lane % 4 * 8);
    const T* last = fixed(d + (count - 1) * 4 * hidden + lane * 8);
    if (threadIdx.x == 0) barriers[turn % 2].arrive_expecting(turn_bytes);
    // Pieces of the last sequence: the others come at about the same time.
    const bool looks = lane < 4 * quads;
    Patience patience;
    while (__any_sync(all_lanes, looks && take_word(last) == unwritten)) patience.spend();
    Sums sum;
    bool lacks;
#pragma unroll 1
    do {
      zero(sum);
      lacks = __any_sync(all_lanes, multiply(from, count, w, sum));
      if (lacks) patience.spend();
    } while (lacks);
    send(turn, sum);
    prepare(next, in);
    barriers[turn % 2].wait(turn / 2 % 2);  // ends, or the other CTA has given up for both
    float through[CB];
#pragma unroll
    for (int block = 0; block < CB; ++block) through[block] = collect(turn, block);
    if (more) return begin(n + 1, mine, valid, in, through);
    if (!valid) return;
#pragma unroll
    for (int block = 0; block < CB; ++block) {
      float& dh = p.dh[state(mine, block)];
      dh = through[block] + (p.lengths ? dh : 0.0F);
    }
  }

  /// All steps of `groups` groups of sequences from number `group` on.
  __device__ static void run(const Params& p, int group, int groups) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ float4 lstm_memory[];
    char* memory = reinterpret_cast<char*>(lstm_memory);
    const LstmBackwardCta cta{p, reinterpret_cast<float*>(memory),
                              reinterpret_cast<Barrier*>(memory + 2 * turn_bytes + weight_bytes),
                              reinterpret_cast<uint4*>(memory + 2 * turn_bytes)};
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) cta.barriers[i].init(1);
      fence_barrier_init();
    }
    Weights w;
    cta.load_weights(w);
    const int end = min(group + groups, (p.batch + rows - 1) / rows);
    meet_cluster();  // the other's barriers are there
    for (int g = group; g < end; ++g) {
      const int mine = g * rows + cta.b;
      const bool valid = cta.b < rows && mine < p.batch;
      Input in[CB] = {};
      const float nothing[CB] = {};
      if (valid) cta.load(0, mine, in);
      cta.prepare(0, in);
      cta.begin(0, mine, valid, in, nothing);
    }
    // One loop: two keep more in registers than there are.
    for (int n = 0, g = group, turn = 0; n < p.steps && g < end; ++turn) {
      cta.step(n, turn, g * rows, w);
      if (++g == end) {
        g = group;
        ++n;
      }
    }
#endif
  }
};

}  // namespace bs::cuda::device
