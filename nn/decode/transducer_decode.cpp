#include <bs/nn/decode/transducer_decode.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace bs::decode {

namespace {

std::vector<double> log_softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> x;
  x.reserve(logits.size());
  for (const float v : logits) x.push_back(static_cast<double>(v) / temperature);
  const double top = *std::ranges::max_element(x);
  double sum = 0;
  for (const double v : x) sum += std::exp(v - top);
  const double shift = top + std::log(sum);
  for (double& v : x) v -= shift;
  return x;
}

double log_add(double a, double b) {
  const auto [low, high] = std::minmax(a, b);
  return std::isinf(low) ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace

GreedyDecoder::GreedyDecoder(const TransducerScorer& scorer, const GreedyOptions& options)
    : scorer_(scorer), options_(options), state_(scorer.start()) {
  BS_CHECK(options.max_symbols > 0, "greedy_decode: {} tokens a frame", options.max_symbols);
}

const Hypothesis& GreedyDecoder::advance() {
  for (; frame_ < scorer_.frames(); ++frame_)
    for (int symbols = 0; symbols < options_.max_symbols; ++symbols) {
      const std::vector<double> scores = log_softmax(scorer_.logits(frame_, state_), 1);
      const auto best = std::ranges::max_element(scores);
      const int64_t token = best - scores.begin();
      hypothesis_.log_probability += *best;
      if (token == scorer_.blank()) break;
      hypothesis_.tokens.push_back(token);
      hypothesis_.frames.push_back(frame_);
      state_ = scorer_.next(state_, token);
    }
  return hypothesis_;
}

Hypothesis greedy_decode(const TransducerScorer& scorer, const GreedyOptions& options) {
  return GreedyDecoder(scorer, options).advance();
}

namespace {

/// A hypothesis on its way. Its state is computed when it is first asked for: most never are.
struct Path {
  Hypothesis so_far = {};
  double best_alignment = 0;  ///< log probability of the alignment that `frames` tells
  int symbols = 0;            ///< tokens at this frame
  PredictionPtr state = {}, before = {};

  double score() const { return so_far.log_probability; }
};
using Paths = std::map<std::vector<int64_t>, Path>;

/// Adds a path to a set; one of the same tokens becomes one with it.
void merge(Paths& paths, Path path) {
  const auto [at, added] = paths.try_emplace(path.so_far.tokens, path);
  if (added) return;
  Path& known = at->second;
  const double total = log_add(known.score(), path.score());
  path.symbols = known.symbols = std::min(known.symbols, path.symbols);
  if (!path.state) path.state = known.state;
  if (path.best_alignment > known.best_alignment) known = std::move(path);
  known.so_far.log_probability = total;
}

Paths::iterator likeliest(Paths& paths) {
  return std::ranges::max_element(paths, {}, [](const auto& p) { return p.second.score(); });
}

class BeamSearch {
 public:
  BeamSearch(const TransducerScorer& scorer, const BeamOptions& options)
      : scorer_(scorer), options_(options) {
    merge(kept_, {.state = scorer.start()});
  }
  void advance(int64_t frame);
  std::vector<Hypothesis> result() const;

 private:
  void expand(int64_t frame, Path path, Paths& open, Paths& done) const;
  bool enough(const Paths& done, double score) const {
    return std::ranges::count_if(done, [=](const auto& p) { return p.second.score() > score; }) >=
           options_.width;
  }
  void keep(const Paths& done, int64_t frame);

  const TransducerScorer& scorer_;
  BeamOptions options_;
  Paths kept_;
};

/// Path by a blank to the next frame, and by each token that is likely enough.
void BeamSearch::expand(int64_t frame, Path path, Paths& open, Paths& done) const {
  if (!path.state) path.state = scorer_.next(path.before, path.so_far.tokens.back());
  const auto scores = log_softmax(scorer_.logits(frame, path.state), options_.temperature);
  const double least = options_.class_threshold < 0
                           ? -std::numeric_limits<double>::infinity()
                           : *std::ranges::max_element(scores) - options_.class_threshold;
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    const bool blank = token == scorer_.blank();
    if (!blank && (scores[i] < least || path.symbols == options_.max_symbols)) continue;
    if (std::isinf(scores[i])) continue;
    Path longer = path;
    longer.so_far.log_probability += scores[i];
    longer.best_alignment += scores[i];
    if (blank) {
      merge(done, std::move(longer));
      continue;
    }
    longer.so_far.tokens.push_back(token);
    longer.so_far.frames.push_back(frame);
    ++longer.symbols;
    longer.before = path.state;
    longer.state = nullptr;
    merge(open, std::move(longer));
  }
}

void BeamSearch::advance(int64_t frame) {
  Paths open = std::move(kept_), done;
  for (auto& [tokens, path] : open) path.symbols = 0;
  while (!open.empty()) {
    const auto best = likeliest(open);
    if (enough(done, best->second.score())) break;
    Path path = std::move(best->second);
    open.erase(best);
    expand(frame, std::move(path), open, done);
  }
  keep(done, frame);
}

void BeamSearch::keep(const Paths& done, int64_t frame) {
  std::vector<const Path*> ranked;
  for (const auto& [tokens, path] : done) ranked.push_back(&path);
  std::ranges::stable_sort(ranked, std::greater(), [](const Path* p) { return p->score(); });
  if (ranked.size() > static_cast<size_t>(options_.width))
    ranked.resize(static_cast<size_t>(options_.width));
  const auto a_token = [=](const Path& p) {
    return p.score() /
           static_cast<double>(frame + 1 + static_cast<int64_t>(p.so_far.tokens.size()));
  };
  kept_.clear();
  for (const Path* path : ranked)
    if (options_.score_threshold < 0 ||
        a_token(*path) >= a_token(*ranked.front()) - options_.score_threshold)
      merge(kept_, *path);
}

std::vector<Hypothesis> BeamSearch::result() const {
  std::vector<Hypothesis> all;
  for (const auto& [tokens, path] : kept_) all.push_back(path.so_far);
  std::ranges::stable_sort(all, std::greater(), &Hypothesis::log_probability);
  return all;
}

}  // namespace

std::vector<Hypothesis> beam_decode(const TransducerScorer& scorer, const BeamOptions& options) {
  BS_CHECK(options.width > 0 && options.max_symbols > 0 && options.temperature > 0,
           "beam_decode: width {}, {} tokens a frame, temperature {}", options.width,
           options.max_symbols, options.temperature);
  BeamSearch search(scorer, options);
  for (int64_t frame = 0; frame < scorer.frames(); ++frame) search.advance(frame);
  return search.result();
}

}  // namespace bs::decode
