#include <bs/nn/rnnt.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/transducer_joint.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/rounding.h>
#include <bs/lib/integers.h>
#include <bs/nn/init.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace bs::nn {

RNNTOptions RNNTOptions::base() {
  RNNTOptions o;
  o.post_layers = 6;
  o.joint = 768;
  o.classes = 8704;
  return o;
}

RNNTOptions RNNTOptions::large() {
  RNNTOptions o;
  o.encoder_hidden = 1536;
  o.post_layers = 6;
  o.prediction_hidden = 768;
  o.joint = 1024;
  o.classes = 17408;
  return o;
}

int64_t RNNTOptions::parameter_count() const {
  const auto lstm = [](int64_t input, int64_t hidden, int layers) {
    return 4 * hidden * (input + hidden + 2) + (layers - 1) * 4 * hidden * (2 * hidden + 2);
  };
  const auto linear = [](int64_t in, int64_t out) { return in * out + out; };
  return lstm(features, encoder_hidden, pre_layers) +
         lstm(stack * encoder_hidden, encoder_hidden, post_layers) + linear(encoder_hidden, joint) +
         (classes - 1) * prediction_hidden +
         lstm(prediction_hidden, prediction_hidden, prediction_layers) +
         linear(prediction_hidden, joint) + linear(joint, classes);
}

namespace {

LSTMOptions lstm_options(const RNNTOptions& o, int64_t input, int64_t hidden, int layers,
                         double dropout) {
  return {.input = input,
          .hidden = hidden,
          .layers = layers,
          .dropout = dropout,
          .dtype = o.dtype,
          .device = o.device};
}

/// The seed's start: all scaled, then the forget gates opened.
void init_lstm(const LSTM& lstm, const RNNTOptions& o) {
  const int64_t hidden = lstm.options().hidden;
  for (const Variable& p : lstm.parameters()) copy(mul(p.data(), o.lstm_scale), p.data());
  for (const LSTMWeightVariables& w : lstm.weights) {
    init::constant(w.bias_ih.data().slice(0, hidden, 2 * hidden), o.forget_bias);
    init::zeros(w.bias_hh.data().slice(0, hidden, 2 * hidden));
  }
}

/// As doubles, which hold whatever is given.
std::vector<double> numbers(const Tensor& lengths) {
  std::vector<double> values;
  for (int64_t i = 0; i < lengths.numel(); ++i) values.push_back(lengths.select(0, i).item());
  return values;
}

/// @param[in] where else they may be, where nobody looks at them
void check_lengths(const char* name, const Tensor& lengths, int64_t batch, int64_t most,
                   Device where = Device::cpu()) {
  const bool there = lengths.defined() && lengths.device() == where;
  BS_CHECK(lengths.defined() && lengths.shape() == Shape{batch} && lengths.dtype() == i64 &&
               (there || lengths.device().is_cpu()),
           "rnnt: {} {} of {} on {}, expected [{}] of i64 on the host", name, lengths.shape(),
           lengths.dtype(), lengths.device(), batch);
  if (!lengths.device().is_cpu()) return;
  for (const double length : numbers(lengths))
    BS_CHECK(length >= 0 && length <= static_cast<double>(most),
             "rnnt: one of the {} is {}, beyond {}", name, length, most);
}

}  // namespace

Variable stack_time(const Variable& x, int factor) {
  BS_CHECK(x.rank() == 3 && factor > 0,
           "stack_time: {} steps side by side of {}, expected [steps, "
           "batch, features]",
           factor, x.shape());
  if (factor == 1) return x;
  const int64_t steps = x.size(0), batch = x.size(1), width = x.size(2);
  const int64_t stacks = ceil_div(steps, factor);
  Variable whole = x;
  if (stacks * factor > steps)
    whole = concat({x, zeros({stacks * factor - steps, batch, width}, x.dtype(), x.device())}, 0);
  const Variable cut = reshape(whole, {stacks, factor, batch, width});
  return reshape(permute(cut, {0, 2, 1, 3}), {stacks, batch, factor * width});
}

namespace {

const RNNTOptions& checked(const RNNTOptions& o) {
  BS_CHECK(o.stack > 0, "rnnt: {} frames side by side", o.stack);
  BS_CHECK(o.classes > 1 && o.joint > 0, "rnnt: {} classes of a joint of {}", o.classes, o.joint);
  BS_CHECK(is_extent(o.encoder_hidden), "rnnt: an encoder of {} cells", o.encoder_hidden);
  return o;
}

}  // namespace

