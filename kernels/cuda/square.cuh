#pragma once
// Squares of a turn in shared memory.
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/turn.cuh>

namespace bs::cuda {

/// A square of elements of 16 or 32 bits in shared memory, whose neighbours in x lie side by side.
/// Groups of 16 bytes are exchanged so that no two threads of an access meet in a bank.
template <class T>
class Square {
 public:
  static constexpr int bytes = turn_edge * turn_edge * static_cast<int>(sizeof(T));
  static constexpr int threads = 256;

  __device__ explicit Square(void* memory) : data_(static_cast<T*>(memory)) {}

  /// The square at (x0, y0) of a matrix whose neighbours in y lie side by side, by all threads. A
  /// thread reads vectors along y of as many lines as make words along x.
  template <int M>
  __device__ void fill(const T* from, const Turn<M>& turn, int n, uint32_t x0, uint32_t y0) const {
    constexpr unsigned lanes = 8, lines = threads / lanes * in_word;
    constexpr unsigned steps_x = turn_edge / lines, steps_y = turn_edge / (lanes * group);
    const unsigned low = threadIdx.x % lanes * group, high = threadIdx.x / lanes * in_word;
    device::Raw<T, group> in[steps_x][steps_y][in_word];
#pragma unroll
    for (unsigned i = 0; i < steps_x; ++i)
#pragma unroll
      for (unsigned k = 0; k < in_word; ++k) {
        const uint32_t x = x0 + high + i * lines + k;
        if (x >= turn.nx) continue;
        const T* const line = from + turn.line(n, x);
#pragma unroll
        for (unsigned j = 0; j < steps_y; ++j) {
          const uint32_t y = y0 + low + j * lanes * group;
          if (y < turn.ny) in[i][j][k] = *reinterpret_cast<const device::Raw<T, group>*>(line + y);
        }
      }
#pragma unroll
    for (unsigned i = 0; i < steps_x; ++i)
#pragma unroll
      for (unsigned j = 0; j < steps_y; ++j)
        put(low + j * lanes * group, high + i * lines, in[i][j]);
  }

  /// N neighbours in x.
  template <int N>
  __device__ device::Raw<T, N> read(unsigned y, unsigned x) const {
    device::Raw<T, N> out;
    if constexpr (N < group) {
      static_assert(N * sizeof(T) == 8);
      reinterpret_cast<uint2&>(out) = *reinterpret_cast<const uint2*>(at(y, x));
    } else {
      static_assert(N % group == 0);
#pragma unroll
      for (unsigned k = 0; k < N; k += group) {
        const uint4 part = *reinterpret_cast<const uint4*>(at(y, x + k));
        const unsigned words[] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (unsigned w = 0; w < 4; ++w) out.at[k / in_word + w] = words[w];
      }
    }
    return out;
  }

 private:
  static constexpr unsigned group = device::pack_size<T>, in_word = 4 / sizeof(T);

  __device__ T* at(unsigned y, unsigned x) const {
    return data_ + y * turn_edge + ((x / group) ^ (y / group)) * group + x % group;
  }
  /// A group of elements along y of each line of a word.
  __device__ void put(unsigned y, unsigned x, const device::Raw<T, group> (&in)[in_word]) const {
    const auto word = [&](unsigned e) -> unsigned& {
      return *reinterpret_cast<unsigned*>(at(y + e, x));
    };
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      if constexpr (in_word == 2) {
        word(2 * w) = __byte_perm(in[0].at[w], in[1].at[w], 0x5410);
        word(2 * w + 1) = __byte_perm(in[0].at[w], in[1].at[w], 0x7632);
      } else {
        word(w) = in[0].at[w];
      }
    }
  }

  T* data_;
};

}  // namespace bs::cuda
