#pragma once
// The gradient of queries on wgmma: dq = dS K, of the gradients of the scores that
// warpgroup_backward.cuh left in memory. Warpgroups keep 64 queries each and meet the keys that the
// union of their block rows lists, 64 a stage. Keys and large blocks of gradients come by the copy
// engine, small blocks by copy_async_16, with zeros where a row of a tile in use lacks one.
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_items.cuh>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_seats.cuh>
#include <bs/kernels/cuda/device/ptx/launch_order.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// The numbers of each query that the other passes need, as attention_row_numbers gives them;
/// `lanes` threads a query, 8 elements each. They go to `whole` as well, in which a head has
/// `numbers` of them, one a row of the layout: where there is no query, those of one that sees no
/// key. Sets `odd` where one is not finite, but for queries that see no key.
template <class T, int lanes>
__device__ inline void attention_numbers(const AttentionBackwardArguments<T, float>& a,
                                         AttentionPlaces places, unsigned total, unsigned numbers,
                                         float* whole_log_sums, float* whole_means, int* odd) {
  let_next_launch_begin();
  const unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) / lanes;
  const AttentionProblem& p = a.problem;
  const int lane = static_cast<int>(threadIdx.x) % lanes, d = lane * 8;
  const auto heads = static_cast<unsigned>(p.heads);
  const unsigned of = at / numbers;
  const int numbered = static_cast<int>(at - of * numbers);
  const AttentionPlace place = places.of(numbered);
  const bool is_query = at < total && numbered < place.end;
  const int row = numbered - place.shift;
  const int b = static_cast<int>(of / heads), h = static_cast<int>(of % heads);
  float sum = 0;
  if (is_query && d < p.value_dim) {
    const Pack<T, 8> x = *reinterpret_cast<const Pack<T, 8>*>(a.out.at(b, h) + row * a.out.row + d);
    const Pack<T, 8> y =
        *reinterpret_cast<const Pack<T, 8>*>(a.dout.at(b, h) + row * a.dout.row + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += widen(x.at[i]) * widen(y.at[i]);
  }
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane != 0 || at >= total) return;
  const float infinity = -minus_infinity<float>();
  const long long dense = static_cast<long long>(of) * p.queries + row;
  const float log_sum = is_query ? a.lse[dense] : -infinity;
  const float scaled = log_sum == -infinity ? infinity : log_sum * 1.4426950408889634F;
  whole_log_sums[at] = scaled;
  whole_means[at] = sum;
  if (is_query && whole_means != a.means) {
    a.log_sums[dense] = scaled;
    a.means[dense] = sum;
  }
  if (!(fabsf(sum) < infinity) || !(log_sum < infinity)) *odd = 1;
}

template <class Config>
struct WarpgroupQueryGradient {
  using T = typename Config::Element;
  static constexpr int dim = Config::dim, block = Config::block, stages = Config::stages;
  static constexpr int pieces = dim / 64;
  static constexpr bool small = block < 64, banded = Config::banded;
  static constexpr int groups = 2;  // warpgroups that multiply
  static constexpr int strip = 64 * groups, rows = strip / block;
  static constexpr int side = small ? block : 64;  // keys of one entry of a stage
  static constexpr int slices = 64 / side, halves = block / side;
  static constexpr int boxes = slices;  // blocks that make the rows of a warpgroup
  static constexpr int seats = slices * groups * boxes, line = 2 * side;
  static constexpr unsigned slice_bytes = 64 * line;
  static constexpr unsigned piece_bytes = 64 * 64 * 2;  // of keys, and a warpgroup's gradients
  static constexpr unsigned stage_bytes = (groups + pieces) * piece_bytes;
  static constexpr unsigned staging_bytes = 64 * dim * 2;
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static constexpr int copying_warps = small ? 3 : 1;  // the first one keys, the others gradients

  using Seats = DsdSeats<boxes>;
  /// Of a stage's tiles, those of warpgroup 0.
  static constexpr unsigned group_bits = slices == 4 ? 0x01010101u : slices == 2 ? 0x00000011u : 1u;

