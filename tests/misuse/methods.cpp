// What list_functions does not find in headers, since it needs an object first: methods of tensors,
// layouts and variables; loaders, optimisers, a module's load_state_dict and generate. A new one is
// listed here by hand.
#include <bs/autograd/binary.h>
#include <bs/kernels/copy.h>
#include <bs/nn/data/data_loader.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/data/speech_loader.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/adafactor.h>
#include <bs/nn/optim/adam.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/ema.h>
#include <bs/nn/optim/lamb.h>
#include <bs/nn/optim/lion.h>
#include <bs/nn/optim/muon.h>
#include <bs/nn/optim/rmsprop.h>
#include <bs/nn/optim/sgd.h>
#include <bs/nn/rnnt.h>
#include <bs/nn/sample.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/misuse/misuse.h>

#include <cstring>
#include <stdexcept>

namespace bs::test {
namespace {

/// Lists a lambda that captures nothing.
template <class F>
Listed method(const char* header, const char* name, F f) {
  return {header, name, +f};
}

const Listed of_tensors[] = {
    method("lib/tensor.h", "Tensor::empty",
           [](const Shape& shape, DType dtype, Device device) {
             clone(Tensor::empty(shape, dtype, device).slice(0, 0, 0));
           }),
    method("lib/tensor.h", "Tensor::view",
           [](const Tensor& x, const Shape& shape) { return x.view(shape); }),
    method("lib/tensor.h", "Tensor::can_view",
           [](const Tensor& x, const Shape& shape) { return x.can_view(shape); }),
    method("lib/tensor.h", "Tensor::permute",
           [](const Tensor& x, const Dims& axes) { return x.permute(axes); }),
    method("lib/tensor.h", "Tensor::transpose",
           [](const Tensor& x, int a, int b) { return x.transpose(a, b); }),
    method("lib/tensor.h", "Tensor::slice",
           [](const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
             return x.slice(axis, begin, end, step);
           }),
    method("lib/tensor.h", "Tensor::select",
           [](const Tensor& x, int axis, int64_t index) { return x.select(axis, index); }),
    method("lib/tensor.h", "Tensor::operator[]",
           [](const Tensor& x, int64_t index) { return x[index]; }),
    method("lib/tensor.h", "Tensor::unsqueeze",
           [](const Tensor& x, int axis) { return x.unsqueeze(axis); }),
    method("lib/tensor.h", "Tensor::squeeze",
           [](const Tensor& x, int axis) { return x.squeeze(axis); }),
    method("lib/tensor.h", "Tensor::flatten",
           [](const Tensor& x, int from, int to) { return x.flatten(from, to); }),
    method("lib/tensor.h", "Tensor::expand",
           [](const Tensor& x, const Shape& shape) { return x.expand(shape); }),
    method("lib/tensor.h", "Tensor::as_strided",
           [](const Tensor& x, const Shape& shape, const Dims& strides, int64_t offset) {
             return x.as_strided(shape, strides, offset);
           }),
    method("lib/tensor.h", "Tensor::reshape",
           [](const Tensor& x, const Shape& shape) { return x.reshape(shape); }),
    method("lib/tensor.h", "Tensor::clone", [](const Tensor& x) { return x.clone(); }),
    method("lib/tensor.h", "Tensor::to",
           [](const Tensor& x, Device device) { return x.to(device); }),
    method("lib/tensor.h", "Tensor::item", [](const Tensor& x) { return x.item(); }),
    method("lib/tensor.h", "Tensor::size", [](const Tensor& x, int axis) { return x.size(axis); }),
    method("lib/tensor.h", "Tensor::device", [](const Tensor& x) { return x.device().index(); }),
    method("lib/tensor.h", "Tensor::is_contiguous",
           [](const Tensor& x) { return x.is_contiguous(); }),
    method("lib/tensor.h", "Tensor::data",
           [](const Tensor& x) { return x.data<float>() != nullptr; }),
    method("lib/tensor.h", "Tensor::shares_storage",
           [](const Tensor& x, const Tensor& y) { return x.shares_storage(y); }),
    method("lib/tensor.h", "copy_bytes",
           [](const Tensor& from, const Tensor& to) { copy_bytes(from, to); }),
    method("lib/tensor.h", "to_string", [](const Tensor& x) { return to_string(x); }),
};

const Listed of_layouts[] = {
    method("lib/layout.h", "Layout::from_mask",
           [](const Tensor& mask, int block) { to_string(*Layout::from_mask(mask, block)); }),
    method("lib/layout.h", "Layout::from_blocks",
           [](int heads, int rows, int cols, int block, const std::vector<BlockIndex>& blocks) {
             to_string(*Layout::from_blocks(heads, rows, cols, block, blocks));
           }),
    method("lib/layout.h", "LayoutArrays",
           [](int heads, int rows, int cols, int block, int nnz, Device device) {
             const LayoutArrays arrays(
                 {.block = block, .heads = heads, .rows = rows, .cols = cols, .nnz = nnz}, device);
           }),
    method("lib/layout.h", "Layout::nnz",
           [](const Layout& layout, int head) { return layout.nnz(head); }),
    method("lib/layout.h", "Layout::contains",
           [](const Layout& layout, int head, int row, int col) {
             return layout.contains(head, row, col);
           }),
    method("lib/layout.h", "Layout::transpose",
           [](const Layout& layout) { to_string(*layout.transpose()); }),
    method("lib/layout.h", "Layout::mask", [](const Layout& layout) { return layout.mask(); }),
    method("lib/layout.h", "Layout::view",
           [](const Layout& layout, Device device) { return layout.view(device).nnz; }),
    method("lib/layout.h", "to_string",
           [](const Layout& layout, int width) { return to_string(layout, width); }),
};

const Listed of_variables[] = {
    method("autograd/variable.h", "Variable",
           [](const Tensor& x, bool requires_grad) { return Variable(x, requires_grad); }),
    method("autograd/variable.h", "Variable::backward",
           [](const Variable& x, const Tensor& gradient) {
             (x * x).backward(gradient);
             return x.grad();
           }),
    method("autograd/variable.h", "Variable::set_grad",
           [](const Variable& x, const Tensor& gradient) {
             x.set_grad(gradient);
             const Tensor kept = x.grad();
             x.zero_grad();
             return kept;
           }),
    method("autograd/variable.h", "Variable::set_data",
           [](const Variable& x, const Tensor& data) { x.set_data(data); }),
    method("autograd/variable.h", "Variable::set_requires_grad",
           [](const Variable& x, bool wanted) { x.set_requires_grad(wanted); }),
    method("autograd/variable.h", "Variable::operator[]",
           [](const Variable& x, int64_t index) { return x[index]; }),
    method("autograd/variable.h", "Variable::reshape",
           [](const Variable& x, const Shape& shape) { return x.reshape(shape); }),
    method("autograd/variable.h", "Variable::item", [](const Variable& x) { return x.item(); }),
    method("autograd/variable.h", "Variable::detach", [](const Variable& x) { return x.detach(); }),
};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

/// Calls `work`; where it throws, the tensors must be what they were.
template <class Work>
void changes_all_or_nothing(const std::vector<Tensor>& tensors, const Work& work) {
  std::vector<Tensor> before;
  for (const Tensor& t : tensors) before.push_back(clone(t));
  try {
    work();
  } catch (const Error&) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!same_bytes(tensors[i], before[i]))
        throw std::logic_error("has failed and changed a tensor");
    throw;
  }
}

