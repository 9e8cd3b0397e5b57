#pragma once
// How queries come to the warpgroups of the forward pass on wgmma, and how their results leave. A
// warpgroup puts the results of its 64 queries where these were, and goes on. A warp of its own
// lets the copy engine bring the ones and take the others.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/bulk_copy.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// Queries and results are pieces of 64 columns, of 64 rows each. Each warpgroup has `places` for
/// them: with two, the next queries come while results leave.
template <class T, int dim, int value_dim, int groups, int places>
struct AttentionForwardQueries {
  using Params = WarpgroupAttentionParams;
  static constexpr unsigned piece_bytes = 64 * 128;
  static constexpr unsigned query_bytes = dim / 64 * piece_bytes;
  static constexpr unsigned place_bytes = (dim > value_dim ? dim : value_dim) / 64 * piece_bytes;
  static constexpr unsigned bytes = groups * places * place_bytes;

  /// The first row of queries, and their head among those of all batches: -1 behind the last item.
  struct Rows {
    int row, head;
  };
  struct Shared {
    Barrier told[2], heard[2];
    Rows items[2];  // that the copying warp has told of
    Barrier come[groups][places];
    Barrier done[groups][places];  // by the four warps that leave results
    Rows rows[groups][places];

    __device__ void init() {
      for (int i = 0; i < 2; ++i) {
        told[i].init(1);
        heard[i].init(groups);
      }
      for (int i = 0; i < groups * places; ++i) {
        come[i / places][i % places].init(1);
        done[i / places][i % places].init(4);
      }
    }
  };
  const Params& p;
  Shared& s;
  unsigned memory;

  /// Where the queries of a warpgroup's item are, counted from its first one; and the parity of
  /// what comes there.
  __device__ static unsigned place(unsigned item) { return item % places; }
  __device__ static unsigned parity(unsigned item) { return item / places % 2; }
  __device__ unsigned address(int group, unsigned item) const {
    return memory + (group * places + place(item)) * place_bytes;
  }

  // ---- The copying warp.

  /// Tells all warpgroups' warps of the next item.
  __device__ static void tell(Shared& s, RingPlace<2>& at, const Rows& item) {
    s.heard[at.stage].wait(at.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      s.items[at.stage] = item;
      s.told[at.stage].arrive();
    }
    at.advance();
  }

  // ---- The warp of a warpgroup that brings and takes.

  __device__ void serve(int group) const {
    RingPlace<2> told;
    bool more = bring(group, told, 0);
    for (unsigned item = 0; more; ++item) {
      if constexpr (places > 1) more = bring(group, told, item + 1);
      take(group, item);
      if constexpr (places == 1) more = bring(group, told, item + 1);
    }
  }

  // ---- A warpgroup that multiplies.

  /// The queries that come next.
  __device__ Rows open(int group, unsigned item) const {
    s.come[group][place(item)].wait(parity(item));
    const Rows& rows = s.rows[group][place(item)];
    return {__shfl_sync(~0u, rows.row, 0), __shfl_sync(~0u, rows.head, 0)};
  }
  /// Leaves a warp's 16 rows of results, as wgmma sums them, each times its factor, in the copy
  /// engine's pattern of 128 bytes.
  __device__ __forceinline__ static void put(unsigned to, const float (&sums)[value_dim / 2],
                                             const float (&factor)[2]) {
    const unsigned thread = fresh_thread(), lane = thread % 32;
    const unsigned row = thread % warpgroup_size / 32 * 16 + lane % 16;
    const unsigned line = to + row * 128 + (lane / 16 ^ row % 8) * 16;
#pragma unroll
    for (int j = 0; j < value_dim / 16; ++j) {
      unsigned r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const two = sums + 8 * j + 2 * i;
        const auto pair = narrow_pair(two[0] * factor[i % 2], two[1] * factor[i % 2], T{});
        r[i] = *reinterpret_cast<const unsigned*>(&pair);
      }
      store_matrix_x4<false>((line ^ j % 4 * 32) + j / 4 * piece_bytes, r);
    }
    fence_async_shared();
  }

 private:
  /// The queries of the next item, if there is one.
  __device__ bool bring(int group, RingPlace<2>& told, unsigned item) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    s.told[told.stage].wait(told.parity);
    const int row = __shfl_sync(~0u, s.items[told.stage].row, 0) + group * 64;
    const int head = __shfl_sync(~0u, s.items[told.stage].head, 0);
    Barrier& come = s.come[group][place(item)];
    if (lane == 0) {
      s.heard[told.stage].arrive();
      s.rows[group][place(item)] = {row, head};
      come.arrive_expecting(head < 0 ? 0 : query_bytes);
    }
    __syncwarp();
    if (head >= 0 && lane < dim / 64)
      load_box(address(group, item) + lane * piece_bytes, p.q, come, lane * 64,
               row - p.places.of(row).shift, head % p.heads, head / p.heads, 0);
    told.advance();
    return head >= 0;
  }
  /// Results to memory, once they are there.
  __device__ void take(int group, unsigned item) const {
    s.done[group][place(item)].wait(parity(item));
    const Rows rows = s.rows[group][place(item)];
    const AttentionPlace place = p.places.of(rows.row);
    const unsigned from = address(group, item);
    if (rows.row + 64 > place.end) {
      take_until(place, rows, from);
    } else if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int piece = 0; piece < value_dim / 64; ++piece)
        store_box(p.out, from + piece * piece_bytes, piece * 64, rows.row - place.shift,
                  rows.head % p.heads, rows.head / p.heads, 0);
      commit_stores();
      wait_stores_read();
    }
    __syncwarp();
  }
  /// Rows before the end of their sequence: the copy engine would write over the next one.
  __device__ void take_until(const AttentionPlace& place, const Rows& rows, unsigned from) const {
    constexpr int chunks = value_dim / 8;
    const AttentionRows<void>& to = p.out_rows;
    T* const out =
        static_cast<T*>(to.data) + rows.head / p.heads * to.batch + rows.head % p.heads * to.head;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < 64 * chunks; i += 32) {
      const int row = i / chunks, chunk = i % chunks;
      if (rows.row + row >= place.end || chunk * 8 >= p.value_dim) continue;
      *reinterpret_cast<float4*>(out + (rows.row + row - place.shift) * to.row + chunk * 8) =
          load_shared(from + chunk / 8 * piece_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16);
    }
  }
};

}  // namespace bs::cuda::device
