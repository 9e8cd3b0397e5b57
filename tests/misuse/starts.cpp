#include <bs/autograd/lstm.h>
#include <bs/autograd/sparse_variable.h>
#include <bs/kernels/batch_norm.h>
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/block_sparse_linear.h>
#include <bs/kernels/ctc_loss.h>
#include <bs/kernels/feed_forward.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/group_norm.h>
#include <bs/kernels/kron.h>
#include <bs/kernels/kron_solve.h>
#include <bs/kernels/layout_from_rows.h>
#include <bs/kernels/loss.h>
#include <bs/kernels/lstm.h>
#include <bs/kernels/norm.h>
#include <bs/kernels/rope.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/kernels/transducer_loss.h>
#include <bs/lib/patterns.h>
#include <bs/nn/batch_norm.h>
#include <bs/nn/block_sparse_conv2d.h>
#include <bs/nn/block_sparse_linear.h>
#include <bs/nn/conv2d.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/data/speech_loader.h>
#include <bs/nn/encoder_decoder.h>
#include <bs/nn/group_norm.h>
#include <bs/nn/gru.h>
#include <bs/nn/kronecker_linear.h>
#include <bs/nn/lstm.h>
#include <bs/nn/resnet.h>
#include <bs/nn/rnn.h>
#include <bs/nn/rnnt.h>
#include <bs/nn/sample.h>
#include <bs/nn/transformer.h>
#include <bs/tests/misuse/c_values.h>
#include <bs/tests/misuse/starts.h>

