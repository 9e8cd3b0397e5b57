#include <bs/autograd/gru.h>
#include <bs/autograd/saved_tensor.h>

namespace bs {

std::vector<RecurrentStates> gru(const Variable& x,
                                 std::span<const RecurrentDirectionVariables> directions,
                                 const Tensor& lengths) {
  return detail::record_recurrent(
      "gru", x, directions,
      [&](const Tensor& in, std::span<const RecurrentDirection> given) {
        return gru(in, given, lengths);
      },
      [lengths = SavedTensor(lengths)](const Tensor& in, std::span<const RecurrentDirection> given,
                                       std::span<const RecurrentResult> results,
                                       std::span<const RecurrentUpstream> upstream,
                                       RecurrentWants wants) {
        return gru_backward(in, given, lengths, results, upstream, wants);
      });
}

}  // namespace bs
