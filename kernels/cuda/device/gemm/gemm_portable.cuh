#pragma once
// Dense products for sm_80 and later: multistage cp.async copies, ldmatrix, mma.sync or plain
// arithmetic. An emitted kernel names a configuration, a Multiply and an Epilogue.
#include <bs/kernels/cuda/device/gemm/gemm_multiply.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_schedule.cuh>
#include <bs/kernels/cuda/device/ptx/barrier.cuh>

namespace bs::cuda::device {

/// One operand's tile in shared memory: `Side` rows (or columns) by `Depth`, of which the
/// contiguous extent is a line. `Align`: bytes to whose multiples every line in global memory is
/// aligned.
template <class T, int Side, int Depth, bool k_contiguous, int Align, int Threads>
struct OperandTile {
  static constexpr int chunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int lines = k_contiguous ? Side : Depth;
  static constexpr int length = k_contiguous ? Depth : Side;
  // Lines are padded so that a fragment's reads fall into distinct banks: by 16 bytes, but by 32
  // where the lanes of a fragment of wide elements walk across the lines.
  static constexpr int padding =
      sizeof(T) >= 4 && !k_contiguous ? 32 / static_cast<int>(sizeof(T)) : chunk;
  static constexpr int ld = length + padding;
  static constexpr int bytes = lines * ld * static_cast<int>(sizeof(T));
  static constexpr int chunks = length / chunk;
  static_assert(chunks * chunk == length);
  // Threads share a tile evenly, each with a piece of `pass` lines further on and so on: eight at a
  // time write one line, or neighbouring ones, whose padding keeps them in distinct banks.
  static constexpr int pass = Threads < chunks ? 1 : Threads / chunks;
  static constexpr bool even =
      Align >= 16 && lines % pass == 0 &&
      (chunks % 8 == 0 ? Threads % chunks == 0 : chunks < 8 && Threads % (8 * chunks) == 0);
  static constexpr int pieces = even ? lines / pass : 0;  // of a thread

  __device__ static int first_line() {
    const int thread = static_cast<int>(threadIdx.x);
    return chunks % 8 == 0 ? thread / chunks : thread / (8 * chunks) * 8 + thread % 8;
  }
  __device__ static int first_at() {
    const int thread = static_cast<int>(threadIdx.x);
    return (chunks % 8 == 0 ? thread % chunks : thread / 8 % chunks) * chunk;
  }

  __device__ static const T* at(const T* tile, int side, int k) {
    return tile + (k_contiguous ? side * ld + k : k * ld + side);
  }