/// A step of an optimiser on one parameter, at another rate than that of its options.
template <class Rule, class Options>
void step(const Tensor& weight, const Tensor& gradient, const Options& options,
          const GradientClip& clip, double rate) {
  const Variable parameter(clone(weight), true);
  using Group = optim::OptimizerGroup<Options>;
  Rule rule(std::vector<Group>{{.parameters = {{"weight", parameter}}, .options = options}});
  parameter.set_grad(gradient);
  std::vector<Tensor> all{parameter.data()};
  for (const optim::NamedTensor& state : rule.state()) all.push_back(state.tensor);
  changes_all_or_nothing(all, [&] {
    rule.set_learning_rate(rate);
    rule.step(clip);
  });
}

const Listed of_optimisers[] = {
    method("nn/optim/adafactor.h", "Adafactor", step<optim::Adafactor, AdafactorOptions>),
    method("nn/optim/adam.h", "Adam", step<optim::Adam, AdamOptions>),
    method("nn/optim/adamw.h", "AdamW", step<optim::AdamW, AdamWOptions>),
    method("nn/optim/lamb.h", "Lamb", step<optim::Lamb, LambOptions>),
    method("nn/optim/lion.h", "Lion", step<optim::Lion, LionOptions>),
    method("nn/optim/muon.h", "Muon", step<optim::Muon, MuonOptions>),
    method("nn/optim/rmsprop.h", "RMSprop", step<optim::RMSprop, RMSpropOptions>),
    method("nn/optim/sgd.h", "Sgd", step<optim::Sgd, SgdOptions>),
    method("nn/optim/ema.h", "Ema",
           [](double decay, int64_t step) {
             const nn::Linear layer({.in = 3, .out = 2});
             const optim::Ema average(layer, decay);
             average.update(step);
             const optim::AverageScope scope(average);
           }),
};

