#pragma once
// Which blocks a CTA meets: the union of what several neighbouring lines (block rows, or block
// columns) of a layout hold, made in shared memory window by window.
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

namespace bs::cuda::device {

/// The number of the block at place `place` of a line among all heads' lines, or -1.
__device__ inline int find_block(const BlockLines& lines, long long line, int place) {
  int low = lines.offsets[line], high = lines.offsets[line + 1];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (lines.at[middle] == place) return middle;
    lines.at[middle] < place ? low = middle + 1 : high = middle;
  }
  return -1;
}

/// Walks up to eight lines. Blocks are cut into `parts` (a power of two) pieces; an entry of the
/// list is `piece << 8 | lines that hold it`, one bit a line.
class BlockList {
 public:
  static constexpr int threads = 128;  ///< of the CTA; all of them call every member
  static constexpr int window = 4 * threads;
  static constexpr int most_lines = 8;
  struct Memory {
    unsigned present[threads];  ///< a byte for each piece of the window
    unsigned entries[window];
    int cursor[most_lines], end[most_lines];
    int total[threads / 32];
  };

  /// Lines [first, first + count) of `head`, as far as they exist; pieces [low, high) only.
  __device__ BlockList(Memory& memory, const BlockLines& layout, int head, int first, int count,
                       int parts, int low, int high)
      : memory_(memory), at_(layout.at), parts_(parts), low_(low), high_(high) {
    const int line = threadIdx.x;
    __syncthreads();  // the memory may hold a list in use
    if (line < most_lines) {
      const bool exists = line < count && first + line < layout.lines;
      const int* offset =
          layout.offsets + static_cast<long long>(head) * layout.lines + first + line;
      memory_.cursor[line] = exists ? offset[0] : 0;
      memory_.end[line] = exists ? offset[1] : 0;
    }
  }

  /// Lists the pieces of the next window that holds any, ascending; 0 at the end.
  __device__ int next() {
    int count = 0;
    do {
      __syncthreads();  // cursors are set; nobody reads the entries of the window before
      const int base = next_base();
      if (base >= high_) return 0;
      memory_.present[threadIdx.x] = 0;
      __syncthreads();
      mark(base);
      __syncthreads();
      count = compact(base);
    } while (count == 0);
    return count;
  }

  __device__ unsigned entry(int i) const { return memory_.entries[i]; }

 private:
  /// The first piece that lies ahead of any cursor; at a block's begin, so that windows, whose size
  /// is a multiple of `parts_`, split no block.
  __device__ int next_base() const {
    int base = 0x7fffffff;
    for (int line = 0; line < most_lines; ++line) {
      const int cursor = memory_.cursor[line];
      if (cursor < memory_.end[line]) base = min(base, at_[cursor] * parts_);
    }
    return base == 0x7fffffff ? base : max(base, low_ / parts_ * parts_);
  }

  /// A warp takes every fourth line, 32 blocks at a time.
  __device__ void mark(int base) {
    const int lane = threadIdx.x % 32;
    for (int line = threadIdx.x / 32; line < most_lines; line += threads / 32) {
      int cursor = memory_.cursor[line];
      const int end = memory_.end[line];
      int taken = 32;
      while (taken == 32) {
        const int piece = cursor + lane < end ? at_[cursor + lane] * parts_ : 0x7fffffff;
        const bool inside = piece < base + window;
        for (int part = piece; inside && part < piece + parts_; ++part)
          if (part >= low_ && part < high_)
            atomicOr(&memory_.present[(part - base) / 4], 1U << (line + 8 * ((part - base) % 4)));
        taken = __popc(__ballot_sync(0xffffffffU, inside));
        cursor += taken;
      }
      __syncwarp();  // all lanes have read the cursor
      if (lane == 0) memory_.cursor[line] = cursor;
    }
  }

  /// Gathers the pieces marked; a thread looks at four.
  __device__ int compact(int base) {
    const int lane = threadIdx.x % 32;
    const unsigned word = memory_.present[threadIdx.x];
    int own = 0;
    for (int i = 0; i < 4; ++i) own += (word >> 8 * i & 0xff) != 0;
    int sum = own;  // over the lanes up to this one
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (lane == 31) memory_.total[threadIdx.x / 32] = sum;
    __syncthreads();
    int to = sum - own;
    int all = 0;
    for (int w = 0; w < threads / 32; ++w) {
      if (w < static_cast<int>(threadIdx.x) / 32) to += memory_.total[w];
      all += memory_.total[w];
    }
    for (int i = 0; i < 4; ++i) {
      const unsigned lines = word >> 8 * i & 0xff;
      if (lines != 0)
        memory_.entries[to++] = static_cast<unsigned>(base + 4 * threadIdx.x + i) << 8 | lines;
    }
    __syncthreads();
    return all;
  }

  Memory& memory_;
  const int* at_;
  int parts_, low_, high_;
};

}  // namespace bs::cuda::device
