#pragma once
// The gradient of queries on wgmma: dq = dS K, of the gradients of the scores that
// warpgroup_backward.cuh left in memory. Two warpgroups keep 64 queries each and meet the keys that
// the union of their block rows lists, 64 a stage; one warp copies.
#include <bs/kernels/cuda/device/attention/warpgroup_backward.cuh>

namespace bs::cuda::device {

/// The numbers of each query that the other passes need, as attention_row_numbers gives them; half
/// a warp a query.
template <class T>
__device__ inline void attention_numbers(const AttentionBackwardArguments<T, float>& a,
                                         long long total) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
  const AttentionProblem& p = a.problem;
  const int lane = static_cast<int>(threadIdx.x) % 16, d = lane * 8;
  const int row = static_cast<int>(at % p.queries), of = static_cast<int>(at / p.queries);
  const int h = of % p.heads, b = of / p.heads;
  float sum = 0;
  if (at < total && d < p.head_dim) {
    const Pack<T, 8> x = *reinterpret_cast<const Pack<T, 8>*>(a.out.at(b, h) + row * a.out.row + d);
    const Pack<T, 8> y =
        *reinterpret_cast<const Pack<T, 8>*>(a.dout.at(b, h) + row * a.dout.row + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += widen(x.at[i]) * widen(y.at[i]);
  }
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane != 0 || at >= total) return;
  const float log_sum = a.lse[at];
  a.log_sums[at] =
      log_sum == minus_infinity<float>() ? -log_sum : log_sum * 1.4426950408889634F;
  a.means[at] = sum;
}

template <class Config>
struct WarpgroupQueryGradient {
  using T = typename Config::Element;
  static constexpr int dim = Config::dim, block = Config::block, stages = Config::stages;
  static constexpr int pieces = dim / 64;
  static constexpr int groups = 2, strip = 64 * groups;
  static constexpr int rows = strip / block;  // block rows of a strip
  static constexpr int halves = block / 64;
  static constexpr unsigned piece_bytes = 64 * 64 * 2;  // of keys, and of gradients of scores
  static constexpr unsigned stage_bytes = (groups + pieces) * piece_bytes;
  static constexpr unsigned staging_bytes = 64 * dim * 2;
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static_assert(block == 64 || block == 128);

  struct Shared {
    Barrier full[stages], empty[stages], known, free;
    int present[stages];  ///< a bit for each warpgroup that has gradients in it; -1 behind the last
    int item;
  };
  static constexpr unsigned shared_bytes =
      stages * stage_bytes + groups * staging_bytes + sizeof(Shared) + 1024;

  struct Place {
    int batch, head, layout_strip, strip;

    __device__ Place(const WarpgroupQueryGradientParams& p, int item) {
      const WarpgroupAttention& a = p.problem;
      const int of = a.first_head + item / p.list.strips;
      batch = of / a.heads;
      head = of % a.heads;
      const int layout_head = a.layout_heads == 1 ? 0 : head;
      layout_strip = p.list.order[layout_head * p.list.strips + item % p.list.strips];
      strip = layout_strip % p.list.strips;
    }
    __device__ int query() const { return strip * WarpgroupQueryGradient::strip; }
  };

