#pragma once
// What the backward of a transducer's joint reads: its gradient and, with dropout, the bits of what
// the forward kept, both ahead of their use.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/transducer/transducer_joint.cuh>

namespace bs::cuda::joint {

inline constexpr int feed_threads = 256;

/// 16 bytes as copy_async_16 brings them, of what is read once: among the first to leave the L2
/// cache, so that sums which another kernel adds up stay there.
__device__ inline void copy_once_16(void* shared, const void* global, bool valid, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                   device::shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ inline uint64_t leave_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Rows of four frames that a thread has on their way. Dropout's bits leave out rows of g.
template <class T, int X, bool drops>
inline constexpr int feed_depth = sizeof(T) == 2 && X == 16 && !drops ? 2 : 3;

/// dh of a segment as it comes: four frames of one of the thread's labels at a time, D of them on
/// their way through the thread's own part of the ring; and their bits.
template <class T, bool aligned, int X, bool drops>
struct Feed {
  using Row = Raw<T, group<T>>;
  static constexpr int D = feed_depth<T, X, drops>;
  static constexpr int Y = feed_threads / X;

  Row* ring;                   ///< the thread's
  unsigned* words;             ///< the same
  const T* next;               ///< row of what comes next
  const Field<T>* bits;        ///< of what comes next
  int64_t n, which;            ///< columns, and the thread's group of them
  int64_t frame, label, turn;  ///< elements to the next frame, label, and to the next four frames
  int groups, fields;          ///< of a row, and to the bits of the next four frames
  int labels, end;
  int t, u;  ///< what comes next
  int slot = 0;
  uint64_t policy = leave_first();

  __device__ Feed(Row* ring, unsigned* words, const T* first_row, const Field<T>* first_bits,
                  int64_t n, int64_t which, int stride, int labels, int begin, int end)
      : ring(ring),
        words(words),
        n(n),
        which(which),
        frame(stride * n),
        label(Y * n),
        groups(static_cast<int>((n + group<T> - 1) / group<T>)),
        labels(labels),
        end(end),
        t(begin),
        u(static_cast<int>(threadIdx.x) / X) {
    next = first_row + (int64_t{t} * stride + u) * n;
    const int turns = u < labels ? (labels - u + Y - 1) / Y : 0;
    turn = frames_at_once * frame - turns * label;
    bits = first_bits + (int64_t{t / frames_at_once} * stride + u) * groups + which;
    fields = (stride - turns * Y) * groups;
    for (int k = 0; k < D; ++k) ask();
  }
  __device__ void ask() {
    Row* const to = ring + slot * frames_at_once * feed_threads;
    unsigned* const word = words + slot * feed_threads;
    slot = slot + 1 == D ? 0 : slot + 1;
    if (u < labels && t < end) {
      const T* row = next;
#pragma unroll
      for (int r = 0; r < frames_at_once; ++r) {
        const bool there = t + r < end;
        if constexpr (aligned) {
          copy_once_16(to + r * feed_threads, reinterpret_cast<const Row*>(row) + which, there,
                       policy);
        } else {
          Group<T, aligned> some{};
          if (there) some.load(row, which, n);
          to[r * feed_threads] = some.raw;
        }
        row += frame;
      }
      if constexpr (drops) {
        if constexpr (aligned) {
          device::copy_async<4>(word, bits - shift() / (8 * sizeof(*bits)), true);
        } else {
          *word = *bits;
        }
        bits += Y * groups;
      }
      u += Y;
      next += label;
      if (u >= labels) {
        u = static_cast<int>(threadIdx.x) / X;
        t += frames_at_once;
        next += turn;
        if constexpr (drops) bits += fields;
      }
    }
    device::commit_copies();
  }
  /// The next four frames, zeros past the end. Returns their bits.
  __device__ unsigned take(Row (&rows)[frames_at_once]) {
    device::wait_copies<D - 1>();
#pragma unroll
    for (int r = 0; r < frames_at_once; ++r)
      rows[r] = ring[(slot * frames_at_once + r) * feed_threads];
    unsigned kept = 0;
    if constexpr (drops) kept = words[slot * feed_threads] >> shift();
    ask();
    return kept;
  }
  /// Of its bits in their word: rows that are aligned have whole words of them.
  __device__ int shift() const {
    return aligned ? static_cast<int>(which * sizeof(Field<T>) % 4) * 8 : 0;
  }
};

}  // namespace bs::cuda::joint