  /// `count` elements of a chunk; what follows them is zero.
  __device__ static void copy_chunk(T* to, const T* from, int count) {
    const int have = count * static_cast<int>(sizeof(T));
    if constexpr (Align >= 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                   "l"(from), "r"(have)
                   : "memory");
    } else if constexpr (Align >= 4) {
#pragma unroll
      for (int i = 0; i < 16; i += Align) {
        const int part = have - i < 0 ? 0 : have - i < Align ? have - i : Align;
        const char* piece = reinterpret_cast<const char*>(from) + i;
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to) + i),
                     "l"(piece), "n"(Align), "r"(part)
                     : "memory");
      }
    } else {
      Neighbours<T, chunk> values;
#pragma unroll
      for (int i = 0; i < chunk; ++i) values.at[i] = i < count ? from[i] : T{};
      values.store(to);
    }
  }

  /// Brings the tile at (side0, k0) of an operand whose sides end at `sides`, whose depth at
  /// `depth`. What lies outside is not read, and zero.
  __device__ static void fetch(T* tile, const GemmMatrix& matrix, const T* data, int side0, int k0,
                               int sides, int depth) {
    const int line_end = (k_contiguous ? sides : depth) - (k_contiguous ? side0 : k0);
    const int at_end = (k_contiguous ? depth : sides) - (k_contiguous ? k0 : side0);
    const T* corner = data + (k_contiguous ? side0 * matrix.ld + k0 : k0 * matrix.ld + side0);
#pragma unroll 1
    for (int index = static_cast<int>(threadIdx.x); index < lines * chunks; index += Threads) {
      const int line = index / chunks, at = index % chunks * chunk;
      const int left = line < line_end ? at_end - at : 0;
      const int count = left < 0 ? 0 : left < chunk ? left : chunk;
      copy_chunk(tile + line * ld + at, corner + line * matrix.ld + at, count);
    }
  }

  /// A thread's pieces of the tiles along the depth, where a tile's ends are the matrix' or beyond
  /// them whole lines: addresses move on by sums alone.
  struct Pieces {
    const T* from;           // the next piece
    long long line_step;     // elements from one line to the next
    unsigned shared_offset;  // bytes
    unsigned outside;        // a bit for each piece whose line is not in the matrix
    bool whole;              // no piece is cut off at its side

    __device__ Pieces(const GemmMatrix& matrix, const T* data, int side0, int k0, int sides) {
      const int line = first_line(), at = first_at();
      from = data + at +
             (k_contiguous ? (side0 + line) * matrix.ld + k0 : (k0 + line) * matrix.ld + side0);
      line_step = matrix.ld;
      shared_offset = static_cast<unsigned>((line * ld + at) * sizeof(T));
      outside = 0;
      whole = k_contiguous || side0 + length <= sides;
      if constexpr (k_contiguous) {
#pragma unroll
        for (int i = 0; i < pieces; ++i)
          outside |= (side0 + line + i * pass < sides ? 0U : 1U) << i;
      }
    }
    /// The pieces of the next tile, where `wanted`.
    __device__ void fetch(unsigned tile, bool wanted) {
      const T* piece = from;
#pragma unroll
      for (int i = 0; i < pieces; ++i, piece += pass * line_step)
        asm volatile(
            "{.reg .pred p, q;\n"
            "setp.ne.b32 p, %2, 0;\n"
            "setp.ne.b32 q, %3, 0;\n"
            "@p cp.async.cg.shared.global [%0], [%1], 16, q;}" ::"r"(
                tile + shared_offset + static_cast<unsigned>(i * pass * ld * sizeof(T))),
            "l"(piece), "r"(static_cast<int>(wanted)), "r"(outside >> i & 1)
            : "memory");
      from += k_contiguous ? Depth : Depth * line_step;
    }
  };
};

/// The tiles of one operand along the depth, by pieces where they are whole.
template <class Tile, class T, bool plain>
struct TileWalk {
  const GemmMatrix& matrix;
  const T* data;
  int side0, sides, depth;
  typename Tile::Pieces pieces;

  __device__ TileWalk(const GemmMatrix& m, int batch, int side, int sides_of, int k0, int depth_of)
      : matrix(m),
        data(static_cast<const T*>(m.data) + batch * m.batch),
        side0(side),
        sides(sides_of),
        depth(depth_of),
        pieces(m, data, side, k0, sides_of) {}
  /// The next tile, which begins at `k0`.
  __device__ void fetch(char* to, int k0, bool whole) {
    if constexpr (plain) {
      if (whole) return pieces.fetch(shared_address(to), true);
    }
    Tile::fetch(reinterpret_cast<T*>(to), matrix, data, side0, k0, sides, depth);
  }
};

/// Which tiles a kernel fills its stages with, by all of its threads. C is PortableGemm's. Both
/// operands are matrices; loaders of other kinds have the same interface.
template <class C>
struct PortableLoader {
  using Params = GemmParams;
  using M = typename C::Multiply;
  static constexpr int threads = 32 * C::warps_m * C::warps_n * C::warps_k;
  using TileA =
      OperandTile<typename C::ElementA, C::rows, C::depth, C::a_k_contiguous, C::align_a, threads>;
  using TileB = OperandTile<typename C::ElementB, C::columns, C::depth, C::b_k_contiguous,
                            C::align_b, threads>;
  static constexpr bool own_steps = false;
  // Plain arithmetic has no registers left for pieces, and time enough.
  static constexpr bool even = M::depth > 1 && TileA::even&& TileB::even;

  TileWalk<TileA, typename C::ElementA, even> a;
  TileWalk<TileB, typename C::ElementB, even> b;
  int plain_end;  // of the steps whose pieces are all of them whole

