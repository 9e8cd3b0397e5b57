#include <bs/kernels/gru.h>

#include <bs/kernels/cpu/recurrent_backward.h>
#include <bs/kernels/cpu/recurrent_forward.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

namespace {

/// The gates r, z and n; q = W_hn h' + b_hn.
struct GruCell {
  static constexpr size_t gates = 3;
  static constexpr bool splits = true;

  /// z: in the input's part of the sums, out the gates.
  template <class W>
  static void forward(int64_t n, const std::array<W*, 3>& z, const std::array<const W*, 3>& sums,
                      const std::array<const W*, 3>& bias, const W* before, W* q, W* after) {
    W *reset = z[0], *update = z[1], *value = z[2];
    const W *sr = sums[0], *sz = sums[1], *sn = sums[2];
    const W *br = bias[0], *bz = bias[1], *bn = bias[2];
#pragma omp simd
    for (int64_t u = 0; u < n; ++u) {
      reset[u] = math::sigmoid(reset[u] + sr[u] + br[u]);
      update[u] = math::sigmoid(update[u] + sz[u] + bz[u]);
      q[u] = sn[u] + bn[u];
      value[u] = math::tanh(value[u] + reset[u] * q[u]);
      after[u] = (W(1) - update[u]) * value[u] + update[u] * before[u];
    }
  }

  /// d: of the recurrent sums; dn: of the input's part of the last. dh: in of h, out what of it
  /// goes to h' directly.
  template <class W>
  static void backward(int64_t n, const std::array<const W*, 3>& z, const W* q, const W* before,
                       const W*, W* dh, const std::array<W*, 3>& d, W* dn) {
    const W *reset = z[0], *update = z[1], *value = z[2];
    W *dr = d[0], *dz = d[1], *dq = d[2];
#pragma omp simd
    for (int64_t u = 0; u < n; ++u) {
      dn[u] = dh[u] * (W(1) - update[u]) * (W(1) - value[u] * value[u]);
      dz[u] = dh[u] * (before[u] - value[u]) * update[u] * (W(1) - update[u]);
      dr[u] = dn[u] * q[u] * reset[u] * (W(1) - reset[u]);
      dq[u] = dn[u] * reset[u];
      dh[u] = dh[u] * update[u];
    }
  }
};

}  // namespace

void gru(std::span<const RecurrentSteps> directions, Stream) {
  recurrent::run_directions<recurrent::Forward, GruCell>("gru", directions);
}

void gru_backward(std::span<const RecurrentBackwardSteps> directions, Stream) {
  recurrent::run_directions<recurrent::Backward, GruCell>("gru_backward", directions);
}

}  // namespace bs::cpu
