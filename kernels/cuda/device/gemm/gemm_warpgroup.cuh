#pragma once
// Dense products for Hopper: one warp copies tiles with the copy engine into a ring of stages, the
// other warpgroups multiply them (wgmma) and take the sums to the epilogue, while the copies of the
// next tile are on their way. CTAs of a cluster read the operand that they share half each, and
// send it to both; or they have a part of one tile's depth each, and add their sums up through
// distributed shared memory.
#include <bs/kernels/cuda/device/gemm/gemm_boxes.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_loader.cuh>
#include <bs/kernels/cuda/device/gemm/gemm_schedule.cuh>

namespace bs::cuda::device {

/// C: ElementA, ElementB, ElementD, Multiply, rows, columns, depth, stages, parts, groups,
/// cluster_m, cluster_n, cluster_k, a_k_contiguous, b_k_contiguous, boxes, swizzle, split, group.
/// Two parts: operands come as the large and the small part of their elements, batch by batch, and
/// three products of them make one. `Block`: D is block-sparse, of blocks of so many rows and
/// columns, and of its tiles only blocks that exist are stored. `Loader`: see gemm_loader.cuh.
template <class C, class Epilogue, int Block = 0, class Loader = GemmLoader<C>>
struct WarpgroupGemm {
  using Params = typename Loader::Params;
  using M = typename C::Multiply;
  using Sum = typename M::Sum;
  static constexpr int consumers = 128 * C::groups, threads = consumers + 128;
  static constexpr int blocks =
      C::rows / C::groups / 64;                 // products of a warpgroup, one above the other
  static constexpr int tiles = C::columns / 8;  // of 8 columns, of a warp
  static constexpr int sum_threads = consumers, sums_a_thread = blocks * C::columns / 2;
  static constexpr int finishing_warps = 4 * C::groups;
  static constexpr int line = Loader::line;
  static constexpr unsigned a_bytes = Loader::a_bytes, b_bytes = Loader::b_bytes;  // of a part
  static constexpr unsigned stage_bytes = C::parts * (a_bytes + b_bytes);
  static constexpr int steps = C::depth / M::depth;
  static constexpr int ctas = C::cluster_m * C::cluster_n;  // that share what they load
  // Of a tile's columns, those that one CTA finishes: all, or a part where several have its depth.
  static constexpr int own_columns =
      C::cluster_k == 1 ? C::columns : (C::columns / C::cluster_k + 15) / 16 * 16;
  static constexpr int own_tiles = own_columns / 8;
  static constexpr int piece_bytes = C::rows * own_columns * 4;  // of them, from another CTA
  static constexpr int received_bytes = (C::cluster_k - 1) * piece_bytes;
  static constexpr bool maybe_nothing = C::split != GemmSplit::none || C::cluster_k > 1;
  static_assert(blocks * C::groups * 64 == C::rows && M::columns == C::columns && steps == 4);
  static_assert(ctas == 1 || C::cluster_k == 1);
  static_assert(Block == 0 || (C::boxes && !maybe_nothing && C::group == GemmGroup::batched));
  using Boxes = GemmBoxes<typename C::ElementD, Epilogue, blocks, C::columns, Block>;
  using Slab = EpilogueSlab<Epilogue, own_tiles>;
  // Of a warp: where rows are put together, or two boxes on their way out.
  static constexpr int scratch_bytes =
      C::boxes ? 4096 : Slab::scratch_elements * static_cast<int>(sizeof(Sum));

  // Where every tile has all of its depth, the warp that copies tells the others where it lies,
  // which takes several divisions to find out.
  static constexpr bool told = C::split == GemmSplit::none && C::cluster_k == 1;
  struct alignas(16) Place {
    int m, n, problem, steps;
  };