  __device__ PortableLoader(const Params&, const GemmProblem& q, const GemmWork& work, int batch)
      : a(q.a, batch, work.m * C::rows, q.m, work.k_begin * C::depth, q.k),
        b(q.b, batch, work.n * C::columns, q.n, work.k_begin * C::depth, q.k),
        plain_end(even && a.pieces.whole && b.pieces.whole ? q.k / C::depth : 0) {}
  __device__ static SamePlaces places(const Params&) { return {}; }
  __device__ void fetch(char* to, int step) {
    a.fetch(to, step * C::depth, step < plain_end);
    b.fetch(to + TileA::bytes, step * C::depth, step < plain_end);
  }
};

/// C: ElementA, ElementB, Multiply, rows, columns, depth, stages, warps_m, warps_n, warps_k,
/// a_k_contiguous, b_k_contiguous, align_a, align_b, swizzle, split, group.
template <class C, class Epilogue, class Loader = PortableLoader<C>>
struct PortableGemm {
  using Params = typename Loader::Params;
  using M = typename C::Multiply;
  using Sum = typename M::Sum;
  static constexpr int threads = 32 * C::warps_m * C::warps_n * C::warps_k;
  using TileA = typename Loader::TileA;
  using TileB = typename Loader::TileB;
  static constexpr int stage_bytes = TileA::bytes + TileB::bytes;
  static constexpr int warp_m = C::rows / C::warps_m, warp_n = C::columns / C::warps_n;
  static constexpr int m_tiles = warp_m / 16, pairs = warp_n / 16;
  static constexpr int sums_a_thread = m_tiles * pairs * 8;
  static constexpr int sum_threads = threads;  // that keep sums
  // Of a warp that finishes: blocks of 16 rows, of so many tiles of 8 columns.
  static constexpr int blocks = m_tiles, tiles = 2 * pairs;
  static constexpr int steps = C::depth / M::depth / C::warps_k;  // of a warp in a stage
  static_assert(m_tiles * 16 * C::warps_m == C::rows && pairs * 16 * C::warps_n == C::columns);
  static_assert(steps * M::depth * C::warps_k == C::depth && C::stages >= 2);
  using Slab = EpilogueSlab<Epilogue, 2 * pairs>;
  static constexpr int finishing_warps = C::warps_m * C::warps_n;
  static constexpr int finishing_threads = 32 * finishing_warps;
  static constexpr int epilogue_bytes =
      (finishing_warps * Slab::scratch_elements +
       (C::warps_k > 1 ? (C::warps_k - 1) * finishing_threads * sums_a_thread : 0)) *
      static_cast<int>(sizeof(Sum));
  static constexpr int data_bytes =
      C::stages * stage_bytes > epilogue_bytes ? C::stages* stage_bytes : epilogue_bytes;
  /// Of a stage: all threads' copies have come; all warps have read it.
  struct Stage {
    Barrier full, empty;
  };
  static constexpr int shared_bytes = data_bytes + C::stages * static_cast<int>(sizeof(Stage));
  static constexpr bool plain_stores = C::align_a < 4 || C::align_b < 4;
  using Place = RingPlace<C::stages>;
  using Schedule = GemmSchedule<C::rows, C::columns, C::depth, C::swizzle, C::split, C::group>;

  /// Copies of one work, tile after tile along the depth.
  struct Fetcher {
    Loader loader;
    char* shared;
    Stage* stages;
    int step, end;

    __device__ Fetcher(const Params& p, char* memory, Stage* barriers, const GemmProblem& problem,
                       const GemmWork& work, int batch)
        : loader(p, problem, work, batch),
          shared(memory),
          stages(barriers),
          step(work.k_begin),
          end(work.k_end) {}
    /// The next tiles into the next stage.
    __device__ void fetch(Place& place) {
      if (step >= end) return;
      Stage& stage = stages[place.stage];
      stage.empty.wait(place.parity ^ 1);
      loader.fetch(shared + place.stage * stage_bytes, step);
      if constexpr (plain_stores) {
        commit_copies();
        wait_copies<0>();
        stage.full.arrive();
      } else {
        stage.full.arrive_after_copies();
      }
      ++step;
      place.advance();
    }
  };