namespace bs::test {

namespace {

using Table = std::multimap<std::string, Arguments>;

Tensor number() { return full({}, .25); }
Tensor vector() { return full({8}, .5); }
Tensor matrix() { return full({8, 8}, .25); }
Tensor cube() { return full({8, 8, 8}, .25); }
Tensor image() { return full({8, 8, 8, 8}, .25); }
Tensor whole(const Shape& shape, double value) { return full(shape, value, i64); }
LayoutPtr one_block() { return patterns::dense({.rows = 1, .block = 8}); }

void add_convolutions(Table& to) {
  const Shape shape{8, 8, 8, 8};
  const Extent2 point{1, 1};
  const SparseTensor sparse{one_block(), full({1, 8, 8}, .5)};
  to.insert({"conv2d", {image(), image()}});
  to.insert({"conv_transpose2d", {image(), image()}});
  to.insert({"conv2d_backward_x", {full({8, 8, 1, 1}, .5), image(), shape}});
  to.insert({"conv2d_backward_w", {image(), full({8, 8, 1, 1}, .5), shape}});
  to.insert({"conv2d_backward_bias", {image()}});
  to.insert({"conv1d", {cube(), cube()}});
  to.insert({"conv1d_backward_x", {full({8, 8, 1}, .5), cube(), Shape{8, 8, 8}}});
  to.insert({"conv1d_backward_w", {cube(), full({8, 8, 1}, .5), Shape{8, 8, 8}}});
  to.insert({"conv_transpose2d_backward_w", {image(), full({8, 8, 1, 1}, .5), shape}});
  to.insert({"block_sparse_softmax", {sparse}});
  to.insert({"block_sparse_softmax", {full({1, 8, 8}, .5), one_block()}});
  to.insert({"block_sparse_softmax_backward", {sparse, full({1, 8, 8}, .5)}});
  to.insert({"block_sparse_softmax_bias_gradient", {sparse, full({1, 8, 8}, .5), Shape{8, 8}}});
  for (const char* name : {"dsd_backward_s", "dds_backward_s"})
    to.insert({name, {matrix(), matrix(), one_block(), Shape{1, 1, 8, 8}}});
  to.insert({"block_sparse_conv2d", {image(), sparse, point}});
  to.insert({"block_sparse_conv2d_backward_x", {image(), sparse, point, shape}});
  to.insert({"block_sparse_conv2d_backward_w", {image(), image(), one_block(), point}});
  to.insert({"relayout", {image(), ImageFormat::nchw, ImageFormat::chwn}});
  to.insert({"as_image", {image(), ImageFormat::nhwc}});
  to.insert({"block_sparse_linear", {matrix(), sparse}});
  to.insert({"block_sparse_linear_backward",
             {matrix(), sparse, block_sparse_linear(matrix(), sparse), matrix()}});
}

void add_norms(Table& to) {
  const NormResult normed = layer_norm(matrix(), vector(), vector());
  to.insert({"batch_norm", {matrix(), vector(), vector()}});
  to.insert({"batch_norm_by", {matrix(), vector(), vector(), vector(), vector()}});
  const BatchNormSaved saved{
      .x = matrix(), .weight = vector(), .bias = vector(), .mean = vector(), .rstd = vector()};
  to.insert({"batch_norm_backward", {saved, matrix()}});
  to.insert({"batch_norm_backward_sums", {saved, matrix()}});
  to.insert({"batch_norm_backward_x", {saved, matrix(), full({2, 8}, .5), int64_t{8}}});
  to.insert({"layer_norm", {matrix(), vector(), vector()}});
  to.insert({"add_rms_norm", {matrix(), matrix(), vector()}});
  to.insert({"add_layer_norm", {matrix(), matrix(), vector(), vector()}});
  to.insert({"layer_norm_backward", {matrix(), vector(), normed.mean, normed.rstd, matrix()}});
  to.insert({"rms_norm_backward", {matrix(), vector(), normed.rstd, matrix()}});
  to.insert({"group_norm_backward",
             {image(), vector(), vector(), group_norm(image(), vector(), vector(), {}), image(),
              GroupNormOptions{}}});
}

void add_losses(Table& to) {
  const Tensor ids = whole({8}, 3), full_length = whole({8}, 8), short_length = whole({8}, 2);
  const Tensor targets = whole({8, 8}, 1), logits = full({8, 8, 9, 8}, .25);
  const CtcLossResult ctc = ctc_loss(cube(), targets, full_length, short_length);
  const TransducerLossResult paths = transducer_loss(logits, targets, full_length, full_length);
  to.insert({"cross_entropy_backward", {matrix(), ids, cross_entropy(matrix(), ids), number()}});
  to.insert({"ctc_loss", {cube(), targets, full_length, short_length}});
  to.insert({"ctc_loss_backward", {cube(), full_length, short_length, ctc, number()}});
  to.insert({"transducer_loss", {logits, targets, full_length, full_length}});
  to.insert({"transducer_loss_backward", {logits, targets, paths, number()}});
  to.insert({"transducer_posterior", {logits, targets, paths}});
  to.insert({"transducer_alignment", {logits, targets, paths}});
  for (const char* name : {"cross_entropy", "nll_loss", "weighted_cross_entropy"})
    to.insert({name, {matrix(), ids}});
  to.insert({"target_weights", {ids, int64_t{8}}});
  to.insert({"transducer_packed_rows", {full_length, full_length}});
  to.insert({"transducer_joint", {cube(), cube()}});
  to.insert({"transducer_joint_backward", {cube(), cube(), image()}});
}

void add_sequences(Table& to) {
  const std::vector<LSTMDirection> directions{
      {.weights = {.ih = full({32, 8}, .1), .hh = full({32, 8}, .1)}}};
  const std::vector<LSTMUpstream> upstream{{cube(), {}, {}, {}}};
  const std::vector<LSTMResult> results = lstm(cube(), directions);
  const Tensor qkv = full({8, 8, 24}, .25);
  for (const char* name : {"lstm", "lstm_layers"})
    to.insert({name, {cube(), directions, Tensor()}});
  for (const char* name : {"lstm_backward", "lstm_layers_backward"})
    to.insert({name, {cube(), directions, Tensor(), results, upstream}});
  for (const char* name : {"rope", "rope_backward"}) to.insert({name, {image(), rope_table(8, 8)}});
  to.insert({"sparse_attention", {image(), image(), image(), one_block()}});
  to.insert({"sparse_attention_backward",
             {image(), image(), image(), sparse_attention(image(), image(), image(), one_block()),
              image(), one_block(), SparseAttentionOptions{}}});
  to.insert({"sparse_attention_qkv", {qkv, 1, one_block(), SparseAttentionOptions{}}});
  to.insert({"sparse_attention_qkv_backward",
             {qkv, 1, sparse_attention_qkv(qkv, 1, one_block()), cube(), one_block(),
              SparseAttentionOptions{}}});
}

void add_products(Table& to) {
  const FeedForwardWeights weights{matrix(), vector(), matrix(), vector()};
  const std::vector<Tensor> factors{matrix()};
  to.insert({"feed_forward", {matrix(), weights}});
  to.insert({"feed_forward", {matrix(), matrix(), vector(), matrix(), vector()}});
  to.insert(
      {"feed_forward_backward", {matrix(), weights, feed_forward(matrix(), weights), matrix()}});
  to.insert({"linear", {matrix(), matrix()}});
  to.insert({"linear_backward", {matrix(), matrix(), matrix()}});
  to.insert({"index_select", {matrix(), 0, whole({8}, 2)}});
  to.insert({"gather", {matrix(), 0, whole({8, 8}, 2)}});
  to.insert({"dsd", {SparseTensor{one_block(), full({1, 8, 8}, .5)}, matrix()}});
  to.insert({"dds", {matrix(), SparseTensor{one_block(), full({1, 8, 8}, .5)}}});
  for (const char* name : {"kron_matmul", "kron_matmul_kept", "kron_solve"})
    to.insert({name, {matrix(), factors}});
  to.insert({"kron_shifted_solve", {matrix(), kron_eigh(factors), number()}});
  to.insert({"embedding_backward", {matrix(), whole({8}, 1), int64_t{8}}});
  for (const char* name : {"scatter", "scatter_add"})
    to.insert({name, {matrix(), 0, whole({8, 8}, 2), matrix()}});
  for (const char* name : {"index_add", "index_copy"})
    to.insert({name, {matrix(), 0, whole({8}, 2), matrix()}});
  to.insert({"index_put", {matrix(), std::vector<Tensor>{whole({8}, 2)}, matrix()}});
  to.insert({"gather_backward", {matrix(), Shape{8, 8}, 0, whole({8, 8}, 2)}});
  to.insert({"sort_backward", {matrix(), whole({8, 8}, 2), Shape{8, 8}}});
  to.insert({"layout_from_rows",
             {Tensor::from<int32_t>({0, 1, 2}), Tensor::from<int32_t>({0, 1}),
              RowListExtents{.rows = 2, .cols = 2, .block = 8}}});
  to.insert({"layout_from_mask", {matrix(), 8, int64_t{64}}});
  to.insert(
      {"layout_from_documents",
       {Tensor::from<int64_t>({0, 5, 20}), DocumentExtents{.tokens = 20, .nnz = 9, .block = 8}}});
  to.insert({"index_select_backward", {matrix(), 0, whole({8}, 2), int64_t{8}}});
  to.insert({"slice_backward", {matrix(), Shape{8, 8}, 0, int64_t{0}, int64_t{8}, int64_t{1}}});
  to.insert(
      {"kron_matmul_backward", {matrix(), factors, kron_matmul_kept(matrix(), factors), matrix()}});
  to.insert(
      {"kron_shifted_solve_backward", {matrix(), factors, kron_eigh(factors), number(), matrix()}});
}

/** Layers of 8 features. */
void add_layers(Table& to) {
  const Tensor tokens = whole({2, 8}, 3);
  to.insert({"nn::Linear", {nn::LinearOptions{.in = 8, .out = 8}, matrix()}});
  to.insert({"nn::Embedding", {nn::EmbeddingOptions{.rows = 8, .width = 8}, tokens}});
  to.insert({"nn::LayerNorm", {nn::LayerNormOptions{.width = 8}, matrix()}});
  to.insert({"nn::RMSNorm", {nn::RMSNormOptions{.width = 8}, matrix()}});
  for (const char* name : {"nn::BatchNorm", "nn::BatchNorm1d"})
    to.insert({name, {nn::BatchNormOptions{.channels = 8}, matrix()}});
  to.insert({"nn::BatchNorm2d", {nn::BatchNormOptions{.channels = 8}, image()}});
  to.insert({"nn::GroupNorm", {nn::GroupNormOptions{.groups = 2, .channels = 8}, image()}});
  to.insert({"nn::InstanceNorm", {nn::InstanceNormOptions{.channels = 8}, image()}});
  to.insert({"nn::Conv1d", {nn::Conv1dOptions{.in = 8, .out = 8}, cube()}});
  to.insert({"nn::Conv2d", {nn::Conv2dOptions{.in = 8, .out = 8}, image()}});
  to.insert({"nn::ConvTranspose2d", {nn::ConvTranspose2dOptions{.in = 8, .out = 8}, image()}});
  to.insert(
      {"nn::BlockSparseConv2d", {nn::BlockSparseConv2dOptions{.layout = one_block()}, image()}});
  to.insert(
      {"nn::BlockSparseLinear", {nn::BlockSparseLinearOptions{.layout = one_block()}, matrix()}});
  to.insert({"nn::KroneckerLinear", {nn::KroneckerLinearOptions{.in = 8, .out = 8}, matrix()}});
}

void add_recurrent_layers(Table& to) {
  to.insert({"nn::LSTM", {nn::LSTMOptions{.input = 8, .hidden = 8}, cube()}});
  to.insert({"nn::LSTMCell", {nn::LSTMCellOptions{.input = 8, .hidden = 8}, matrix()}});
  to.insert({"nn::GRU", {nn::GRUOptions{.input = 8, .hidden = 8}, cube()}});
  to.insert({"nn::GRUCell", {nn::GRUCellOptions{.input = 8, .hidden = 8}, matrix()}});
  to.insert({"nn::RNN", {nn::RNNOptions{.input = 8, .hidden = 8}, cube()}});
  to.insert({"nn::RNNCell", {nn::RNNCellOptions{.input = 8, .hidden = 8}, matrix()}});
}

void add_attention_layers(Table& to) {
  const Tensor tokens = whole({2, 8}, 3), sequence = full({2, 8, 16}, .25);
  const auto all = [](const patterns::Size& size) { return patterns::dense(size); };
  to.insert({"nn::SparseAttention",
             {nn::SparseAttentionOptions{.width = 16, .heads = 2, .block = 8, .pattern = all},
              sequence}});
  const nn::MultiheadAttentionOptions heads{.width = 16, .heads = 2, .block = 8};
  to.insert({"nn::MultiheadAttention", {heads, sequence}});
  to.insert({"nn::MultiheadAttention", {heads, sequence, sequence, sequence}});
  to.insert({"nn::TransformerBlock",
             {nn::TransformerBlockOptions{.width = 16, .heads = 2, .block = 8, .pattern = all},
              sequence}});
  to.insert({"nn::SparseTransformer",
             {nn::SparseTransformerOptions{.vocabulary = 8,
                                           .context = 8,
                                           .width = 16,
                                           .layers = 1,
                                           .heads = 2,
                                           .block = 8,
                                           .pattern = all},
              tokens}});
  const nn::TransformerLayerOptions layer{.width = 16, .heads = 2, .hidden = 8, .block = 8};
  to.insert({"nn::TransformerEncoderLayer", {layer, sequence}});
  to.insert({"nn::TransformerDecoderLayer", {layer, sequence, sequence}});
  const nn::TransformerOptions both{.layer = layer, .encoder_layers = 1, .decoder_layers = 1};
  to.insert({"nn::Transformer", {both, sequence, sequence}});
  to.insert({"nn::Transformer", {both, sequence, sequence, nn::TransformerMasks{}}});
}

void add_models(Table& to) {
  const nn::RNNTOptions transducer{.features = 8,
                                   .encoder_hidden = 8,
                                   .pre_layers = 1,
                                   .post_layers = 1,
                                   .prediction_hidden = 8,
                                   .prediction_layers = 1,
                                   .joint = 8,
                                   .classes = 8};
  const nn::RNNTBatch spoken{.features = Variable(cube(), true),
                             .lengths = whole({8}, 8),
                             .targets = whole({8, 4}, 1),
                             .target_lengths = whole({8}, 4)};
  to.insert({"nn::RNNT", {transducer, spoken}});
  to.insert({"nn::ResNet",
             {nn::ResNetOptions{.depth = 18, .channels = 8, .classes = 8, .width = 8}, image()}});
}

void add_methods(Table& to) {
  const std::string text(100, 'x');
  to.insert({"load_state_dict", {matrix()}});
  to.insert({"generate", {std::vector<int64_t>{1, 2, 3}, int64_t{20}}});
  to.insert({"generate",
             {std::vector<int64_t>{1, 2, 3}, int64_t{20}, nn::SampleOptions{}, int64_t{8},
              int64_t{8}, true}});
  to.insert({"Loader", {text}});
  to.insert({"Loader", {text, data::LoaderOptions{.batch = 2, .context = 3, .prefetch = 0}}});
  to.insert({"windows", {text, std::vector<int64_t>{0, 5}, int64_t{4}, i32}});
  to.insert({"packed_rows", {Tensor::from<int64_t>({4, 2}), Tensor::from<int64_t>({1, 3}), 2}});
  to.insert({"SpeechLoader",
             {std::vector<int>{2000, 3000, 1000}, data::SpeechLoaderOptions{.batch = 2}, 2, 1}});
  const data::SpeechFeatureOptions features{.mel = {.rate = 8000, .mels = 4}, .stack = 2};
  const Tensor weights = full({32, 8}, .25);
  to.insert({"lstm", {cube(), weights, weights}});
  to.insert({"lstm",
             {cube(), weights, weights, full({32}, .5), full({32}, .5), Tensor(), matrix(),
              matrix(), LayoutPtr(), whole({8}, 8), cube()}});
  to.insert({"lstm without", {cube(), weights, weights, 1, true, true, true}});
  for (const bool batched : {false, true}) {
    bs_gemm_description description = Values<bs_gemm_description>::good();
    description.batched = batched;
    const Tensor square = batched ? cube() : matrix();
    to.insert({"gemm", {description, square, square, square, vector(), square.clone(), 1., 1.}});
  }
  to.insert({"SpeechFeatures", {features, std::vector<float>(4, 1.F), 8000}});
}

std::vector<LSTMDirectionVariables> with_gradients(const std::vector<LSTMDirection>& directions) {
  std::vector<LSTMDirectionVariables> all;
  for (const LSTMDirection& d : directions)
    all.push_back({.weights = {.ih = {d.weights.ih, true}, .hh = {d.weights.hh, true}}});
  return all;
}

/** Makes `given` a value of the type that `unset` has. Whether it can. */
bool turn_into(const std::any& unset, std::any& given) {
  if (unset.type() == given.type()) return true;
  if (const auto* t = std::any_cast<Tensor>(&given); t && unset.type() == typeid(Variable)) {
    given = t->defined() ? Variable(*t, is_floating(t->dtype())) : Variable();
    return true;
  }
  if (const auto* t = std::any_cast<Tensor>(&given);
      t && unset.type() == typeid(const bs_tensor*)) {
    given = Values<const bs_tensor*>::made(*t);
    return true;
  }
  if (const auto* l = std::any_cast<LayoutPtr>(&given);
      l && unset.type() == typeid(const bs_layout*)) {
    given = Values<const bs_layout*>::made(*l);
    return true;
  }
  if (const auto* s = std::any_cast<SparseTensor>(&given);
      s && unset.type() == typeid(SparseVariable)) {
    given = SparseVariable{s->layout, Variable(s->values, true)};
    return true;
  }
  if (const auto* d = std::any_cast<std::vector<LSTMDirection>>(&given);
      d && unset.type() == typeid(std::vector<LSTMDirectionVariables>)) {
    given = with_gradients(*d);
    return true;
  }
  return false;
}

/** The arguments with this tensor wherever one is expected. */
Arguments filled_in(Arguments arguments, const Tensor& with) {
  for (std::any& argument : arguments)
    if (argument.type() == typeid(Tensor))
      argument = with;
    else if (argument.type() == typeid(Variable))
      argument = Variable(with, true);
    else if (argument.type() == typeid(std::vector<Tensor>))
      argument = std::vector<Tensor>{with};
    else if (argument.type() == typeid(std::vector<Variable>))
      argument = std::vector<Variable>{Variable(with, true)};
    else if (argument.type() == typeid(const bs_tensor*))
      argument = Values<const bs_tensor*>::made(with);
    else if (argument.type() == typeid(const bs_layout*))
      argument = Values<const bs_layout*>::made(one_block());
    else if (argument.type() == typeid(LayoutPtr))
      argument = one_block();
    else if (argument.type() == typeid(const bs_attention*) && !handles().attentions.empty())
      argument = static_cast<const bs_attention*>(handles().attentions.back());
    else if (argument.type() == typeid(const bs_transducer*) && !handles().transducers.empty())
      argument = static_cast<const bs_transducer*>(handles().transducers.back());
  return arguments;
}

}  // namespace

Starts::Starts() {
  add_convolutions(all_);
  add_norms(all_);
  add_losses(all_);
  add_sequences(all_);
  add_products(all_);
  add_layers(all_);
  add_recurrent_layers(all_);
  add_attention_layers(all_);
  add_models(all_);
  add_methods(all_);
}

std::vector<Arguments> Starts::of(const std::string& name, const Arguments& unset) const {
  std::vector<Arguments> fitting;
  for (const Tensor& with : {vector(), matrix(), cube(), image()})
    fitting.push_back(filled_in(unset, with));
  const auto [from, to] = all_.equal_range(name.starts_with("bs_") ? name.substr(3) : name);
  for (auto i = from; i != to; ++i) {
    Arguments arguments = i->second;
    bool fits = arguments.size() <= unset.size();
    for (size_t k = 0; fits && k < arguments.size(); ++k) fits = turn_into(unset[k], arguments[k]);
    if (!fits) continue;
    arguments.insert(arguments.end(), unset.begin() + static_cast<ptrdiff_t>(arguments.size()),
                     unset.end());
    fitting.push_back(arguments);
  }
  return fitting;
}

}  // namespace bs::test
