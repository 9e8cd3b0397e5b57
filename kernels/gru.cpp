#include <bs/kernels/gru.h>

namespace bs {

namespace {

const detail::RecurrentKind& kind() {
  static const detail::RecurrentKind gru_kind = {
      .op = "gru",
      .gates = 3,
      .splits = true,
      .forward =
          [](Device device, std::span<const RecurrentSteps> steps) {
            BS_DISPATCH_WORK(device, detail::work_of(steps), gru, steps);
          },
      .backward =
          [](Device device, std::span<const RecurrentBackwardSteps> steps) {
            BS_DISPATCH_WORK(device, detail::work_of(steps), gru_backward, steps);
          }};
  return gru_kind;
}

}  // namespace

std::vector<RecurrentResult> gru(const Tensor& x, std::span<const RecurrentDirection> directions,
                                 const Tensor& lengths) {
  return detail::recurrent(kind(), x, directions, lengths);
}

RecurrentBackward gru_backward(const Tensor& x, std::span<const RecurrentDirection> directions,
                               const Tensor& lengths, std::span<const RecurrentResult> results,
                               std::span<const RecurrentUpstream> upstream, RecurrentWants wants) {
  return detail::recurrent_backward(kind(), x, directions, lengths, results, upstream, wants);
}

}  // namespace bs
