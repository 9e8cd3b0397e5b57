#pragma once
// Products of f32 on wgmma, which takes TF32. In shared memory it wants the depth along the lines
// of both operands; but its left one may come from registers, which are read in any order. So the
// wide operand, 64 rows of which an instruction takes, comes through registers: B of dsd, 256 or
// 512 columns of it, and the gathered columns of B of sdd. The narrow one, 64 or 128 rows of op(S)
// or of A, lies in shared memory, turned there first where it came otherwise. What is computed is
// the transpose of the result. Of two or four block rows of 32, which share the wide operand's
// columns, a stage multiplies those that have a block there.
//
// f32 rounded to TF32: the copy engine rounds the narrow operand to nearest, and the wide one is
// rounded as by TileMultiplyTf32. f32 as three products: both are split as by TileMultiply<float>,
// the narrow one into a second tile behind the first; sums of a stage start from zero, and are
// added to the others in plain arithmetic.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_sdd_items.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_box.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_result.cuh>
#include <bs/kernels/cuda/device/block_sparse/work_parts.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>

namespace bs::cuda::device {

/// What the warpgroups that multiply are told of an item with its first stage.
struct Tf32Item {
  int work;    ///< its number, or that of the piece of it; -1: there is nothing more
  int stages;  ///< 0: it has none but an empty one
  int row, column, batch, count;
  int strip;      ///< of sdd, over all heads
  int others[3];  ///< of block rows of dsd that are told apart, where those after the first begin
};

/// How items come to the warps that copy, where they are many.
template <bool gathered, int copying>
struct Tf32Feed {};
template <int copying>
struct Tf32Feed<true, copying> {
  SddFeed<copying> feed;
};

/// Which block rows of a narrow operand a stage has, where it is of several: a bit each.
template <int Bits>
struct RowsPresent {
  static constexpr int bits = Bits;
};

/// C: n (rows of the narrow operand), rows (block rows that these are: 1, or 2 or 4 told apart),
/// Mma (for those of one), wide (64s of the wide one a warpgroup, an even number), stages, split,
/// wide_along_k, narrow_along_k, Epilogue, staged (results that leave together: C, or it and one
/// more); gathered (of many boxes, for which warps that do not convert copy), apart (each warpgroup
/// has a narrow operand of its own), side (lines or columns of a box where the depth is across its
/// lines: 32, or 16).
template <class C>
struct WarpgroupTf32 {
  static constexpr int groups = 2;  // warpgroups that multiply
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static constexpr int n = C::n, wide = C::wide, stages = C::stages;
  static constexpr int columns = groups * wide * 64;  // of the wide operand
  static constexpr int narrow_lines = n * (C::apart ? groups : 1);
  using OperandBox = Tf32Box<C::narrow_along_k, C::split, C::side>;
  static constexpr int depth = 32, line = OperandBox::line;  // of a stage, in elements and in bytes
  static constexpr int steps = depth / 8;
  static constexpr unsigned box = OperandBox::bytes;
  static constexpr unsigned wide_bytes = columns * line, narrow_bytes = narrow_lines * line;
  static constexpr unsigned copied_bytes = wide_bytes + narrow_bytes;
  // Small terms lie behind the large ones; or, so that there is room for a stage more, all
  // in two places that steps take by turns.
  static constexpr bool small_apart = C::split && C::apart;
  static constexpr unsigned stage_bytes =
      copied_bytes + (C::split && !small_apart ? narrow_bytes : 0);
  static constexpr unsigned tile_bytes =
      stages * stage_bytes + (small_apart ? 2 * narrow_bytes : 0);
  static_assert(!small_apart || stages % 2 == 0);
  static constexpr bool converts = C::split || !C::narrow_along_k;
  static constexpr bool several = C::rows > 1;
  static constexpr int row_lines = n / C::rows;  // of the narrow tile
  static_assert(C::rows == 1 || C::rows == 2 || C::rows == 4);
  // Warps of each: of 128 lines two convert in as many turns as three.
  static constexpr int converters = narrow_lines < 128 || C::gathered ? 2 : 3;
  static constexpr int copying = !C::gathered ? 1 : converts ? 4 - converters : 4;
  static_assert(wide % 2 == 0 && n % 64 == 0);
  /// Whether fragments are read ahead: what waits for the tensor cores gains some percent by it,
  /// but epilogues want the registers.
  static constexpr bool ahead = C::split && same_type<typename C::Epilogue, NoEpilogue>;