  struct Shared {
    Place places[C::stages];  // of the tiles whose first steps are in the stages
    Barrier full[C::stages], empty[C::stages];
    Barrier received;
    int flag;
  };
  static constexpr int shared_bytes = C::stages * (static_cast<int>(stage_bytes) + 32) +
                                      received_bytes + 4 * C::groups * scratch_bytes + 16 + 1024;
  static_assert(sizeof(Shared) <= C::stages * 32 + 16);
  using Schedule = GemmSchedule<C::rows, C::columns, C::depth, C::swizzle, C::split, C::group,
                                C::cluster_m, C::cluster_n>;
  using Ring = RingPlace<C::stages>;
  static_assert(ctas == 1 ||
                (C::rows / C::cluster_n % 64 == 0 && C::columns / C::cluster_m % 64 == 0));

  __device__ static Schedule schedule(const Params& p) {
    constexpr int cluster = ctas * C::cluster_k;
    return Schedule(p.gemm, static_cast<int>(blockIdx.x) / cluster,
                    static_cast<int>(gridDim.x) / cluster);
  }
  /// The next tile of this CTA, and what it has of the depth.
  __device__ static bool take(const Params& p, Schedule& schedule, GemmWork& work) {
    if (!schedule.take(work)) return false;
    if constexpr (Loader::own_steps) work.k_end = Loader::steps(p, work);
    const int rank = ctas * C::cluster_k > 1 ? static_cast<int>(cluster_rank()) : 0;
    if constexpr (C::cluster_k > 1) {
      const int all = work.k_end;
      work.k_begin = static_cast<int>(static_cast<long long>(all) * rank / C::cluster_k);
      work.k_end = static_cast<int>(static_cast<long long>(all) * (rank + 1) / C::cluster_k);
    }
    if constexpr (ctas > 1) {  // its tile of the cluster's
      const bool down = work.turned ? C::cluster_n > 1 : C::cluster_m > 1;
      if (!work.turned) {
        work.m *= C::cluster_m;
        work.n *= C::cluster_n;
      }
      (down ? work.m : work.n) += rank;
    }
    return true;
  }
  /// The same for those that multiply.
  __device__ static bool hear(const Params& p, Schedule& schedule, Shared& s, const Ring& ring,
                              GemmWork& work) {
    if constexpr (!told) return take(p, schedule, work);
    if (!schedule.pass()) return false;
    s.full[ring.stage].wait(ring.parity);
    const Place place = s.places[ring.stage];
    work.m = place.m;
    work.n = place.n;
    work.problem = place.problem;
    work.k_begin = 0;
    work.k_end = place.steps;
    return true;
  }

  /// Where 16 rows of a warp's block of 64 of a warpgroup lie in D.
  __device__ static int row_of(const GemmWork& work, int warp, int block) {
    return work.m * C::rows + (warp / 4 * blocks + block) * 64 + warp % 4 * 16;
  }
  __device__ static int column_of(const GemmWork& work, int) { return work.n * C::columns; }

  /// Whether this thread asks for copies.
  __device__ static bool copies() {
    return threadIdx.x >= consumers && threadIdx.x < consumers + 32 * Loader::warps &&
           threadIdx.x % 32 == 0;
  }
  /// The warps that copy: a thread of each of the loader's. All of them come here where the cluster
  /// has barriers.
  __device__ static void produce(const Params& p, Shared& s, unsigned stages) {
    Schedule schedule = WarpgroupGemm::schedule(p);
    Ring ring;
    GemmWork work;
    const int warp = (static_cast<int>(threadIdx.x) - consumers) / 32;
    while (take(p, schedule, work)) {
      Loader loader(p, work);
      const int end = copies() ? work.k_end : work.k_begin;
      if constexpr (told) {
        s.empty[ring.stage].wait(ring.parity ^ 1);
        if (warp == 0) s.places[ring.stage] = {work.m, work.n, work.problem, work.k_end};
      }
#pragma unroll 1
      for (int step = work.k_begin; step < end; ++step) {
        s.empty[ring.stage].wait(ring.parity ^ 1);
        Barrier& full = s.full[ring.stage];
        if (warp == 0) full.arrive_expecting(stage_bytes);
        const unsigned stage = stages + static_cast<unsigned>(ring.stage) * stage_bytes;
        loader.load(stage, full, step, warp);
        ring.advance();
      }
      if constexpr (C::cluster_k > 1) {  // as in add_up()
        __syncwarp();
        cluster_wait();
        cluster_arrive();
      }
    }
  }