  /// Sums over the depth of `work`. Between warps there is nothing but the stages' barriers, so
  /// that one warp of a scheduler multiplies while the other one waits.
  __device__ static void multiply(const Params& p, char* shared, Stage* stages, Place& reading,
                                  Place& writing, const GemmProblem& q, const GemmWork& work,
                                  int batch, typename M::Cell (&cells)[m_tiles][2 * pairs]) {
    using TA = typename C::ElementA;
    using TB = typename C::ElementB;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int m0 = warp % C::warps_m * warp_m;
    const int n0 = warp / C::warps_m % C::warps_n * warp_n;
    const int first = warp / (C::warps_m * C::warps_n) * steps;
    Fetcher fetcher(p, shared, stages, q, work, batch);

    typename M::A fa[2][m_tiles];
    typename M::B fb[2];
    const auto load_a = [&](int buffer, int i, int stage_number, int step) {
      const char* stage = shared + stage_number * stage_bytes;
      M::template load_a<C::a_k_contiguous>(
          fa[buffer][i],
          TileA::at(reinterpret_cast<const TA*>(stage), m0 + 16 * i, (first + step) * M::depth),
          TileA::ld, lane);
    };
    const auto load_b = [&](int buffer, int j, int stage_number, int step) {
      const char* stage = shared + stage_number * stage_bytes + TileA::bytes;
      M::template load_b<C::b_k_contiguous>(
          fb[buffer],
          TileB::at(reinterpret_cast<const TB*>(stage), n0 + 16 * j, (first + step) * M::depth),
          TileB::ld, lane);
    };
    const auto multiply_pair = [&](int j, const typename M::A(&a_now)[m_tiles],
                                   const typename M::B& b_now) {
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          M::multiply(cells[i][2 * j + half], a_now[i], b_now, half);
    };
    const auto release = [&](int stage) {
      __syncwarp();
      if (lane == 0) stages[stage].empty.arrive();
    };

    for (int s = 0; s < C::stages - 1; ++s) fetcher.fetch(writing);
    int left = work.k_end - work.k_begin;
    if (left == 0) return;
    if constexpr (steps % 2 == 0) {
      // While one pair of column tiles multiplies, the next is on its way from shared memory, and
      // so are the rows of the step ahead.
      constexpr int slots = steps * pairs;  // the last one loads from the stage ahead
      stages[reading.stage].full.wait(reading.parity);
#pragma unroll
      for (int i = 0; i < m_tiles; ++i) load_a(0, i, reading.stage, 0);
      load_b(0, 0, reading.stage, 0);
      for (; left > 0; --left) {
        const int now = reading.stage;
#pragma unroll
        for (int s = 0; s < steps; ++s)
#pragma unroll
          for (int j = 0; j < pairs; ++j) {
            const int slot = s * pairs + j;
            const bool last_pair = j == pairs - 1, last_step = s == steps - 1;
            if (slot == slots / 2) fetcher.fetch(writing);
            if (slot == slots - 1) {
              release(now);
              reading.advance();
              if (left > 1) stages[reading.stage].full.wait(reading.parity);
            }
            load_b((slot + 1) % 2, (j + 1) % pairs, slot == slots - 1 ? reading.stage : now,
                   (s + (last_pair ? 1 : 0)) % steps);
#pragma unroll
            for (int i = 0; i < m_tiles; ++i)
              if (last_step ? last_pair : i * pairs / m_tiles == j)
                load_a((s + 1) % 2, i, last_step ? reading.stage : now, (s + 1) % steps);
            multiply_pair(j, fa[s % 2], fb[slot % 2]);
          }
      }
    } else {
      for (; left > 0; --left) {
        stages[reading.stage].full.wait(reading.parity);
        fetcher.fetch(writing);
#pragma unroll
        for (int s = 0; s < steps; ++s) {
#pragma unroll
          for (int i = 0; i < m_tiles; ++i) load_a(0, i, reading.stage, s);
#pragma unroll
          for (int j = 0; j < pairs; ++j) {
            load_b(0, j, reading.stage, s);
            multiply_pair(j, fa[0], fb[0]);
          }
        }
        release(reading.stage);
        reading.advance();
      }
    }
    __syncthreads();  // what follows may use the stages' memory
  }