  struct Shared {
    Barrier full[stages], empty[stages], known, free;
    unsigned tiles[stages];     ///< in use, as DsdSeats has them; `last` behind the last stage
    unsigned dirty[3][stages];  ///< for each warp that copies, seats that hold numbers
    int item;
  };
  static constexpr unsigned shared_bytes =
      stages * stage_bytes + groups * staging_bytes + sizeof(Shared) + 1024;

  static constexpr unsigned last = 1u << 31;  // no seat is in use there alone

  struct Place {
    int batch, head, kv_head, layout_strip, strip;
    int shift;  ///< of its rows and keys in memory

    __device__ Place(const WarpgroupQueryGradientParams& p, int item) {
      const WarpgroupAttention& a = p.problem;
      const AttentionItem of(item, a, p.list.strips);
      batch = (a.first_head + of.head) / a.heads;
      head = (a.first_head + of.head) % a.heads;
      kv_head = head / a.group;
      const int layout_head = a.layout_head(batch, head);
      layout_strip = p.list.order[layout_head * p.list.strips + of.rank];
      strip = layout_strip % p.list.strips;
      shift = a.places.of(query()).shift;
    }
    __device__ int query() const { return strip * WarpgroupQueryGradient::strip; }
  };

  /// What the copies of one stage need, looked up ahead of them; lane q has seat q and slice q.
  struct Ahead {
    int col = -1, value = -1;

    __device__ Ahead(const WarpgroupQueryGradientParams& p, const Place& place, int from, int end) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      if (lane < slices && from + lane < end) col = __ldg(p.list.cols + from + lane);
      const int seat = lane % seats, entry = seat / (groups * boxes);
      if (from + entry >= end) return;
      const int row = seat % (groups * boxes) * rows / (groups * boxes);
      const int number = __ldg(p.list.blocks + static_cast<long long>(from + entry) * rows + row);
      const int column = __ldg(p.list.cols + from + entry);
      // Of what is hidden altogether, no gradients were left.
      const bool hidden =
          p.problem.reach.hides((place.strip * rows + row) * block, column * block, block);
      if (number >= 0 && !hidden) value = p.problem.values.at(place.batch, place.head, number);
    }
  };

  /// Where in a stage the block of seat q goes.
  __device__ static unsigned seat_address(int q) {
    return (q / boxes % groups * slices + q / (groups * boxes)) * slice_bytes +
           q % boxes * side * line;
  }

  /// What the copy engine brings of a stage, whose seats are known.
  __device__ static void copy_keys(const WarpgroupQueryGradientParams& p, const TensorMapWords& k,
                                   Barrier& full, unsigned to, const Place& place, int key) {
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece)
      load_box(to + piece * piece_bytes, k, full, piece * 64, key - place.shift, place.kv_head,
               place.batch, 0);
  }

  /// Brings the keys of a stage of small blocks.
  __device__ static void copy_small(const WarpgroupQueryGradientParams& p, Shared& s,
                                    unsigned buffer, int stage, const Place& place,
                                    const Ahead& now) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Seats seat(lane < seats ? now.value : -1, s.dirty[0][stage]);
    const int depth = __popc(__ballot_sync(~0u, now.col >= 0));
    Barrier& full = s.full[stage];
    if (lane == 0) {
      s.tiles[stage] = seat.tiles;
      full.arrive_expecting(depth * side * dim * 2);
    }
    __syncwarp();
    const unsigned to = buffer + groups * piece_bytes + lane * side * 128;
    if (in_a_row<slices>(now.col)) {  // fewer copies
      if (lane == 0) copy_keys(p, p.k_row, full, to, place, now.col * block);
    } else if (now.col >= 0) {
      copy_keys(p, p.k, full, to, place, now.col * block);
    }
  }

  /// Brings a stage of large blocks; one lane does.
  __device__ static void copy_large(const WarpgroupQueryGradientParams& p, Shared& s,
                                    unsigned buffer, int stage, const Place& place, int col,
                                    const int (&value)[groups], int half) {
    const int key = col * block + half * 64;
    unsigned present = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const bool hidden = p.problem.reach.hides(place.query() + g * 64, key, 64);
      present |= static_cast<unsigned>(value[g] >= 0 && !hidden) << g;
    }
    s.tiles[stage] = present;
    Barrier& full = s.full[stage];
    full.arrive_expecting((pieces + __popc(present)) * piece_bytes);
    copy_keys(p, p.k, full, buffer + groups * piece_bytes, place, key);
