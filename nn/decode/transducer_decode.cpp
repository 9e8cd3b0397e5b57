#include <bs/nn/decode/transducer_decode.h>

#include <bs/lib/check.h>
#include <bs/nn/decode/log_add.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

namespace bs::decode {

namespace {

/// Of the logits at a frame, which must be numbers: a search that compares NaN never ends.
std::vector<double> log_softmax(const char* op, const TransducerScorer& scorer, int64_t frame,
                                const PredictionPtr& state, double temperature) {
  const std::vector<float> logits = scorer.logits(frame, state);
  BS_CHECK(scorer.blank() >= 0 && static_cast<size_t>(scorer.blank()) < logits.size(),
           "{}: the blank is class {} of {}", op, scorer.blank(), logits.size());
  std::vector<double> x;
  x.reserve(logits.size());
  for (const float v : logits) x.push_back(static_cast<double>(v) / temperature);
  const double top = *std::ranges::max_element(x);
  double sum = 0;
  for (const double v : x) sum += std::exp(v - top);
  const double shift = top + std::log(sum);
  BS_CHECK(std::isfinite(shift), "{}: logits at frame {} hold NaN, infinity, or -infinity alone",
           op, frame);
  for (double& v : x) v -= shift;
  return x;
}

}  // namespace

GreedyDecoder::GreedyDecoder(const TransducerScorer& scorer, const GreedyOptions& options)
    : scorer_(scorer), options_(options), state_(scorer.start()) {
  BS_CHECK(options.max_symbols > 0, "greedy_decode: {} tokens a frame", options.max_symbols);
}

const Hypothesis& GreedyDecoder::advance() {
  for (; frame_ < scorer_.frames(); ++frame_)
    for (int symbols = 0; symbols < options_.max_symbols; ++symbols) {
      const std::vector<double> scores = log_softmax("greedy_decode", scorer_, frame_, state_, 1);
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

/// A hypothesis on its way. Its state is computed when it is first asked for: most never are. Null
/// is a state like any other, of a model that knows none.
struct Path {
  Hypothesis so_far = {};
  int symbols = 0;     ///< tokens at this frame
  int64_t found = 0;   ///< when: of equally likely ones the first comes first
  bool waits = false;  ///< whether the state is still to be computed, from that before it
  PredictionPtr state = {}, before = {};

  double score() const { return so_far.log_probability; }
  /// What is left of the score a token.
  double score_a_token() const { return score() / static_cast<double>(so_far.tokens.size() + 1); }
};
bool likelier(const Path& a, const Path& b) {
  return a.score() != b.score() ? a.score() > b.score() : a.found < b.found;
}
/// By what makes hypotheses one.
using Paths = std::map<std::string, Path>;

class BeamSearch {
 public:
  BeamSearch(const TransducerScorer& scorer, const BeamOptions& options)
      : scorer_(scorer), options_(options) {
    merge(kept_, {.state = scorer.start()}, false);
  }
  void advance(int64_t frame);
  std::vector<Hypothesis> result() const;

 private:
  std::string key(const std::vector<int64_t>& tokens) const;
  void merge(Paths& paths, Path path, bool first_stays);
  std::vector<int64_t> classes(const std::vector<double>& scores) const;
  void expand(int64_t frame, Path path, Paths& open, Paths& done);
  bool enough(const Paths& done, double score) const {
    return std::ranges::count_if(done, [=](const auto& p) { return p.second.score() > score; }) >=
           options_.width;
  }
  void keep(const Paths& done);

  const TransducerScorer& scorer_;
  BeamOptions options_;
  Paths kept_;
  int64_t found_ = 0;
};

std::string BeamSearch::key(const std::vector<int64_t>& tokens) const {
  if (options_.text) return options_.text(tokens);
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int64_t)};
}

/// Adds a path to a set; one that says the same becomes one with it.
void BeamSearch::merge(Paths& paths, Path path, bool first_stays) {
  path.found = found_++;
  const auto [at, added] = paths.try_emplace(key(path.so_far.tokens), path);
  if (added) return;
  Path& known = at->second;
  const double total = log_add(known.score(), path.score());
  path.symbols = known.symbols = std::min(known.symbols, path.symbols);
  path.found = known.found;
  if (!first_stays && path.score() > known.score()) known = std::move(path);
  known.so_far.log_probability = total;
}

/// Those to try, the likeliest first, the blank among them.
std::vector<int64_t> BeamSearch::classes(const std::vector<double>& scores) const {
  const auto score = [&](int64_t i) { return scores[static_cast<size_t>(i)]; };
  std::vector<int64_t> all(scores.size());
  std::iota(all.rbegin(), all.rend(), int64_t{0});
  std::ranges::stable_sort(all, std::greater(), score);
  const double least = score(all.front()) - options_.class_threshold;
  const bool few = options_.classes > 0 && static_cast<size_t>(options_.classes) < all.size();
  const auto end = few ? all.begin() + options_.classes : all.end();
  std::vector<int64_t> tried;
  for (auto i = all.begin(); i != end; ++i)
    if (!(options_.class_threshold >= 0 && score(*i) < least) && !std::isinf(score(*i)))
      tried.push_back(*i);
  const int64_t blank = scorer_.blank();
  if (std::ranges::find(tried, blank) == tried.end() && !std::isinf(score(blank)))
    tried.push_back(blank);
  return tried;
}

/// Path by a blank to the next frame, and by each token that is likely enough.
void BeamSearch::expand(int64_t frame, Path path, Paths& open, Paths& done) {
  if (path.waits) path.state = scorer_.next(path.before, path.so_far.tokens.back());
  path.waits = false;
  const auto scores = log_softmax("beam_decode", scorer_, frame, path.state, options_.temperature);
  for (const int64_t token : classes(scores)) {
    const bool blank = token == scorer_.blank();
    if (!blank && path.symbols == options_.max_symbols) continue;
    Path longer = path;
    longer.so_far.log_probability += scores[static_cast<size_t>(token)];
    if (!blank) {
      longer.so_far.tokens.push_back(token);
      longer.so_far.frames.push_back(frame);
      ++longer.symbols;
      longer.before = path.state;
      longer.state = nullptr;
      longer.waits = true;
    }
    merge(blank ? done : open, std::move(longer), blank);
  }
}

void BeamSearch::advance(int64_t frame) {
  Paths open = std::move(kept_), done;
  for (auto& [text, path] : open) path.symbols = 0;
  while (!open.empty()) {
    const auto best = std::ranges::min_element(
        open, [](const auto& a, const auto& b) { return likelier(a.second, b.second); });
    if (enough(done, best->second.score())) break;
    Path path = std::move(best->second);
    open.erase(best);
    expand(frame, std::move(path), open, done);
  }
  keep(done);
}

void BeamSearch::keep(const Paths& done) {
  std::vector<const Path*> ranked;
  for (const auto& [text, path] : done) ranked.push_back(&path);
  std::ranges::sort(ranked, [](const Path* a, const Path* b) { return likelier(*a, *b); });
  if (ranked.size() > static_cast<size_t>(options_.width))
    ranked.resize(static_cast<size_t>(options_.width));
  double best = -std::numeric_limits<double>::infinity();
  for (const Path* path : ranked) best = std::max(best, path->score_a_token());
  kept_.clear();
  for (const Path* path : ranked)
    if (options_.score_threshold < 0 || path->score_a_token() >= best - options_.score_threshold)
      merge(kept_, *path, true);
}

std::vector<Hypothesis> BeamSearch::result() const {
  std::vector<const Path*> ranked;
  ranked.reserve(kept_.size());
  for (const auto& [text, path] : kept_) ranked.push_back(&path);
  std::ranges::sort(ranked, [](const Path* a, const Path* b) { return likelier(*a, *b); });
  std::vector<Hypothesis> all;
  all.reserve(ranked.size());
  for (const Path* path : ranked) all.push_back(path->so_far);
  return all;
}

}  // namespace

std::vector<Hypothesis> beam_decode(const TransducerScorer& scorer, const BeamOptions& options) {
  BS_CHECK(options.width > 0 && options.max_symbols > 0 && options.temperature > 0,
           "beam_decode: width {}, {} tokens a frame, temperature {}", options.width,
           options.max_symbols, options.temperature);
  BS_CHECK(options.classes >= 0, "beam_decode: {} classes to try", options.classes);
  BeamSearch search(scorer, options);
  for (int64_t frame = 0; frame < scorer.frames(); ++frame) search.advance(frame);
  return search.result();
}

}  // namespace bs::decode