  static constexpr int ring = 8;
  static_assert(stages < ring);

  struct Shared : Tf32Feed<C::gathered, copying> {
    Barrier landed[stages], ready[stages], empty[stages];
    // Told with an item's first stage. None is written again before its last reader is done: one
    // that is still at item j has given back the stages of j at most.
    Tf32Item items[ring];
    int present[stages];  // RowsPresent, of several
  };
  static constexpr unsigned shared_bytes = tile_bytes + sizeof(Shared) + 1024;

  using Sums = float[wide][n / 2];
  using Ring = RingPlace<stages>;

  /// Where the small terms of a stage's narrow tile are.
  __device__ static unsigned small_at(unsigned buffers, int stage) {
    if constexpr (small_apart) return buffers + stages * stage_bytes + stage % 2 * narrow_bytes;
    return buffers + stage * stage_bytes + copied_bytes;
  }

  // ---- The warps that make the narrow tile what wgmma reads.

  __device__ static void convert(Shared& s, unsigned buffers, int warp) {
    Ring at, before;         // the step before the last one
    int turn = 0, left = 0;  // items; stages of this one
    for (int step = 0;; ++step) {
      s.landed[at.stage].wait(at.parity);
      if (small_apart && step >= 2) {
        s.empty[before.stage].wait(before.parity);
        before.advance();
      }
      if (left == 0) {
        const Tf32Item& item = s.items[turn++ % ring];
        if (__shfl_sync(~0u, item.work, 0) < 0) return;
        left = __shfl_sync(~0u, item.stages, 0);
      }
      if (left > 0) {
        const unsigned narrow = buffers + at.stage * stage_bytes + wide_bytes;
        const unsigned small = small_at(buffers, at.stage);
        const int all = present(s, at);
        for (int i = warp; i < narrow_lines / 32; i += converters)
          if (!several || (all >> i & 1) != 0)
            OperandBox::convert(narrow + i * box, small + i * box);
        fence_async_shared();
        --left;
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) s.ready[at.stage].arrive();
      at.advance();
    }
  }

  // ---- The warpgroups that multiply.

  /// Those rows that a stage has, which has landed. Only the lane that gives it back reads it.
  __device__ static int present(const Shared& s, const Ring& at) {
    if constexpr (!several) return 1;
    return __shfl_sync(~0u, fresh_thread() % 32 == 0 ? s.present[at.stage] : 0, 0);
  }
  /// Calls `f` with these as RowsPresent: what is done of a stage with its sums stands there for
  /// each, whole, or the compiler would wait for every single product.
  template <class F>
  __device__ static __forceinline__ void with_rows(int present, const F& f) {
    constexpr int all = (1 << C::rows) - 1;
    if (all == 1 || present == all) {
      f(RowsPresent<all>{});
    } else {
      with_some_rows<0, 0>(present, f);
    }
  }
  /// Some, but not all, with `Bits` of those before `Row`.
  template <int Bits, int Row, class F>
  __device__ static __forceinline__ void with_some_rows(int present, const F& f) {
    constexpr int last = C::rows - 1, bit = 1 << Row;
    constexpr int only = Bits == 0 ? bit : Bits;  // that the last row leaves open
    if constexpr (Row == last && (Bits == 0 || Bits == bit - 1)) {
      f(RowsPresent<only>{});
    } else if constexpr (Row > last) {
      f(RowsPresent<Bits>{});
    } else if ((present & bit) != 0) {
      with_some_rows<Bits | bit, Row + 1>(present, f);
    } else {
      with_some_rows<Bits, Row + 1>(present, f);
    }
  }

