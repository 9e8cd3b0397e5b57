#include <bs/kernels/gru.h>

#include <bs/kernels/cuda/lstm/recurrent.cuh>

namespace bs::cuda {

namespace {

/// The gates r, z and n; the last sum is q = W_hn h' + b_hn.
struct GruCell {
  static constexpr int gates = 3;
  static constexpr bool splits = true;

  /// z: in the input's part of the sums, out the gates.
  template <class W>
  __device__ static W forward(W (&z)[3], const W (&s)[3], W before) {
    z[0] = device::gate<false>(z[0] + s[0]);
    z[1] = device::gate<false>(z[1] + s[1]);
    z[2] = device::squash<false>(z[2] + z[0] * s[2]);
    return (W(1) - z[1]) * z[2] + z[1] * before;
  }

  /// d: of the recurrent sums; dn: of the input's part of the last.
  template <class W>
  __device__ static W backward(const W (&z)[3], W q, W before, W dh, W (&d)[3], W& dn) {
    dn = dh * (W(1) - z[1]) * (W(1) - z[2] * z[2]);
    d[1] = dh * (before - z[2]) * z[1] * (W(1) - z[1]);
    d[0] = dn * q * z[0] * (W(1) - z[0]);
    d[2] = dn * z[0];
    return dh * z[1];
  }
};

}  // namespace

void gru(std::span<const RecurrentSteps> directions, Stream stream) {
  for (const RecurrentSteps& s : directions)
    visit_floating("gru", s.gates.dtype(), [&]<class T>(Type<T>) {
      recurrent::forward_steps<device_type<T>, GruCell>(s, stream);
    });
}

void gru_backward(std::span<const RecurrentBackwardSteps> directions, Stream stream) {
  for (const RecurrentBackwardSteps& s : directions)
    visit_floating("gru_backward", s.dgates.dtype(), [&]<class T>(Type<T>) {
      recurrent::backward_steps<device_type<T>, GruCell>(s, stream);
    });
}

}  // namespace bs::cuda
