#pragma once
// What warpgroups that compute gradients of keys and values of attention do alike: their products,
// and the way of results to memory.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_ring.cuh>

namespace bs::cuda::device {

/// One of the warpgroups of a team. Scores stand transposed, keys by queries.
template <class Ring>
struct AttentionKeyWarpgroup {
  using Scores = typename Ring::Scores;
  using Step = typename Ring::Step;
  using Keys = typename Ring::Keys;
  static constexpr int block = Ring::block, side = Ring::side, cols = Ring::cols;
  static constexpr unsigned piece_bytes = Ring::piece_bytes;

  const WarpgroupKeyGradientParams& p;
  typename Ring::Team& team;
  unsigned kept, staging;  ///< where keys and values lie, and what is on its way to memory
  int group;               ///< over the CTA

  /// s = products of own keys and the queries of a stage. All four are asked for, to be waited for.
  __device__ void ask_scores(float (&s)[32], int stage) const {
    multiply_columns<Ring::dim>(s, kept + own() * (64 * 128), rows(stage));
  }
  /// dp = likewise of values and dout.
  __device__ void ask_weight_gradients(float (&dp)[32], int stage) const {
    multiply_columns<Ring::value_dim>(dp, kept + own() * (64 * 128) + Ring::key_bytes,
                                      rows(stage) + Ring::query_bytes);
  }
  /// dk += gradients of scores times the queries of a stage.
  __device__ void ask_dk(float (&dk)[Ring::dim / 2], const unsigned (&ds)[4][4], int stage,
                         bool add) const {
    multiply_rows<typename Ring::Mma::Rows>(dk, ds, rows(stage), add);
  }
  /// dv += weights times the rows of dout of a stage.
  __device__ void ask_dv(float (&dv)[Ring::value_dim / 2], const unsigned (&weights)[4][4],
                         int stage, bool add) const {
    multiply_rows<typename Ring::Mma::ValueRows>(dv, weights, rows(stage) + Ring::query_bytes, add);
  }

  // Registers are scarce: what follows from the thread's index is found anew where it is used.

  /// Writes 64 rows of `Cols` columns to shared memory for the copy engine, as pieces of 64
  /// columns.
  template <int Cols, class Values>
  __device__ static void stage_sums(unsigned shared, const Values& values) {
    const unsigned thread = fresh_thread() % warpgroup_size, lane = thread % 32;
    const unsigned row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (unsigned j = 0; j < Cols / 16; ++j) {
      unsigned r[4];
      values(j, r);
      const unsigned chunk = 2 * j + lane / 16;
      store_matrix_x4<false>(
          shared + chunk / 8 * piece_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16, r);
    }
  }

  /// Where in staging a lane's gradients of scores of a step begin, queries along the lines.
  __device__ static unsigned scores_at() {
    const unsigned thread = fresh_thread() % warpgroup_size, lane = thread % 32;
    constexpr unsigned chunks = side / 8, span = 64 / side;
    const unsigned row = thread / 32 * 16 + lane / 8 % 2 * 8;
    const unsigned query = row / side * side + lane / 16 * 8 + lane % 8;
    const unsigned chunk = row % side / 8 ^ query / span % chunks;  // of the next 16 queries too
    return query * Ring::line + chunk * 16;
  }
  /// Writes them to shared memory, blocks of an entry after those of the one before.
  __device__ static void stage_scores(unsigned to, const unsigned (&ds)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      store_matrix_x4<true>(to + (j * 16 / side * 64 + j * 16 % side) * Ring::line, ds[j]);
  }

  /// Of the CTA.
  static __device__ unsigned thread_of_all() {
    return Ring::Steps::scarce ? fresh_thread() : threadIdx.x;
  }
  static __device__ int thread() { return static_cast<int>(thread_of_all()) % warpgroup_size; }
  __device__ int own() const { return group % (Ring::strip / 64); }
  __device__ void meet() const { named_barrier(1 + group, warpgroup_size); }

  __device__ void release(int stage) const {
    __syncwarp();  // all lanes have read its numbers
    if (threadIdx.x % 32 == 0) team.empty[stage].arrive();
  }

  /// Makes gradients of scores the left operand of a product, and stages them for memory.
  __device__ static void leave(float (&sums)[32], unsigned (&ds)[4][4], unsigned to) {
#pragma unroll
    for (int i = 0; i < 16; ++i) ds[i / 4][i % 4] = Scores::pack(sums[2 * i], sums[2 * i + 1]);
    stage_scores(to, ds);
    warpgroup_pin(sums);  // made anew, or they would take registers twice
#pragma unroll
    for (int i = 0; i < 16; ++i) ds[i / 4][i % 4] = Scores::pack(sums[2 * i], sums[2 * i + 1]);
  }