  /// The warps that took other parts of each stage hand their sums to the first.
  __device__ static void join_warps(char* shared, Sum (&sums)[sums_a_thread]) {
    Sum* place = reinterpret_cast<Sum*>(shared) + threadIdx.x % finishing_threads;
    const int part = static_cast<int>(threadIdx.x) / finishing_threads;
#pragma unroll
    for (int i = 0; i < sums_a_thread; ++i)
      if (part > 0) place[((part - 1) * sums_a_thread + i) * finishing_threads] = sums[i];
    __syncthreads();
#pragma unroll
    for (int other = 1; other < C::warps_k; ++other)
#pragma unroll
      for (int i = 0; i < sums_a_thread; ++i)
        if (part == 0) sums[i] += place[((other - 1) * sums_a_thread + i) * finishing_threads];
    __syncthreads();
  }

  /// Where a finishing warp's block of 16 rows lies in D.
  __device__ static int row_of(const GemmWork& work, int warp, int block) {
    return work.m * C::rows + warp % C::warps_m * warp_m + 16 * block;
  }
  __device__ static int column_of(const GemmWork& work, int warp) {
    return work.n * C::columns + warp / C::warps_m * warp_n;
  }

  __device__ static void finish(char* shared, const Params& p, const GemmOperand* operands,
                                const GemmProblem& q, const GemmWork& work, int batch,
                                Sum (&sums)[m_tiles][2 * pairs][4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= finishing_warps) return;
    Sum* scratch = reinterpret_cast<Sum*>(shared) + warp * Slab::scratch_elements;
    // Of many sums half leave first: were all of them kept to the end of one loop, ptxas would have
    // no neighbouring registers left for pairs of operands.
    constexpr int parts = sums_a_thread > 64 && m_tiles % 2 == 0 ? 2 : 1, slabs = m_tiles / parts;
#pragma unroll
    for (int i = 0; i < parts; ++i)
      Slab::run(p.scalars, operands, reinterpret_cast<Sum(&)[slabs][2 * pairs][4]>(sums[i * slabs]),
                16, scratch, row_of(work, warp, i * slabs), column_of(work, warp), batch, q.m, q.n,
                Loader::places(p));
  }

  __device__ static void run(const Params& p) {
    extern __shared__ __align__(16) char shared[];
    __shared__ int flag;
    Stage* const stages = reinterpret_cast<Stage*>(shared + data_bytes);
    if (threadIdx.x < C::stages) {
      stages[threadIdx.x].full.init(threads);
      stages[threadIdx.x].empty.init(threads / 32);
    }
    __syncthreads();
    Place reading, writing;
    Schedule schedule(p, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    GemmWork work;
    while (schedule.take(work)) {
      if constexpr (Loader::own_steps) work.k_end = Loader::steps(p, work);
      const GemmProblem& q = schedule.at(work.problem);
      const int batch = C::group == GemmGroup::batched ? work.problem : 0;
      Sum sums[m_tiles][2 * pairs][4];
      {
        typename M::Cell cells[m_tiles][2 * pairs] = {};
        multiply(p, shared, stages, reading, writing, q, work, batch, cells);
#pragma unroll
        for (int i = 0; i < m_tiles; ++i)
#pragma unroll
          for (int j = 0; j < 2 * pairs; ++j) read_cell(cells[i][j], sums[i][j]);
      }
      auto& flat = reinterpret_cast<Sum(&)[sums_a_thread]>(sums);
      if constexpr (C::warps_k > 1) join_warps(shared, flat);
      const bool whole = join_pieces<C::split, threads>(
          p, schedule, work, flat, static_cast<int>(threadIdx.x), &flag, [] { __syncthreads(); });
      if (whole) finish(shared, p, schedule.operands(work.problem), q, work, batch, sums);
      __syncthreads();
    }
  }
};

}  // namespace bs::cuda::device