  /// Says to every CTA that copies into it that this warp has read a stage.
  __device__ static void release(Shared& s, int stage) {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (ctas == 1) {
      if (lane == 0) s.empty[stage].arrive();
    } else {
      if (lane < ctas) s.empty[stage].arrive_at(lane);
    }
  }

  /// A warpgroup's operands in the first stage, and from one instruction's depth to the next, in
  /// units of 16 bytes: along a line, or lines on.
  struct Operands {
    unsigned long long a, b;
    static constexpr unsigned long long a_step = C::a_k_contiguous ? 2 : M::depth * line / 16;
    static constexpr unsigned long long b_step = C::b_k_contiguous ? 2 : M::depth * line / 16;
    __device__ static unsigned long long matrix(unsigned address, unsigned piece) {
      return matrix_descriptor<128>(8 * line, piece) | descriptor_address(address);
    }
    static constexpr unsigned long long below = 64 * line / 16;  // of the warpgroup's next 64 rows

    __device__ explicit Operands(unsigned stages)
        : a(matrix(stages + threadIdx.x / 128 * (blocks * 64 * line),
                   C::a_k_contiguous ? 0 : 64 * line)),
          b(matrix(stages + C::parts * a_bytes, C::b_k_contiguous ? 0 : 64 * line)) {}
  };

  __device__ static Sum& at(Sum (&sums)[blocks][C::columns / 8][4], int i) {
    return sums[i / (C::columns / 2)][i / 4 % (C::columns / 8)][i % 4];
  }
  __device__ static void clear(Sum (&sums)[blocks][C::columns / 8][4]) {
#pragma unroll
    for (int i = 0; i < blocks * C::columns / 2; ++i) at(sums, i) = 0;
  }

  /// Sums over steps of the depth, of which there is one at least unless it is split. Of operands
  /// in two parts, three products, small terms first.
  __device__ static void sum_steps(Shared& s, const Operands& operands, Ring& ring, int begin,
                                   int end, Sum (&sums)[blocks][C::columns / 8][4]) {
    constexpr int products = C::parts == 1 ? 1 : 3;
    int before = 0;
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
      s.full[ring.stage].wait(ring.parity);
      const unsigned long long at = static_cast<unsigned>(ring.stage) * (stage_bytes / 16);
      warpgroup_arrive();
#pragma unroll
      for (int product = 0; product < products; ++product) {
        const bool small_a = products == 3 && product == 0, small_b = product == 1;
        const unsigned long long a = operands.a + at + (small_a ? a_bytes / 16 : 0);
        const unsigned long long b = operands.b + at + (small_b ? b_bytes / 16 : 0);
#pragma unroll
        for (int k = 0; k < steps; ++k)
#pragma unroll
          for (int i = 0; i < blocks; ++i)
            M::run(i, a + k * Operands::a_step + i * Operands::below, b + k * Operands::b_step,
                   product > 0 || k > 0 || step > begin);
      }
      warpgroup_commit();
      warpgroup_wait<1>();  // those of the step before are done
      if (step > begin) release(s, before);
      before = ring.stage;
      ring.advance();
    }
    warpgroup_wait<0>();
    if (!maybe_nothing || begin < end) release(s, before);
#pragma unroll
    for (int i = 0; i < blocks; ++i) M::take(i, sums[i]);
  }

