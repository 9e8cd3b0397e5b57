#include <bs/nn/decode/rnnt_scorer.h>

#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/lib/host_view.h>

#include <array>

namespace bs::decode {

namespace {

struct RNNTPrediction : PredictionState {
  Tensor g;  ///< [1, 1, joint]
  nn::LSTMState state;
};

std::shared_ptr<RNNTPrediction> prediction(const nn::RNNT::Predicted& predicted) {
  auto result = std::make_shared<RNNTPrediction>();
  result->g = predicted.g.data();
  result->state = predicted.state;
  return result;
}

}  // namespace

RNNTScorer::RNNTScorer(const nn::RNNT& model) : model_(model) {}

void RNNTScorer::append(const Tensor& features) {
  const nn::RNNTOptions& o = model_.options();
  BS_CHECK(features.rank() == 2 && features.size(1) == o.features,
           "rnnt_scorer: features {}, expected [frames, {}]", features.shape(), o.features);
  Tensor all = to(cast(features, o.dtype), model_.joint_net.weight.device());
  if (waiting_.defined()) all = concat(std::array{waiting_, all}, 0);
  const int64_t whole = all.size(0) / o.stack * o.stack;
  waiting_ = whole < all.size(0) ? clone(all.slice(0, whole, all.size(0))) : Tensor();
  if (whole > 0) encode(all.slice(0, 0, whole));
}

void RNNTScorer::finish() {
  if (!waiting_.defined()) return;
  encode(waiting_);
  waiting_ = {};
}

void RNNTScorer::encode(const Tensor& features) {
  const NoGrad no_grad;
  const nn::RNNT::Encoded encoded = model_.encode(features.unsqueeze(0), {}, state_);
  state_ = encoded.state;
  const Tensor f = contiguous(encoded.f.data());
  for (int64_t t = 0; t < f.size(1); ++t) encoded_.push_back(f.slice(1, t, t + 1));
}

PredictionPtr RNNTScorer::start() const {
  const NoGrad no_grad;
  const Tensor none = Tensor::empty({1, 0}, i64, model_.joint_net.weight.device());
  return prediction(model_.predict(none));
}

PredictionPtr RNNTScorer::next(const PredictionPtr& state, int64_t token) const {
  const NoGrad no_grad;
  const auto& before = dynamic_cast<const RNNTPrediction&>(*state);
  const Tensor tokens = Tensor::from<int64_t>({token}, {1, 1});
  return prediction(model_.predict(tokens.to(model_.joint_net.weight.device()), before.state));
}

std::vector<float> RNNTScorer::logits(int64_t frame, const PredictionPtr& state) const {
  BS_CHECK(frame >= 0 && frame < frames(), "rnnt_scorer: logits of frame {}, but there are {}",
           frame, frames());
  const NoGrad no_grad;
  const auto& before = dynamic_cast<const RNNTPrediction&>(*state);
  const Tensor logits = model_.joint(encoded_[static_cast<size_t>(frame)], before.g).data();
  std::vector<float> values;
  for_each_value<float>(host_view(cast(logits, f32)), [&](float v) { values.push_back(v); });
  return values;
}

}  // namespace bs::decode