#pragma unroll
    for (int g = 0; g < groups; ++g)
      if ((present >> g & 1) != 0)
        load_box(buffer + g * piece_bytes, p.ds, full, half * 64,
                 value[g] * block + g % halves * 64);
  }

  /// Copies small blocks of gradients; warps 1 and 2 have every other seat.
  __device__ static void copy_blocks(const WarpgroupQueryGradientParams& p, Shared& s,
                                     unsigned buffer, int stage, const Ahead& now, int warp) {
    const int value = static_cast<int>(threadIdx.x) % 32 < seats ? now.value : -1;
    const Seats seat(value, s.dirty[warp][stage]);
    copy_seats<block, seats>(static_cast<const T*>(p.blocks), value, seat, warp - 1, buffer,
                             [](int q) { return seat_address(q); });
    s.full[stage].arrive_after_copies();
  }

  /// An item for all: the first warp that copies takes it.
  __device__ static int next_item(const WarpgroupAttention& a, Shared& s, unsigned turn, int items,
                                  int warp) {
    const bool elected = threadIdx.x % 32 == 0;
    if (warp == 0) {
      const int item = take_attention_item(a);
      s.free.wait(turn & 1 ^ 1);
      if (elected) {
        s.item = item < items ? item : -1;
        s.known.arrive();
      }
      return item < items ? item : -1;
    }
    s.known.wait(turn & 1);
    const int item = read_for_all(s.item);
    if (elected) s.free.arrive();
    return item;
  }

  __device__ static void produce(const WarpgroupQueryGradientParams& p, Shared& s, unsigned buffers,
                                 int warp) {
    const WarpgroupAttention& a = p.problem;
    const bool elected = threadIdx.x % 32 == 0;
    const int items = a.head_count * p.list.strips;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const int item = next_item(a, s, turn, items, warp);
      if (item < 0) break;
      const Place place(p, item);
      int from = p.list.offsets[place.layout_strip];
      int end = p.list.offsets[place.layout_strip + 1];
      if (banded) {
        from = skip_hidden<block>(p.list, from, end, place.query() + a.reach.first);
        end = cut_hidden<block>(p.list, from, end, place.query() + strip + a.reach.last);
      } else if (a.reach.causal()) {
        end = cut_hidden<block>(p.list, from, end, place.query() + strip);
      }
      Ahead next(p, place, from, end);
      wait_for_previous_launch();  // for the gradients of scores
#pragma unroll 1
      for (; from < end; from += slices) {
        const Ahead now = next;
        next = Ahead(p, place, from + slices, end);
        int value[groups];
        if constexpr (!small)
#pragma unroll
          for (int g = 0; g < groups; ++g) value[g] = __shfl_sync(~0u, now.value, g);
#pragma unroll
        for (int half = 0; half < halves; ++half) {
          s.empty[at.stage].wait(at.parity ^ 1);
          const unsigned buffer = buffers + at.stage * stage_bytes;
          if constexpr (!small) {
            if (elected) copy_large(p, s, buffer, at.stage, place, now.col, value, half);
          } else if (warp == 0) {
            copy_small(p, s, buffer, at.stage, place, now);
          } else {
            copy_blocks(p, s, buffer, at.stage, now, warp);
          }
          __syncwarp();
          at.advance();
        }
      }
      s.empty[at.stage].wait(at.parity ^ 1);
      if (warp == 0 && elected) s.tiles[at.stage] = last;
      if (warp != 0 || elected) s.full[at.stage].arrive();
      at.advance();
    }
    if (warp == 0 && elected) leave_attention(a, static_cast<int>(gridDim.x));
  }

  /// Adds the product of one slice.
  __device__ static void multiply(float (&sums)[dim / 2], unsigned stage, int group, int slice) {
    const unsigned gradients = stage + (group * slices + slice) * slice_bytes;
    const unsigned keys = stage + groups * piece_bytes + slice * side * 128;
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < side / 16; ++k)
      Config::Mma::multiply(
          sums, matrix_descriptor<line>(8 * line, 0) | descriptor_address(gradients + k * 32),
          matrix_descriptor<128>(1024, piece_bytes) | descriptor_address(keys + k * 2048), 1);
    warpgroup_commit();
  }

  __device__ static void consume(const WarpgroupQueryGradientParams& p, Shared& s, unsigned buffers,
                                 unsigned staging, int group) {
    const int thread = static_cast<int>(threadIdx.x) % warpgroup_size;
    const bool elected = threadIdx.x % 32 == 0;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned parity = 0;; parity ^= 1) {
      s.known.wait(parity);
      const int item = read_for_all(s.item);
      if (item < 0) break;
      if (elected) s.free.arrive();
      const Place place(p, item);
      float sums[dim / 2];
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) sums[i] = 0;
      int leaving = -1;
      unsigned mine = 0;
      const auto seek = [&] {
        while (true) {
          s.full[at.stage].wait(at.parity);
          const unsigned tiles = read_for_all(s.tiles[at.stage]);
          if (tiles == last) return false;
          mine = tiles >> (group * boxes) & group_bits;
          if (mine != 0) return true;
          if (leaving >= 0) {  // or a row of stages of the other's would never come to an end
            warpgroup_wait<0>();
            if (elected) s.empty[leaving].arrive();
            leaving = -1;
          }
          if (elected) s.empty[at.stage].arrive();
          at.advance();
        }
      };
      const auto multiply_next = [&] {
        const int slice = (__ffs(static_cast<int>(mine)) - 1) / (groups * boxes);
        multiply(sums, buffers + at.stage * stage_bytes, group, slice);
        mine &= mine - 1;
      };
      while (seek()) {
        if constexpr (small) fence_async_shared();  // gradients came by ordinary copies
        multiply_next();
        warpgroup_wait<1>();
        if (leaving >= 0 && elected) s.empty[leaving].arrive();
        while (mine != 0) multiply_next();
        leaving = at.stage;
        at.advance();
      }
      warpgroup_wait<0>();
      warpgroup_pin(sums);
      if (not_finite(sums) != 0) *p.problem.odd = 1;
      if (elected) {
        if (leaving >= 0) s.empty[leaving].arrive();
        s.empty[at.stage].arrive();
      }
      at.advance();
      if (thread == 0) wait_stores_read<0>();
      named_barrier(1 + group, warpgroup_size);
      const float scale = p.problem.scale;
      stage_rows<128, dim, 1>(staging, 0, [&](int j, unsigned(&r)[1][4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto pair =
              narrow_pair(sums[8 * j + 2 * i] * scale, sums[8 * j + 2 * i + 1] * scale, T{});
          r[0][i] = *reinterpret_cast<const unsigned*>(&pair);
        }
      });
      fence_async_shared();
      named_barrier(1 + group, warpgroup_size);
      const int first = place.query() + group * 64;
      if (!p.problem.places.whole(first)) {
        store_rows_of_end<dim>(p.dq_rows, p.problem, place.head, staging, first);
      } else if (thread == 0) {
#pragma unroll
        for (int piece = 0; piece < pieces; ++piece)
          store_box(p.dq, staging + piece * piece_bytes, piece * 64, first - place.shift,
                    place.head, place.batch, 0);
        commit_stores();
      }
    }
    wait_stores_read<0>();  // shared memory is theirs until then
  }

  __device__ static void run(const WarpgroupQueryGradientParams& p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    let_next_launch_begin();  // the portable kernels, which mostly end at once
    const unsigned buffers = (shared_address(memory) + 1023) / 1024 * 1024;
    const unsigned staging = buffers + stages * stage_bytes;
    Shared& s = *reinterpret_cast<Shared*>(memory + (staging - shared_address(memory)) +
                                           groups * staging_bytes);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        for (int warp = 0; warp < 3; ++warp) s.dirty[warp][i] = ~0u;
        s.full[i].init(small ? 1 + 64 : 1);
        s.empty[i].init(4 * groups);
      }
      s.known.init(1);
      s.free.init(4 * groups + copying_warps - 1);
      fence_barrier_init();
    }
    __syncthreads();
    if (group == groups) {
      if constexpr (dim > 192) give_registers<72>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp < copying_warps) produce(p, s, buffers, warp);
    } else {
      if constexpr (dim > 192) take_registers<216>();
      consume(p, s, buffers, staging + group * staging_bytes, group);
    }
  }
};

}  // namespace bs::cuda::device