  /// Sums over the depth of `work`.
  __device__ static void multiply(Shared& s, const Operands& operands, Ring& ring,
                                  const GemmWork& work, Sum (&sums)[blocks][C::columns / 8][4]) {
    if constexpr (C::parts == 1) {
      if constexpr (maybe_nothing) M::clear();  // where there is no step
      sum_steps(s, operands, ring, work.k_begin, work.k_end, sums);
    } else {
      // The tensor cores cut their sums off rather than round them, which over a long depth adds up
      // (Ootomo, Yokota: Recovering single precision accuracy from tensor cores, 2022). So each
      // step starts from zero, and is added to the sums outside, rounded.
      clear(sums);
#pragma unroll 1
      for (int step = work.k_begin; step < work.k_end; ++step) {
        Sum part[blocks][C::columns / 8][4];
        sum_steps(s, operands, ring, step, step + 1, part);
#pragma unroll
        for (int i = 0; i < blocks * C::columns / 2; ++i) at(sums, i) += at(part, i);
      }
    }
  }

  /// Sends what this CTA has of the other CTAs' columns to them: each CTA begins with another one.
  __device__ static void send(const Sum (&sums)[blocks][C::columns / 8][4], unsigned received,
                              unsigned done) {
    const unsigned rank = cluster_rank(), place = received + threadIdx.x * 16;
#pragma unroll 1
    for (unsigned step = 1; step < C::cluster_k; ++step) {
      const unsigned to = (rank + step) % C::cluster_k;
      const unsigned slot = rank < to ? rank : rank - 1;
      const unsigned there = address_at(to, place + slot * piece_bytes),
                     counts = address_at(to, done);
#pragma unroll
      for (int cta = 0; cta < C::cluster_k; ++cta) {  // registers have no index
        if (cta != to) continue;
#pragma unroll
        for (int i = 0; i < blocks * own_tiles; ++i) {
          const int t = cta * own_tiles + i % own_tiles;
          if (t < tiles) store_at(there + i * (consumers * 16), sums[i / own_tiles][t], counts);
        }
      }
    }
  }

