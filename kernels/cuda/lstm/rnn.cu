#include <bs/kernels/rnn.h>

#include <bs/kernels/cuda/lstm/recurrent.cuh>

namespace bs::cuda {

namespace {

template <bool relu>
struct RnnCell {
  static constexpr int gates = 1;
  static constexpr bool splits = false;

  template <class W>
  __device__ static W forward(W (&z)[1], const W (&s)[1], W) {
    const W sum = z[0] + s[0];
    // Comparisons let NaN through.
    z[0] = relu ? (sum < W(0) ? W(0) : sum) : device::squash<false>(sum);
    return z[0];
  }

  template <class W>
  __device__ static W backward(const W (&z)[1], W, W, W dh, W (&d)[1], W&) {
    d[0] = relu ? (z[0] <= W(0) ? W(0) : dh) : dh * (W(1) - z[0] * z[0]);
    return W(0);
  }
};

/// Calls f(Type<T>, cell) for the dtype and the nonlinearity.
template <class F>
void visit_cell(const char* op, DType dtype, Nonlinearity nonlinearity, F&& f) {
  visit_floating(op, dtype, [&]<class T>(Type<T> type) {
    if (nonlinearity == Nonlinearity::relu) {
      f(type, RnnCell<true>());
    } else {
      f(type, RnnCell<false>());
    }
  });
}

}  // namespace

void rnn(std::span<const RecurrentSteps> directions, Nonlinearity nonlinearity, Stream stream) {
  for (const RecurrentSteps& s : directions)
    visit_cell("rnn", s.gates.dtype(), nonlinearity, [&]<class T, class Cell>(Type<T>, Cell) {
      recurrent::forward_steps<device_type<T>, Cell>(s, stream);
    });
}

void rnn_backward(std::span<const RecurrentBackwardSteps> directions, Nonlinearity nonlinearity,
                  Stream stream) {
  for (const RecurrentBackwardSteps& s : directions)
    visit_cell("rnn_backward", s.dgates.dtype(), nonlinearity,
               [&]<class T, class Cell>(Type<T>, Cell) {
                 recurrent::backward_steps<device_type<T>, Cell>(s, stream);
               });
}

}  // namespace bs::cuda