  /// The entries of a list that any of the queries before `end_query` see.
  __device__ static int cut_hidden(const StripList& list, int begin, int end, int end_query) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int hidden = 32;
    while (hidden == 32 && begin < end) {
      const bool behind =
          end - lane - 1 >= begin && __ldg(list.cols + end - lane - 1) * block >= end_query;
      hidden = __popc(__ballot_sync(~0u, behind));
      end -= hidden;
    }
    return end;
  }

  __device__ static void produce(const WarpgroupQueryGradientParams& p, Shared& s,
                                 unsigned buffers) {
    const WarpgroupAttention& a = p.problem;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int items = a.head_count * p.list.strips;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const int item = take_attention_item(a);
      s.free.wait(turn & 1 ^ 1);
      if (lane == 0) {
        s.item = item < items ? item : -1;
        s.known.arrive();
      }
      if (item >= items) break;
      const Place place(p, item);
      const int kv = place.head / a.group;
      const int begin = p.list.offsets[place.layout_strip];
      int end = p.list.offsets[place.layout_strip + 1];
      if (a.causal) end = cut_hidden(p.list, begin, end, place.query() + strip);
      int next_col = -1, next_number[rows] = {};
      const auto look_up = [&](int entry) {
        if (entry >= end) return;
        next_col = __ldg(p.list.cols + entry);
#pragma unroll
        for (int i = 0; i < rows; ++i)
          next_number[i] = __ldg(p.list.blocks + static_cast<long long>(entry) * rows + i);
      };
      look_up(begin);
#pragma unroll 1
      for (int entry = begin; entry < end; ++entry) {
        const int col = next_col;
        int value[groups];
#pragma unroll
        for (int g = 0; g < groups; ++g) {
          const int number = next_number[g * rows / groups];
          value[g] = number < 0 ? -1 : a.values.at(place.batch, place.head, number);
        }
        look_up(entry + 1);
#pragma unroll
        for (int half = 0; half < halves; ++half) {
          const int key = col * block + half * 64;
          int present = 0;
#pragma unroll
          for (int g = 0; g < groups; ++g)
            present |= (value[g] >= 0 && !(a.causal && place.query() + g * 64 + 63 < key)) << g;
          s.empty[at.stage].wait(at.parity ^ 1);
          if (lane == 0) {
            s.present[at.stage] = present;
            Barrier& full = s.full[at.stage];
            full.arrive_expecting((pieces + __popc(present)) * piece_bytes);
            const unsigned to = buffers + at.stage * stage_bytes;
#pragma unroll
            for (int piece = 0; piece < pieces; ++piece)
              load_box(to + (groups + piece) * piece_bytes, p.k, full, piece * 64, key, kv,
                       place.batch, 0);
#pragma unroll
            for (int g = 0; g < groups; ++g)
              if (present >> g & 1)
                load_box(to + g * piece_bytes, p.ds, full, half * 64,
                         value[g] * block + (halves == 2 ? g * 64 : 0));
          }
          __syncwarp();
          at.advance();
        }
      }
      s.empty[at.stage].wait(at.parity ^ 1);
      if (lane == 0) {
        s.present[at.stage] = -1;
        s.full[at.stage].arrive();
      }
      at.advance();
    }
    if (lane == 0) leave_attention(a, static_cast<int>(gridDim.x));
  }

  __device__ static void multiply(float (&sums)[dim / 2], unsigned stage, int group) {
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Config::Mma::multiply(sums,
                            matrix_descriptor<128>(1024, 0) |
                                descriptor_address(stage + group * piece_bytes + k * 32),
                            matrix_descriptor<128>(1024, piece_bytes) |
                                descriptor_address(stage + groups * piece_bytes + k * 2048),
                            1);
    warpgroup_commit();
  }

  __device__ static void consume(const WarpgroupQueryGradientParams& p, Shared& s,
                                 unsigned buffers, unsigned staging, int group) {
    const int thread = static_cast<int>(threadIdx.x) % warpgroup_size;
    const bool elected = threadIdx.x % 32 == 0;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned parity = 0;; parity ^= 1) {
      s.known.wait(parity);
      const int item = __shfl_sync(~0u, s.item, 0);
      if (item < 0) break;
      if (elected) s.free.arrive();
      const Place place(p, item);
      float sums[dim / 2];
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) sums[i] = 0;
      int leaving = -1;
      const auto seek = [&] {
        while (true) {
          s.full[at.stage].wait(at.parity);
          const int present = __shfl_sync(~0u, s.present[at.stage], 0);
          if (present < 0) return false;
          if (present >> group & 1) return true;
          if (elected) s.empty[at.stage].arrive();
          at.advance();
        }
      };
      while (seek()) {
        multiply(sums, buffers + at.stage * stage_bytes, group);
        warpgroup_wait<1>();
        if (leaving >= 0 && elected) s.empty[leaving].arrive();
        leaving = at.stage;
        at.advance();
      }
      warpgroup_wait<0>();
      warpgroup_pin(sums);
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
      if (thread == 0) {
#pragma unroll
        for (int piece = 0; piece < pieces; ++piece)
          store_box(p.dq, staging + piece * piece_bytes, piece * 64, place.query() + group * 64,
                    place.head, place.batch, 0);
        commit_stores();
      }
    }
    wait_stores_read<0>();  // shared memory is theirs until then
  }

  __device__ static void run(const WarpgroupQueryGradientParams& p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned buffers = (shared_address(memory) + 1023) / 1024 * 1024;
    const unsigned staging = buffers + stages * stage_bytes;
    Shared& s = *reinterpret_cast<Shared*>(memory + (staging - shared_address(memory)) +
                                           groups * staging_bytes);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        s.full[i].init(1);
        s.empty[i].init(4 * groups);
      }
      s.known.init(1);
      s.free.init(4 * groups);
      fence_barrier_init();
    }
    __syncthreads();
    if (group == groups) {
      if (threadIdx.x % warpgroup_size < 32) produce(p, s, buffers);
    } else {
      consume(p, s, buffers, staging + group * staging_bytes, group);
    }
  }
};

}  // namespace bs::cuda::device
