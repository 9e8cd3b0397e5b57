#include <bs/autograd/rnn.h>
#include <bs/autograd/saved_tensor.h>

namespace bs {

std::vector<RecurrentStates> rnn(const Variable& x,
                                 std::span<const RecurrentDirectionVariables> directions,
                                 Nonlinearity nonlinearity, const Tensor& lengths) {
  return detail::record_recurrent(
      "rnn", x, directions,
      [&](const Tensor& in, std::span<const RecurrentDirection> given) {
        return rnn(in, given, nonlinearity, lengths);
      },
      [nonlinearity, lengths = SavedTensor(lengths)](
          const Tensor& in, std::span<const RecurrentDirection> given,
          std::span<const RecurrentResult> results, std::span<const RecurrentUpstream> upstream,
          RecurrentWants wants) {
        return rnn_backward(in, given, nonlinearity, lengths, results, upstream, wants);
      });
}

}  // namespace bs