  /// Adds up what the CTAs of a cluster have of a tile, in their order, each CTA some columns of
  /// it, and takes these to the epilogue.
  __device__ static void add_up(const Params& p, const Schedule& schedule, const GemmWork& work,
                                Shared& s, unsigned& parity, const char* received, Sum* scratch,
                                const Sum (&sums)[blocks][C::columns / 8][4]) {
    const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(cluster_rank());
    const int first = rank * own_tiles;  // of this CTA's columns
    const int count = tiles - first < own_tiles ? tiles - first : own_tiles;
    if (thread == 0)
      s.received.arrive_expecting((C::cluster_k - 1) * consumers * 16 * blocks *
                                  (count > 0 ? count : 0));
    cluster_wait();  // all have read what they had received
    send(sums, shared_address(received), s.received.address());
    Sum mine[blocks][own_tiles][4] = {};
#pragma unroll
    for (int cta = 0; cta < C::cluster_k; ++cta)
#pragma unroll
      for (int i = 0; i < blocks * own_tiles * 4; ++i) {
        const int t = cta * own_tiles + i / 4 % own_tiles, block = i / 4 / own_tiles;
        if (t < tiles && cta == rank) mine[block][i / 4 % own_tiles][i % 4] = sums[block][t][i % 4];
      }
    s.received.wait(parity);
    parity ^= 1;
    Sum whole[blocks][own_tiles][4] = {};
#pragma unroll
    for (int cta = 0; cta < C::cluster_k; ++cta) {
      const int slot = cta < rank ? cta : cta - 1;
#pragma unroll
      for (int i = 0; i < blocks * own_tiles; ++i) {
        Neighbours<Sum, 4> four;
        if (cta != rank)
          four.load(reinterpret_cast<const Sum*>(received + slot * piece_bytes) +
                    (i * consumers + thread) * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          whole[i / own_tiles][i % own_tiles][j] +=
              cta == rank ? mine[i / own_tiles][i % own_tiles][j] : four.at[j];
      }
    }
    cluster_arrive();
    const GemmProblem& q = schedule.at(work.problem);
    const int column = work.n * C::columns, end = column + C::columns;
    Slab::run(p.gemm.scalars, schedule.operands(work.problem), whole, 64, scratch,
              row_of(work, thread / 32, 0), column + first * 8,
              C::group == GemmGroup::batched ? work.problem : 0, q.m, q.n < end ? q.n : end,
              Loader::places(p));
  }

  __device__ static void consume(const Params& p, Shared& s, unsigned stages, const char* received,
                                 char* scratch) {
    Schedule schedule = WarpgroupGemm::schedule(p);
    const Operands operands(stages);
    Ring ring;
    GemmWork work;
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = __shfl_sync(~0U, thread / 32, 0);  // which the compiler sees is the warp's
    Sum* const own = reinterpret_cast<Sum*>(scratch + warp * scratch_bytes);
    unsigned parity = 0;  // of what is received
    while (hear(p, schedule, s, ring, work)) {
      int block = 0;
      if constexpr (Block > 0)  // which arrives during the products
        block = Boxes::find_block(p.blocks, p.gemm.problem.m, p.gemm.problem.n,
                                  row_of(work, warp, 0), column_of(work, warp));
      Sum sums[blocks][C::columns / 8][4];
      multiply(s, operands, ring, work, sums);
      if constexpr (C::split != GemmSplit::none) {
        auto& flat = reinterpret_cast<Sum(&)[sums_a_thread]>(sums);
        if (!join_pieces<C::split, consumers>(p.gemm, schedule, work, flat, thread, &s.flag,
                                              [] { named_barrier(1, consumers); }))
          continue;
      }
      const GemmProblem& q = schedule.at(work.problem);
      const int batch = C::group == GemmGroup::batched ? work.problem : 0;
      const int row = row_of(work, warp, 0), column = column_of(work, warp);
      if constexpr (C::cluster_k > 1) {
        add_up(p, schedule, work, s, parity, received, own, sums);
      } else if constexpr (C::boxes) {
        static_assert(2 * Boxes::bytes == scratch_bytes);
        const Boxes out{
            p.gemm.scalars, schedule.operands(work.problem), shared_address(own), q.m, q.n, batch};
        out.store(p.d, sums, row, column, block, Loader::places(p));
      } else {
        Slab::run(p.gemm.scalars, schedule.operands(work.problem), sums, 64, own, row, column,
                  batch, q.m, q.n, Loader::places(p));
      }
    }
    if constexpr (C::boxes) Boxes::finish_stores();
  }

  __device__ static void run(const Params& p) {
    extern __shared__ char shared[];
    // The engine's swizzle counts from multiples of 1024 bytes.
    char* const stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
    char* const received = stages + C::stages * stage_bytes;
    char* const scratch = received + received_bytes;
    Shared& s = *reinterpret_cast<Shared*>(scratch + 4 * C::groups * scratch_bytes);
    if (threadIdx.x == 0) {
      if constexpr (C::group == GemmGroup::batched) {
        prefetch(p.a);
        prefetch(p.b);
      }
      for (int i = 0; i < C::stages; ++i) {
        s.full[i].init(1);
        s.empty[i].init(4 * C::groups * ctas);
      }
      if constexpr (C::cluster_k > 1) s.received.init(1);
      fence_barrier_init();
    }
    if constexpr (ctas > 1) {
      cluster_sync();
    } else {
      __syncthreads();
      if constexpr (C::cluster_k > 1) cluster_arrive();
    }
    if (threadIdx.x >= consumers) {
      if constexpr (C::groups > 1) give_registers<C::groups == 2 ? 24 : 32>();
      if (C::cluster_k > 1 || copies()) produce(p, s, shared_address(stages));
    } else {
      if constexpr (C::groups > 1) take_registers<C::groups == 2 ? 240 : 160>();
      consume(p, s, shared_address(stages), received, scratch);
    }
    // Nobody writes to a CTA that has gone.
    if constexpr (ctas > 1) cluster_sync();
    if constexpr (C::cluster_k > 1) cluster_wait();
  }
};

}  // namespace bs::cuda::device
