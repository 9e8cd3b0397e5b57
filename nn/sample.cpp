#include <bs/nn/sample.h>

#include <bs/lib/host_view.h>
#include <bs/lib/philox.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace bs::nn {

namespace {

std::vector<double> values_of(const Tensor& logits) {
  std::vector<double> values;
  const Tensor host = host_view(logits);
  visit_floating("sample", logits.dtype(), [&]<class T>(Type<T>) {
    for_each_value<T>(host, [&](T v) { values.push_back(static_cast<double>(v)); });
  });
  return values;
}

/// A number in [0, 1) of 53 random bits.
double uniform(Generator& generator) {
  const RandomState state = generator.next();
  const PhiloxBlock bits = philox(state.seed, 0, state.offset);
  return static_cast<double>((uint64_t{bits.word[0]} << 32 | bits.word[1]) >> 11) * 0x1p-53;
}

}  // namespace

int64_t sample(const Tensor& logits, const SampleOptions& options, Generator& generator) {
  BS_CHECK(logits.rank() == 1 && logits.numel() > 0, "sample: logits {} are not [classes]",
           logits.shape());
  BS_CHECK(options.temperature >= 0 && options.top_k >= 0, "sample: temperature {}, top k {}",
           options.temperature, options.top_k);
  const std::vector<double> x = values_of(logits);
  BS_CHECK(std::none_of(x.begin(), x.end(), [](double v) { return std::isnan(v); }),
           "sample: some logits are NaN");
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  const double top = x[order.front()];
  BS_CHECK(std::isfinite(top), "sample: the largest logit is {}", top);
  if (options.temperature == 0) return static_cast<int64_t>(order.front());

  const size_t all = order.size();
  order.resize(options.top_k > 0 ? std::min(all, static_cast<size_t>(options.top_k)) : all);
  std::vector<double> reached;  // the running sum of weights
  reached.reserve(order.size());
  double sum = 0;
  for (size_t i : order) reached.push_back(sum += std::exp((x[i] - top) / options.temperature));
  const auto drawn = std::upper_bound(reached.begin(), reached.end(), uniform(generator) * sum);
  const auto at = std::min<size_t>(static_cast<size_t>(drawn - reached.begin()), order.size() - 1);
  return static_cast<int64_t>(order[at]);
}

namespace {

using Sequences = std::vector<std::vector<int64_t>>;

/// Sequences of tokens that a model reads side by side.
class Reader {
 public:
  Reader(const SparseTransformer& model, int64_t batch, const GenerateOptions& options)
      : model_(model),
        context_(model.options().context),
        slide_(options.slide),
        caches_(model.make_caches(batch, options.page)) {}

  /// Logits [batch, classes] of what follows the first `length` tokens.
  Tensor next(const Sequences& tokens, int64_t length) {
    const NoGrad no_grad;
    const EvalMode eval;
    if (length > context_ && slide_ == 0) return anew(tokens, length);
    if (caches_.front().length() == 0) first_ = std::max<int64_t>(0, length - context_);
    if (length - first_ > context_) {
      for (KVCache& cache : caches_) cache.drop(slide_);
      first_ += slide_;
    }
    const int64_t read = first_ + caches_.front().length();
    const Variable logits = model_.forward(input(tokens, read, length, length - read), caches_);
    return logits.data().select(1, length - read - 1);
  }

 private:
  /// The context moves on, and what was read has other places then. The input is always as long as
  /// the context. A pattern may be another one for another length, and this is the one that was
  /// learnt.
  Tensor anew(const Sequences& tokens, int64_t length) const {
    const Variable logits = model_.forward(input(tokens, length - context_, length, context_));
    return logits.data().select(1, context_ - 1);
  }
  Tensor input(const Sequences& tokens, int64_t begin, int64_t end, int64_t width) const {
    std::vector<int64_t> all;
    for (const std::vector<int64_t>& of : tokens)
      all.insert(all.end(), of.begin() + begin, of.begin() + end);
    const auto batch = static_cast<int64_t>(tokens.size());
    return Tensor::from(std::span<const int64_t>(all), {batch, width})
        .to(model_.head.weight.device());
  }

  const SparseTransformer& model_;
  int64_t context_, slide_;
  int64_t first_ = 0;  // the token that comes first in the caches
  std::vector<KVCache> caches_;
};

void check_generate(const SparseTransformer& model, const Sequences& prompts,
                    const GenerateOptions& options) {
  for (const std::vector<int64_t>& prompt : prompts)
    BS_CHECK(!prompt.empty(), "generate: an empty prompt");
  BS_CHECK(model.options().causal, "generate: the model is not causal");
  BS_CHECK(options.slide == 0 || model.options().rope_base > 0,
           "generate: a context that slides by {} tokens, of a model without RoPE", options.slide);
  BS_CHECK(options.slide >= 0 && options.slide < model.options().context &&
               (options.page == 0 || options.slide % options.page == 0),
           "generate: a context of {} tokens in pages of {} cannot slide by {}",
           model.options().context, options.page, options.slide);
}

/// Prompts and what continues them; `made(token)` sees each new one.
template <class Made>
Sequences continued(const SparseTransformer& model, const Sequences& prompts,
                    const GenerateOptions& options, Generator& generator, const Made& made) {
  check_generate(model, prompts, options);
  Sequences tokens = prompts;
  if (prompts.empty() || options.count <= 0) return tokens;
  Reader reader(model, static_cast<int64_t>(prompts.size()), options);
  size_t length = prompts.front().size(), end = 0;
  for (const std::vector<int64_t>& prompt : prompts) {
    length = std::min(length, prompt.size());
    end = std::max(end, prompt.size() + static_cast<size_t>(options.count));
  }
  for (; length < end; ++length) {
    const Tensor logits = reader.next(tokens, static_cast<int64_t>(length));
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].size() > length) continue;  // of a longer prompt
      const bool more = length < prompts[i].size() + static_cast<size_t>(options.count);
      const int64_t token =
          more ? sample(logits.select(0, static_cast<int64_t>(i)), options.sample, generator) : 0;
      tokens[i].push_back(token);
      if (more) made(token);
    }
  }
  return tokens;
}

std::vector<int64_t> behind(const std::vector<int64_t>& prompt, const std::vector<int64_t>& tokens,
                            int64_t count) {
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size());
  return {begin, begin + std::max<int64_t>(count, 0)};
}

}  // namespace

std::vector<int64_t> generate(const SparseTransformer& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, Generator& generator) {
  const auto made = [&](int64_t token) {
    if (options.on_token) options.on_token(token);
  };
  return behind(prompt, continued(model, {prompt}, options, generator, made).front(),
                options.count);
}

std::vector<std::vector<int64_t>> generate_batch(const SparseTransformer& model,
                                                 const std::vector<std::vector<int64_t>>& prompts,
                                                 const GenerateOptions& options,
                                                 Generator& generator) {
  BS_CHECK(!options.on_token, "generate_batch: on_token cannot tell sequences apart");
  Sequences tokens = continued(model, prompts, options, generator, [](int64_t) {});
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = behind(prompts[i], tokens[i], options.count);
  return tokens;
}

}  // namespace bs::nn