RNNT::RNNT(const Options& o)
    : pre_rnn(
          lstm_options(checked(o), o.features, o.encoder_hidden, o.pre_layers, o.encoder_dropout)),
      post_rnn(lstm_options(o, o.stack * o.encoder_hidden, o.encoder_hidden, o.post_layers,
                            o.encoder_dropout)),
      joint_enc({.in = o.encoder_hidden, .out = o.joint, .dtype = o.dtype, .device = o.device}),
      embedding({.rows = o.classes - 1,
                 .width = o.prediction_hidden,
                 .dtype = o.dtype,
                 .device = o.device}),
      prediction_rnn(lstm_options(o, o.prediction_hidden, o.prediction_hidden, o.prediction_layers,
                                  o.prediction_dropout)),
      joint_pred({.in = o.prediction_hidden, .out = o.joint, .dtype = o.dtype, .device = o.device}),
      joint_net({.in = o.joint, .out = o.classes, .dtype = o.dtype, .device = o.device}),
      options_(o) {
  BS_CHECK(o.joint_dropout >= 0 && o.joint_dropout <= 1, "rnnt: joint_dropout {} is not in [0, 1]",
           o.joint_dropout);
  register_module("pre_rnn", pre_rnn);
  register_module("post_rnn", post_rnn);
  register_module("joint_enc", joint_enc);
  register_module("embedding", embedding);
  register_module("prediction_rnn", prediction_rnn);
  register_module("joint_pred", joint_pred);
  register_module("joint_net", joint_net);
  for (const LSTM* lstm : {&pre_rnn, &post_rnn, &prediction_rnn}) init_lstm(*lstm, o);
}

namespace {

/// x [steps, batch, width] with zeros past the lengths.
Variable until(const Variable& x, const Tensor& lengths) {
  return where(steps_within(lengths, x.data()), x, 0);
}

/// How many stacks so many frames are.
Tensor stacks_of(const Tensor& lengths, int stack) {
  return cast(ceil(div(cast(lengths, f64), stack)), i64);
}

/// Packed rows are counted on the host, unless their number is given.
void check_packed(const RNNTLossOptions& options, const Tensor& lengths) {
  BS_CHECK(
      !options.packed || options.rows >= 0 || !lengths.defined() || lengths.device().is_cpu(),
      "rnnt: lengths on {}, but packed rows are counted on the host; set packed to false, or rows",
      lengths.device());
}

/// Rows of the packed logits of so many frames and labels.
int64_t rows_of(const RNNTLossOptions& options, const Tensor& frames, const Tensor& labels) {
  if (!frames.device().is_cpu() || !labels.device().is_cpu()) return options.rows;
  const int64_t needed = transducer_packed_rows(frames, labels);
  BS_CHECK(options.rows < 0 || options.rows >= needed,
           "rnnt: {} rows of packed logits, but lengths that make {}", options.rows, needed);
  return std::max(options.rows, needed);
}

}  // namespace

RNNT::Encoded RNNT::encode(const Variable& features, const Tensor& lengths,
                           const EncoderState& state) const {
  return encode(features, lengths, state, true);
}

RNNT::Encoded RNNT::encode(const Variable& features, const Tensor& lengths,
                           const EncoderState& state, bool states) const {
  BS_CHECK(features.rank() == 3 && features.size(2) == options_.features,
           "rnnt: features {}, expected [batch, frames, {}]", features.shape(), options_.features);
  const int64_t batch = features.size(0), frames = features.size(1);
  const Tensor given =
      lengths.defined() ? lengths : full({batch}, static_cast<double>(frames), i64);
  check_lengths("lengths", given, batch, frames, states ? Device::cpu() : features.device());
  // Going one way, an LSTM hears nothing of what comes after a sequence. Where nobody asks for the
  // state at its end, a GPU is not told where that is: its fastest kernels take all steps.
  const bool ends = !given.device().is_cpu() || std::ranges::any_of(numbers(given), [&](double n) {
    return n < static_cast<double>(frames);
  });
  const bool told = ends && (states || features.device().is_cpu());
  const bool masked = ends && !told;
  const Tensor after = stacks_of(given, options_.stack);
  const Variable x = transpose(features, 0, 1);
  const LSTM::Output pre =
      pre_rnn.forward(masked ? until(x, given) : x, state.pre, told ? given : Tensor());
  // The last stack of a sequence is filled up with zeros.
  const Variable y = masked && options_.stack > 1 ? until(pre.y, given) : pre.y;
  const LSTM::Output post =
      post_rnn.forward(stack_time(y, options_.stack), state.post, told ? after : Tensor());
  EncoderState last;
  if (states) last = {pre.state(), post.state()};
  return {transpose(joint_enc.forward(post.y), 0, 1), after, last};
}

