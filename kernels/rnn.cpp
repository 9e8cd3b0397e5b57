#include <bs/kernels/rnn.h>

namespace bs {

namespace {

detail::RecurrentKind kind(Nonlinearity nonlinearity) {
  return {.op = "rnn",
          .gates = 1,
          .splits = false,
          .forward =
              [nonlinearity](Device device, std::span<const RecurrentSteps> steps) {
                BS_DISPATCH_WORK(device, detail::work_of(steps), rnn, steps, nonlinearity);
              },
          .backward =
              [nonlinearity](Device device, std::span<const RecurrentBackwardSteps> steps) {
                BS_DISPATCH_WORK(device, detail::work_of(steps), rnn_backward, steps, nonlinearity);
              }};
}

}  // namespace

std::vector<RecurrentResult> rnn(const Tensor& x, std::span<const RecurrentDirection> directions,
                                 Nonlinearity nonlinearity, const Tensor& lengths) {
  return detail::recurrent(kind(nonlinearity), x, directions, lengths);
}

RecurrentBackward rnn_backward(const Tensor& x, std::span<const RecurrentDirection> directions,
                               Nonlinearity nonlinearity, const Tensor& lengths,
                               std::span<const RecurrentResult> results,
                               std::span<const RecurrentUpstream> upstream, RecurrentWants wants) {
  return detail::recurrent_backward(kind(nonlinearity), x, directions, lengths, results, upstream,
                                    wants);
}

}  // namespace bs