LayoutPtr causal(const patterns::Size& size) { return patterns::dense(size, {.causal = true}); }

const Listed of_modules[] = {
    method("nn/state_dict.h", "load_state_dict",
           [](const Tensor& weight, const std::map<std::string, Tensor>& others, bool strict,
              const std::string& prefix) {
             nn::Linear layer({.in = 8, .out = 8, .bias = false});
             nn::StateDict state(others.begin(), others.end());
             state[prefix + "weight"] = weight;
             changes_all_or_nothing({layer.weight.data()}, [&] {
               nn::load_state_dict(layer, state, {.strict = strict, .prefix = prefix});
             });
           }),
    method("nn/sample.h", "generate",
           [](const std::vector<int64_t>& prompt, int64_t count, const nn::SampleOptions& sample,
              int64_t page, int64_t slide, bool rope) {
             const nn::SparseTransformer model({.vocabulary = 9,
                                                .context = 8,
                                                .width = 16,
                                                .layers = 1,
                                                .heads = 2,
                                                .block = 8,
                                                .pattern = causal,
                                                .rope_base = rope ? 10000.0 : 0.0});
             nn::generate(model, prompt,
                          {.count = std::min<int64_t>(count, 10),  // more is no mistake
                           .sample = sample,
                           .page = page,
                           .slide = slide});
           }),
};

/// A batch from a place of the series, which has to be one that can be saved and sought again.
template <class Loader>
auto batch_at(Loader& loader, int64_t cursor) {
  loader.seek(cursor);
  auto batch = loader.next();
  loader.seek(loader.cursor());
  return batch;
}

const Listed of_loaders[] = {
    method("nn/data/loader.h", "Loader",
           [](const std::string& text, const data::LoaderOptions& options, int64_t cursor) {
             data::Loader loader(data::TextDataset::from(text), options);
             return batch_at(loader, cursor).inputs;
           }),
    method("nn/data/loader.h", "windows",
           [](const std::string& text, const std::vector<int64_t>& starts, int64_t context,
              DType dtype, Device device) {
             return data::windows(data::TextDataset::from(text), starts, context, dtype, device)
                 .targets;
           }),
    method("nn/data/data_loader.h", "DataLoader",
           [](const std::vector<Tensor>& tensors, int64_t batch, bool shuffle, bool drop_last,
              int prefetch, int workers, int64_t cursor) {
             data::DataLoader loader(data::tensor_dataset(tensors), {.batch = batch,
                                                                     .shuffle = shuffle,
                                                                     .drop_last = drop_last,
                                                                     .prefetch = prefetch,
                                                                     .workers = workers});
             return batch_at(loader, cursor);
           }),
    method("nn/rnnt.h", "packed_rows",
           [](const Tensor& lengths, const Tensor& target_lengths, int split) {
             const nn::RNNT model({.features = 3,
                                   .encoder_hidden = 4,
                                   .prediction_hidden = 4,
                                   .joint = 4,
                                   .classes = 5});
             return model.packed_rows(lengths, target_lengths, split);
           }),
    method("nn/data/speech_loader.h", "SpeechLoader",
           [](const std::vector<int>& lengths, const data::SpeechLoaderOptions& options, int stack,
              int stride, int64_t cursor) {
             auto all = std::make_shared<data::Utterances>();
             for (const int length : lengths)
               all->push_back({.samples = std::vector<float>(
                                   static_cast<size_t>(std::clamp(length, 0, 5000)), .1F),
                               .tokens = {length}});
             data::SpeechLoader loader(
                 all,
                 data::SpeechFeatures(
                     {.mel = {.rate = 8000, .mels = 4}, .stack = stack, .stride = stride}),
                 options);
             return batch_at(loader, cursor).features;
           }),
    method(
        "nn/data/speech_features.h", "SpeechFeatures",
        [](const data::SpeechFeatureOptions& options, const std::vector<float>& mean, int length) {
          data::SpeechFeatures features(options, data::FeatureStatistics{mean, mean});
          const std::vector<float> samples(static_cast<size_t>(std::clamp(length, 0, 20000)));
          features.whole(samples);
        }),
};

}  // namespace
}  // namespace bs::test