  /// Takes the staged gradients of the scores of a step to memory, from the one of two buffers that
  /// begins at `turn`.
  __device__ void store(const Step& step, unsigned& turn, int first_key) const {
    const unsigned to = staging + turn;
    turn ^= piece_bytes;
    fence_async_shared();
    constexpr int own_cols = Ring::Steps::own_cols;
    const int q = thread();
    const bool stores = q < Ring::entries * own_cols;
    if (stores) wait_stores_read<0>();
    meet();
    if (!stores) return;
    const int entry = q / own_cols, col = q % own_cols;
    const int* const values = step.value + entry * cols + (cols > own_cols ? own() * own_cols : 0);
    const unsigned from = to + (entry * 64 + col * side) * Ring::line;
    bool in_a_row = own_cols > 1 && values[0] >= 0;
#pragma unroll
    for (int c = 1; c < own_cols; ++c) in_a_row = in_a_row && values[c] == values[0] + c;
    if (in_a_row) {
      if (col == 0) store_box(p.ds_row, from, 0, values[0] * block);
    } else if (values[col] >= 0) {
      store_box(p.ds, from, block == 128 ? first_key % 128 : 0,
                values[col] * block + step.query[entry] % block);
    }
    commit_stores();
  }

  /// Waits until what left through the staging is gone.
  __device__ void leave_staging() const {
    if (thread() < 32) wait_stores_read<0>();
    meet();
  }

  /// Takes a gradient of keys or values to memory, 128 columns at a time from `first` on.
  template <int first = 0, int width>
  __device__ void store_rows(const TensorMapWords& map, const AttentionRows<void>& to,
                             const float (&sums)[width], float factor, const Keys& keys,
                             const AttentionHeadAt& at) const {
    constexpr int columns = 2 * width - first < 128 ? 2 * width - first : 128;
    leave_staging();
    stage_sums<columns>(staging, [&](int j, unsigned(&r)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = first / 2 + 8 * j + 2 * i;
        r[i] = keys.padded(i % 2) ? 0 : Scores::pack(sums[at] * factor, sums[at + 1] * factor);
      }
    });
    fence_async_shared();
    meet();
    const AttentionPlaces& places = p.problem.places;
    if (!places.whole(keys.first)) {
      store_rows_of_end<columns>(to, p.problem, at.head, staging, keys.first, first);
    } else if (thread() == 0) {
#pragma unroll
      for (int piece = 0; piece < columns / 64; ++piece)
        store_box(map, staging + piece * piece_bytes, first + piece * 64,
                  keys.first - places.of(keys.first).shift, at.head, at.batch, 0);
      commit_stores();
    }
    if constexpr (first + columns < 2 * width)
      store_rows<first + columns>(map, to, sums, factor, keys, at);
  }

  __device__ AttentionHeadAt head_of(const AttentionTarget& target) const {
    return {target.number, p.problem.kv_heads};
  }
  __device__ Keys keys_of(const AttentionTarget& target) const {
    Keys keys{target.first + own() * 64, 0};
    if (!p.seen && !Ring::banded) return keys;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = keys.first + thread() / 32 * 16 + thread() % 32 / 4 + 8 * i;
      const long long at = static_cast<long long>(head_of(target).batch) * p.problem.keys + key;
      const bool padded =
          key < p.problem.keys ? p.seen != nullptr && p.seen[at] == 0 : Ring::banded;
      keys.padding |= static_cast<unsigned>(padded) << i;
    }
    keys.padding |= __any_sync(~0u, keys.padding != 0) ? 4 : 0;
    return keys;
  }

  /// run_item(target, place in the ring) for each item that the team is given.
  template <class RunItem>
  __device__ void run(const RunItem& run_item) const {
    RingPlace<Ring::stages> at;
#pragma unroll 1
    for (unsigned parity = 0;; parity ^= 1) {
      team.kept.wait(parity);
      const AttentionTarget target = read_for_all(team.target);
      if (target.item < 0) break;
      run_item(target, at);
    }
    wait_stores_read<0>();  // shared memory is theirs until then
  }

 private:
  static constexpr unsigned long long along = matrix_descriptor<128>(1024, 0);
  static constexpr unsigned long long across = matrix_descriptor<128>(1024, piece_bytes);

  /// The descriptor of `address`, so many bytes further. Its upper half is a constant.
  __device__ static unsigned long long further(unsigned long long form, unsigned address,
                                               unsigned bytes) {
    const unsigned low = static_cast<unsigned>(form) | (address & 0x3FFFFu) >> 4;
    return form >> 32 << 32 | (low + bytes / 16);
  }

  __device__ unsigned rows(int stage) const {
    return kept + Ring::kept_bytes + stage * Ring::stage_bytes;
  }
  /// sums = 64 rows of `kept_rows` times the 64 rows of a stage, transposed, `depth` columns of
  /// both.
  template <int depth>
  __device__ static void multiply_columns(float (&sums)[32], unsigned kept_rows, unsigned stage) {
    asm volatile("" : "+r"(kept_rows));  // or its descriptors are kept from step to step
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < depth / 16; ++k)
      Ring::Mma::Scores::multiply(
          sums, further(along, kept_rows, k / 4 * (Ring::strip * 128) + k % 4 * 32),
          further(along, stage, k / 4 * piece_bytes + k % 4 * 32), k > 0);
    warpgroup_commit();
  }
  /// sums += weights times the 64 rows of a stage.
  template <class Mma, int width>
  __device__ static void multiply_rows(float (&sums)[width], const unsigned (&weights)[4][4],
                                       unsigned stage, bool add) {
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Mma::multiply(sums, weights[k], further(across, stage, k * 2048), add || k > 0);
    warpgroup_commit();
  }
};

}  // namespace bs::cuda::device
