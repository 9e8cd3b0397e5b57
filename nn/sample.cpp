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

/// The logits of the token that follows `tokens`. The sequence is always as long as the context: a
/// pattern may be another one for another length, and this is the one that was learnt.
Tensor next_logits(const SparseTransformer& model, const std::vector<int64_t>& tokens) {
  const NoGrad no_grad;
  const EvalMode eval;
  const int64_t context = model.options().context;
  const int64_t length = std::min(static_cast<int64_t>(tokens.size()), context);
  std::vector<int64_t> window(tokens.end() - length, tokens.end());
  window.resize(static_cast<size_t>(context));
  const Tensor input = Tensor::from(std::span<const int64_t>(window), {1, context});
  const Variable logits = model.forward(input.to(model.head.weight.device()));
  return logits.data().select(0, 0).select(0, length - 1);
}

/// The logits of the token that follows those in the caches and `tokens`.
Tensor next_logits(const SparseTransformer& model, std::span<const int64_t> tokens,
                   std::vector<KVCache>& caches) {
  const NoGrad no_grad;
  const EvalMode eval;
  const auto count = static_cast<int64_t>(tokens.size());
  const Tensor input = Tensor::from(tokens, {1, count});
  const Variable logits = model.forward(input.to(model.head.weight.device()), caches);
  return logits.data().select(0, 0).select(0, count - 1);
}

}  // namespace

std::vector<int64_t> generate(const SparseTransformer& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, Generator& generator) {
  BS_CHECK(!prompt.empty(), "generate: an empty prompt");
  BS_CHECK(model.options().causal, "generate: the model is not causal");
  std::vector<int64_t> tokens = prompt;
  std::vector<KVCache> caches = model.make_caches(1, options.page);
  for (int64_t i = 0; i < options.count; ++i) {
    // A context that is full moves on, and what was read has other places then.
    const bool full = static_cast<int64_t>(tokens.size()) > model.options().context;
    const auto read = static_cast<size_t>(full ? 0 : caches.front().length());
    const std::span unread = std::span(tokens).subspan(read);
    tokens.push_back(sample(full ? next_logits(model, tokens) : next_logits(model, unread, caches),
                            options.sample, generator));
    if (options.on_token) options.on_token(tokens.back());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

}  // namespace bs::nn