RNNT::Predicted RNNT::predict(const Tensor& tokens, const LSTMState& state) const {
  BS_CHECK(tokens.rank() == 2, "rnnt: tokens {}, expected [batch, count]", tokens.shape());
  Variable x = transpose(embedding.forward(tokens), 0, 1);
  if (!state.h.defined())
    x = concat({zeros({1, tokens.size(0), options_.prediction_hidden}, x.dtype(), x.device()), x},
               0);
  const LSTM::Output out = prediction_rnn.forward(x, state);
  return {transpose(joint_pred.forward(out.y), 0, 1), out.state()};
}

TransducerJointOptions RNNT::joint_options() const {
  return {.dropout = training() ? options_.joint_dropout : 0};
}

Variable RNNT::joint(const Variable& f, const Variable& g) const {
  return joint_net.forward(transducer_joint(f, g, {}, {}, joint_options()));
}

int64_t RNNT::packed_rows(const Tensor& lengths, const Tensor& target_lengths, int split) const {
  BS_CHECK(split > 0, "rnnt: a batch cut into {} parts", split);
  constexpr int64_t longest = std::numeric_limits<int32_t>::max();
  const int64_t batch = lengths.defined() ? lengths.numel() : 0;
  check_lengths("lengths", lengths, batch, longest);
  check_lengths("target_lengths", target_lengths, batch, longest);
  const Tensor frames = stacks_of(lengths, options_.stack);
  const int64_t parts = std::min<int64_t>(split, batch);
  int64_t most = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = detail::part_begin(batch, parts, i);
    const int64_t end = detail::part_begin(batch, parts, i + 1);
    most = std::max(most, transducer_packed_rows(frames.slice(0, begin, end),
                                                 target_lengths.slice(0, begin, end)));
  }
  return most;
}

Variable RNNT::loss(const RNNTBatch& batch, const RNNTLossOptions& options) const {
  check_packed(options, batch.lengths);
  return loss(encode(batch.features, batch.lengths, {}, false), batch, options);
}

Variable RNNT::loss(const Encoded& encoded, const RNNTBatch& batch,
                    const RNNTLossOptions& options) const {
  BS_CHECK(options.split > 0, "rnnt: a batch cut into {} parts", options.split);
  const Variable& f = encoded.f;
  const int64_t count = f.size(0);
  BS_CHECK(batch.targets.rank() == 2 && batch.targets.size(0) == count && count > 0,
           "rnnt: targets {} for a batch of {}", batch.targets.shape(), count);
  check_packed(options, encoded.lengths);
  check_packed(options, batch.target_lengths);
  check_lengths("target_lengths", batch.target_lengths, count, batch.targets.size(1), f.device());
  const Reduction reduction = options.transducer.reduction;
  BS_CHECK(reduction != Reduction::none,
           "rnnt: the loss is a mean or a sum, not one of each utterance");
  const Tensor frames = encoded.lengths.to(f.device());
  const Tensor tokens = batch.target_lengths.to(f.device());
  TransducerLossOptions summed = options.transducer;
  summed.reduction = Reduction::sum;
  TransducerJointOptions joint = joint_options();
  const RandomState random = joint.dropout > 0 ? default_generator().next() : RandomState{};
  // Where frames and tokens meet: no row of logits that lengths do not ask for.
  const PartLoss part = [&](const std::vector<Variable>& cut, const std::vector<Variable>& whole,
                            int64_t begin, int64_t end) {
    if (options.packed)
      joint.packed_rows = rows_of(options, encoded.lengths.slice(0, begin, end),
                                  batch.target_lengths.slice(0, begin, end));
    joint.first_utterance = begin;
    const Tensor t = frames.slice(0, begin, end), u = tokens.slice(0, begin, end);
    const Variable h = transducer_joint(cut[0], cut[1], t, u, joint, random);
    return transducer_loss(linear(h, whole[0], whole[1]), batch.targets.slice(0, begin, end), t, u,
                           summed, true);
  };
  const std::vector<Variable> cut{f, predict(batch.targets).g};
  const std::vector<Variable> whole{joint_net.weight, joint_net.bias};
  const double scale = reduction == Reduction::sum ? 1 : 1.0 / static_cast<double>(count);
  const int64_t parts = std::min<int64_t>(options.split, count);
  const Variable sum =
      parts == 1 ? part(cut, whole, 0, count) : part_by_part(cut, whole, parts, part, scale);
  return reduction == Reduction::sum ? sum : sum * scale;
}

}  // namespace bs::nn
