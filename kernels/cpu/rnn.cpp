#include <bs/kernels/rnn.h>

#include <bs/kernels/cpu/recurrent_backward.h>
#include <bs/kernels/cpu/recurrent_forward.h>
#include <bs/kernels/cpu/vector_math.h>

namespace bs::cpu {

namespace {

template <bool relu>
struct RnnCell {
  static constexpr size_t gates = 1;
  static constexpr bool splits = false;

  /// z: in the input's part of the sums, out the state.
  template <class W>
  static void forward(int64_t n, const std::array<W*, 1>& z, const std::array<const W*, 1>& sums,
                      const std::array<const W*, 1>&, const W*, W*, W* after) {
    W* value = z[0];
    const W* sum = sums[0];
#pragma omp simd
    for (int64_t u = 0; u < n; ++u) {
      const W s = value[u] + sum[u];
      // Comparisons let NaN through.
      value[u] = relu ? (s < W(0) ? W(0) : s) : math::tanh(s);
      after[u] = value[u];
    }
  }

  template <class W>
  static void backward(int64_t n, const std::array<const W*, 1>& z, const W*, const W*, const W*,
                       W* dh, const std::array<W*, 1>& d, W*) {
    const W* value = z[0];
    W* ds = d[0];
#pragma omp simd
    for (int64_t u = 0; u < n; ++u) {
      ds[u] = relu ? (value[u] <= W(0) ? W(0) : dh[u]) : dh[u] * (W(1) - value[u] * value[u]);
      dh[u] = W(0);
    }
  }
};

}  // namespace

void rnn(std::span<const RecurrentSteps> directions, Nonlinearity nonlinearity, Stream) {
  using recurrent::Forward;
  recurrent::visit_bool(nonlinearity == Nonlinearity::relu,
                        [&]<bool relu>(std::bool_constant<relu>) {
                          recurrent::run_directions<Forward, RnnCell<relu>>("rnn", directions);
                        });
}

void rnn_backward(std::span<const RecurrentBackwardSteps> directions, Nonlinearity nonlinearity,
                  Stream) {
  using recurrent::Backward;
  recurrent::visit_bool(
      nonlinearity == Nonlinearity::relu, [&]<bool relu>(std::bool_constant<relu>) {
        recurrent::run_directions<Backward, RnnCell<relu>>("rnn_backward", directions);
      });
}

}  // namespace bs::cpu