  /// Of as many steps as are multiplied at a time: all of a stage where registers suffice.
  static constexpr int taken = C::split || wide > 2 ? steps / 2 : steps;
  using Fragments = unsigned[taken][wide][4];

  /// The wide operand of a stage, from step `begin` on.
  __device__ static void read(Fragments& a, unsigned stage, int group, int begin) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
    const unsigned first = stage + (group * wide * 2 + warp) * box;
    if constexpr (C::wide_along_k) {
      const int row = lane % 8, half = lane / 8 % 2, k = lane / 16;
#pragma unroll
      for (int step = 0; step < taken; ++step)
#pragma unroll
        for (int m = 0; m < wide; ++m)
          load_matrix_x4<false>(a[step][m], first + m / 2 * (4 * box) +
                                                (m % 2 * 16 + half * 8 + row) * line +
                                                (((2 * (begin + step) + k) ^ row) * 16));
    } else {
      const int k = lane % 4, place = LaneColumns<false, C::side>::place(lane);
      const unsigned own[2] = {OperandBox::across_at(first, k, place),
                               OperandBox::across_at(first, k + 4, place)};
#pragma unroll
      for (int step = 0; step < taken; ++step)
#pragma unroll
        for (int q = 0; q < wide / 2; ++q)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float4 x = load_shared(own[j] + q * (4 * box) + (begin + step) * (32 * C::side));
            a[step][2 * q][2 * j] = __float_as_uint(x.x);
            a[step][2 * q][2 * j + 1] = __float_as_uint(x.y);
            a[step][2 * q + 1][2 * j] = __float_as_uint(x.z);
            a[step][2 * q + 1][2 * j + 1] = __float_as_uint(x.w);
          }
    }
  }

  /// Adds the products of fragments with those rows of the narrow tile at `narrow`.
  template <class Rows>
  __device__ static void multiply(Rows, Sums& sums, const Fragments& a, unsigned narrow,
                                  bool& started) {
    constexpr unsigned long long form = matrix_descriptor<line>(8 * line, 0);
#pragma unroll
    for (int step = 0; step < taken; ++step) {
#pragma unroll
      for (int m = 0; m < wide; ++m) {
#pragma unroll
        for (int row = 0; row < C::rows; ++row) {
          if ((Rows::bits >> row & 1) == 0) continue;
          const unsigned at = narrow + row * (row_lines * line) + step * 32;
          C::Mma::multiply(reinterpret_cast<float(&)[row_lines / 2]>(sums[m][row * row_lines / 2]),
                           a[step][m], form | descriptor_address(at), started);
        }
      }
      started = true;
    }
  }

  /// The same, rounded to TF32.
  __device__ static void read_rounded(Fragments& a, unsigned stage, int group, int begin) {
    read(a, stage, group, begin);
    each(a, [](unsigned& x) { x = __float_as_uint(__uint_as_float(x) * (1 + .72F * 0x1p-11F)); });
  }

  /// Adds a stage's products; they are done when it returns. `a`: its fragments, if all are taken.
  template <class Rows>
  __device__ static __forceinline__ void multiply_stage(Rows rows, Sums& sums, Fragments& a,
                                                        unsigned stage, unsigned small, int group,
                                                        bool& started) {
    const unsigned narrow = own_lines(stage + wide_bytes, group);
    if constexpr (!C::split) {
#pragma unroll
      for (int begin = 0; begin < steps; begin += taken) {
        if constexpr (taken < steps) read_rounded(a, stage, group, begin);
        warpgroup_arrive();
        multiply(rows, sums, a, narrow + begin * 32, started);
        warpgroup_commit();
        warpgroup_wait<0>();
      }
    } else {
      Sums stage_sums;
      Fragments rest;
      bool begun = false;
#pragma unroll
      for (int begin = 0; begin < steps; begin += taken) {
        read(a, stage, group, begin);
        multiply_split(rows, stage_sums, a, rest, narrow + begin * 32, small + begin * 32, begun);
        warpgroup_wait<0>();
      }
      add(rows, sums, stage_sums);
    }
  }

  /// Waits for a stage, and reads its first half.
  __device__ static void begin_stage(Shared& s, unsigned buffers, const Ring& at, int group,
                                     Fragments& a) {
    s.landed[at.stage].wait(at.parity);
    s.ready[at.stage].wait(at.parity);
    read(a, buffers + at.stage * stage_bytes, group, 0);
  }

  /// Adds the products of some stages of split operands, fragments of which are read while those
  /// before them are multiplied.
  __device__ static void multiply_ahead(Sums& sums, Shared& s, unsigned buffers, int group,
                                        int count, Ring& at) {
    Fragments a[2];
    static_assert(steps == 2 * taken);
    begin_stage(s, buffers, at, group, a[0]);
#pragma unroll 1
    for (int stage = 0; stage < count; ++stage)
      with_rows(present(s, at), [&](auto rows) {
        const unsigned from = buffers + at.stage * stage_bytes;
        const unsigned narrow = own_lines(from + wide_bytes, group);
        const unsigned small = own_lines(small_at(buffers, at.stage), group);
        Sums stage_sums;
        Fragments rest;
        bool begun = false;
        multiply_split(rows, stage_sums, a[0], rest, narrow, small, begun);
        read(a[1], from, group, taken);
        warpgroup_wait<0>();
        multiply_split(rows, stage_sums, a[1], rest, narrow + taken * 32, small + taken * 32,
                       begun);
        const int done = at.stage;
        at.advance();
        if (stage + 1 < count) begin_stage(s, buffers, at, group, a[0]);
        warpgroup_wait<0>();
        release(s, done);
        add(rows, sums, stage_sums);
      });
  }

  /// The products of a stage are done.
  __device__ static void release(Shared& s, int stage) {
    __syncwarp();
    if (fresh_thread() % 32 == 0) s.empty[stage].arrive();
  }
  /// Where a warpgroup's lines of a narrow tile are.
  __device__ static unsigned own_lines(unsigned tile, int group) {
    return tile + (C::apart ? group * (n * line) : 0);
  }

  /// Begins the three products of some steps, small ones first. `small`: what they need besides.
  template <class Rows>
  __device__ static void multiply_split(Rows rows, Sums& stage_sums, Fragments& a, Fragments& small,
                                        unsigned narrow, unsigned narrow_small, bool& begun) {
#pragma unroll
    for (int step = 0; step < taken; ++step)
#pragma unroll
      for (int m = 0; m < wide; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = __uint_as_float(a[step][m][i]), large = large_term(x);
          a[step][m][i] = __float_as_uint(large);
          small[step][m][i] = __float_as_uint(small_term(x, large));
        }
    warpgroup_arrive();
    multiply(rows, stage_sums, small, narrow, begun);
    multiply(rows, stage_sums, a, narrow_small, begun);
    multiply(rows, stage_sums, a, narrow, begun);
    warpgroup_commit();
  }

  template <class F>
  __device__ static void each(Fragments& a, const F& f) {
#pragma unroll
    for (int step = 0; step < taken; ++step)
#pragma unroll
      for (int m = 0; m < wide; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) f(a[step][m][i]);
  }

  template <class Rows>
  __device__ static void add(Rows, Sums& sums, Sums& stage_sums) {
    constexpr int count = row_lines / 2;
#pragma unroll
    for (int m = 0; m < wide; ++m)
#pragma unroll
      for (int row = 0; row < C::rows; ++row) {
        if ((Rows::bits >> row & 1) == 0) continue;
        auto& own = reinterpret_cast<float(&)[count]>(stage_sums[m][row * count]);
        warpgroup_pin(own);
#pragma unroll
        for (int i = 0; i < count; ++i) sums[m][row * count + i] += own[i];
      }
  }
  __device__ static void clear(Sums& sums) {
#pragma unroll
    for (int m = 0; m < wide; ++m)
#pragma unroll
      for (int i = 0; i < n / 2; ++i) sums[m][i] = 0;
  }

  // ---- All of them.

  /// The swizzle counts from multiples of 1024 bytes. Found anew at each call, so that the address
  /// takes no registers meanwhile.
  __device__ static unsigned first_stage() {
    extern __shared__ unsigned char memory[];
    unsigned address = shared_address(memory);
    asm volatile("" : "+r"(address));
    return (address + 1023) / 1024 * 1024;
  }
  __device__ static Shared& shared(unsigned first_stage) {
    return *static_cast<Shared*>(__cvta_shared_to_generic(first_stage + tile_bytes));
  }

  /// Kernel: `produce(params, shared, buffers)` for one lane, which announces items, or where they
  /// are gathered for the warps that copy; `store(params, item, group, sums)` for a warpgroup.
  template <class Kernel, class Params>
  __device__ static void consume(const Params& p, int group) {
    Ring at;
    Sums sums;
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      const unsigned buffers = first_stage();
      Shared& s = shared(buffers);
      s.landed[at.stage].wait(at.parity);
      const Tf32Item& item = s.items[turn % ring];
      const int count = __shfl_sync(~0u, item.work < 0 ? -1 : item.stages, 0);
      if (count < 0) break;
      bool started = C::split || several;
      if constexpr (C::split || several) clear(sums);
      bool done = false;
      if constexpr (ahead) {
        done = count > 0;
        if (done) multiply_ahead(sums, s, buffers, group, count, at);
      }
      if (!done) {
        // A strip without blocks came with an empty stage.
#pragma unroll 1
        for (int stage = 0; stage < max(count, 1); ++stage) {
          s.landed[at.stage].wait(at.parity);
          if constexpr (converts) s.ready[at.stage].wait(at.parity);
          if (!ahead && count > 0) {
            const unsigned from = buffers + at.stage * stage_bytes;
            Fragments a;
            if constexpr (taken == steps) read_rounded(a, from, group, 0);
            with_rows(present(s, at), [&](auto rows) {
              multiply_stage(rows, sums, a, from, small_at(buffers, at.stage), group, started);
            });
          }
          release(s, at.stage);
          at.advance();
        }
      }
#pragma unroll
      for (int m = 0; m < wide; ++m) warpgroup_pin(sums[m]);
      auto& flat = reinterpret_cast<float(&)[wide * n / 2]>(sums);
      const int thread = static_cast<int>(fresh_thread()), own = thread / warpgroup_size;
      if (!finish_parts<groups>(p.split, piece_of_work(p.split, item.work), own, flat, started,
                                thread % warpgroup_size))
        continue;
      if (!started) clear(sums);
      Kernel::store(p, item, own, sums);
    }
  }

  template <class Kernel, class Params>
  __device__ static void run(const Params& p) {
    const unsigned buffers = first_stage();
    Shared& s = shared(buffers);
    prefetch(p.lists);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        s.landed[i].init(1);
        s.ready[i].init(converters);
        s.empty[i].init(4 * groups);
      }
      if constexpr (C::gathered) s.feed.init();
      fence_barrier_init();
    }
    if constexpr (C::gathered)
      if (group == groups) s.feed.begin(p);
    __syncthreads();
    if (group == groups) {
      give_registers<72>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp < copying) {
        if (C::gathered || threadIdx.x % 32 == 0) Kernel::produce(p, s, buffers);
      } else if (converts && warp < copying + converters) {
        convert(s, buffers, warp - copying);
      }
    } else {
      take_registers<216>();
      consume<Kernel>(p, group);
    }
  }

  /// For the lane that copies: the next stage, which waits for `bytes`. `first`: its item's, which
  /// is `item`, number `turn`. `present`: which rows, of several.
  __device__ static unsigned next_stage(Shared& s, Ring& at, unsigned buffers, bool first, int turn,
                                        const Tf32Item& item, unsigned bytes, int present = 1) {
    s.empty[at.stage].wait(at.parity ^ 1);
    if (first) s.items[turn % ring] = item;
    if constexpr (several) s.present[at.stage] = present;
    if (bytes > 0) {
      s.landed[at.stage].arrive_expecting(bytes);
    } else {
      s.landed[at.stage].arrive();
    }
    return buffers + at.stage * stage_bytes;
  }
};

}  // namespace bs::cuda::device
