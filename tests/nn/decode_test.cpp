#include <bs/lib/check.h>
#include <bs/nn/data/draws.h>
#include <bs/nn/decode/error_rate.h>
#include <bs/nn/decode/lattice_posterior.h>
#include <bs/nn/decode/transducer_decode.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

using namespace bs;
using namespace bs::test;
using decode::Errors;
using decode::Hypothesis;
using decode::PredictionPtr;

namespace {

using Tokens = std::vector<int64_t>;

struct TokensState : decode::PredictionState {
  Tokens tokens;
};
const Tokens& tokens_of(const PredictionPtr& state) {
  return dynamic_cast<const TokensState&>(*state).tokens;
}

/// Logits by a function of the frame and the tokens before.
class TableScorer : public decode::TransducerScorer {
 public:
  using Logits = std::function<std::vector<float>(int64_t frame, const Tokens&)>;
  TableScorer(int64_t frames, int64_t blank, Logits logits)
      : frames_(frames), blank_(blank), logits_(std::move(logits)) {}
  int64_t frames() const override { return frames_; }
  int64_t blank() const override { return blank_; }
  PredictionPtr start() const override { return std::make_shared<TokensState>(); }
  PredictionPtr next(const PredictionPtr& state, int64_t token) const override {
    auto longer = std::make_shared<TokensState>(dynamic_cast<const TokensState&>(*state));
    longer->tokens.push_back(token);
    return longer;
  }
  std::vector<float> logits(int64_t frame, const PredictionPtr& state) const override {
    return logits_(frame, tokens_of(state));
  }
  int64_t frames_;

 private:
  int64_t blank_;
  Logits logits_;
};

/// A model that knows nothing of the tokens before: its states are null.
struct Stateless : decode::TransducerScorer {
  int64_t frames() const override { return 2; }
  int64_t blank() const override { return 0; }
  PredictionPtr start() const override { return nullptr; }
  PredictionPtr next(const PredictionPtr&, int64_t) const override { return nullptr; }
  std::vector<float> logits(int64_t, const PredictionPtr&) const override { return same; }
  inline static const std::vector<float> same = {1, 2, 0};
};

/// Says 1, 2, 3, ... with a blank after each, whatever it is asked.
TableScorer counting(int64_t frames, int64_t tokens) {
  return {frames, 0, [calls = 0, tokens](int64_t, const Tokens&) mutable {
            std::vector<float> logits(static_cast<size_t>(tokens) + 1, -100);
            const int call = calls++;
            logits[call % 2 == 1 ? 0 : static_cast<size_t>(1 + call / 2 % tokens)] = 10;
            return logits;
          }};
}

/// Random logits of two tokens and a blank (2), which tokens never follow after `longest`.
TableScorer random_scorer(uint64_t seed, size_t longest) {
  return {3, 2, [=](int64_t frame, const Tokens& tokens) {
            uint64_t key = seed * 64 + static_cast<uint64_t>(frame);
            for (const int64_t token : tokens) key = 3 * key + 1 + static_cast<uint64_t>(token);
            data::Draws draws(key, 1);
            std::vector<float> logits;
            for (int i = 0; i < 3; ++i) logits.push_back(static_cast<float>(4 * draws.uniform()));
            if (tokens.size() == longest) logits[0] = logits[1] = -INFINITY;
            return logits;
          }};
}

/// Probability of every text: the sum over its alignments, each walked by itself.
void walk(const TableScorer& scorer, int64_t frame, const PredictionPtr& state, double probability,
          std::map<Tokens, double>& total) {
  if (frame == scorer.frames()) {
    total[tokens_of(state)] += probability;
    return;
  }
  const auto logits = scorer.logits(frame, state);
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = probability * std::exp(static_cast<double>(logits[i])) / sum;
    const auto token = static_cast<int64_t>(i);
    if (p == 0) continue;
    if (token == scorer.blank()) {
      walk(scorer, frame + 1, state, p, total);
    } else {
      walk(scorer, frame, scorer.next(state, token), p, total);
    }
  }
}

}  // namespace

TEST_CASE("error rates: counts of each kind") {
  using decode::character_errors, decode::word_errors;
  CHECK(character_errors("kitten", "sitting") == Errors{2, 1, 0, 6});
  CHECK(character_errors("kitten", "sitting").rate() == 0.5);
  CHECK(character_errors("abc", "") == Errors{0, 0, 3, 3});
  CHECK(character_errors("", "ab") == Errors{0, 2, 0, 0});
  CHECK(std::isinf(character_errors("", "ab").rate()));
  CHECK(character_errors("", "").rate() == 0);
  CHECK(character_errors("žába", "zába") == Errors{1, 0, 0, 4});
  CHECK(word_errors("press one to  exit", " press to exit now") == Errors{0, 1, 1, 4});
  CHECK(word_errors("a b", "b a").count() == 2);
  Errors sum = word_errors("a b", "a c");
  sum += word_errors("a", "a");
  CHECK(sum == Errors{1, 0, 0, 3});
}

TEST_CASE("greedy_decode: a token a frame from a model that counts its calls") {
  const auto scorer = counting(4, 6);
  const Hypothesis h = decode::greedy_decode(scorer);
  CHECK(h.tokens == Tokens{1, 2, 3, 4});
  CHECK(h.frames == Tokens{0, 1, 2, 3});
  CHECK(h.log_probability == doctest::Approx(0));
}

TEST_CASE("greedy_decode: bounded tokens a frame, no frames, and frames that come later") {
  const TableScorer talker(2, 0, [](int64_t, const Tokens&) { return std::vector<float>{0, 1}; });
  CHECK(decode::greedy_decode(talker).tokens.size() == 60);
  CHECK(decode::greedy_decode(talker, {.max_symbols = 3}).frames == Tokens{0, 0, 0, 1, 1, 1});
  CHECK_THROWS_WITH_AS(decode::greedy_decode(talker, {.max_symbols = 0}),
                       "greedy_decode: 0 tokens a frame", Error);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TableScorer scorer = random_scorer(seed, 4);
    const Hypothesis whole = decode::greedy_decode(scorer);
    scorer.frames_ = 0;
    decode::GreedyDecoder decoder(scorer);
    CHECK(decoder.advance().tokens.empty());
    for (scorer.frames_ = 1; scorer.frames_ <= 3; ++scorer.frames_) decoder.advance();
    CHECK(decoder.hypothesis().tokens == whole.tokens);
    CHECK(decoder.hypothesis().frames == whole.frames);
  }
}

TEST_CASE("decoders refuse logits that are no numbers, and a blank that is no class") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector<float>{0, std::nanf(""), 1}, {0, infinity, 1}, {-infinity, -infinity}}) {
    const TableScorer scorer(2, 0, [&](int64_t, const Tokens&) { return logits; });
    CHECK_THROWS_WITH_AS(decode::beam_decode(scorer),
                         "beam_decode: logits at frame 0 hold NaN, infinity, or -infinity alone",
                         Error);
    CHECK_THROWS_WITH_AS(decode::greedy_decode(scorer),
                         "greedy_decode: logits at frame 0 hold NaN, infinity, or -infinity alone",
                         Error);
  }
  for (const int64_t blank : {-1, 2}) {
    const TableScorer scorer(1, blank,
                             [](int64_t, const Tokens&) { return std::vector<float>(2); });
    CHECK_THROWS_AS(decode::beam_decode(scorer), Error);
    CHECK_THROWS_AS(decode::greedy_decode(scorer), Error);
  }
  const TableScorer silent(1, 0, [](int64_t, const Tokens&) { return std::vector<float>(); });
  CHECK_THROWS_WITH_AS(decode::greedy_decode(silent), "greedy_decode: the blank is class 0 of 0",
                       Error);
}

TEST_CASE("beam_decode: with nothing cut off, the probability of every text") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TableScorer scorer = random_scorer(seed, 3);
    std::map<Tokens, double> expected;
    walk(scorer, 0, scorer.start(), 1, expected);
    const auto all = decode::beam_decode(scorer, {.width = 1000});
    REQUIRE(all.size() == expected.size());
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(std::exp(all[i].log_probability) == doctest::Approx(expected.at(all[i].tokens)));
      CHECK(all[i].frames.size() == all[i].tokens.size());
      CHECK(std::ranges::is_sorted(all[i].frames));
      if (i > 0) CHECK(all[i].log_probability <= all[i - 1].log_probability);
    }
  }
}

TEST_CASE("beam_decode: finds texts whose best alignment is not the best of all") {
  int better = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const TableScorer scorer = random_scorer(seed, 3);
    std::map<Tokens, double> expected;
    walk(scorer, 0, scorer.start(), 1, expected);
    const auto beam = decode::beam_decode(scorer, {.width = 4});
    CHECK(beam.size() <= 4);
    const double found = expected.at(beam.front().tokens);
    const double greedy = expected.at(decode::greedy_decode(scorer).tokens);
    CHECK(std::exp(beam.front().log_probability) <= found * (1 + 1e-9));
    better += found > greedy * (1 + 1e-9);
    CHECK(found >= 0.5 * greedy);
  }
  CHECK(better > 50);
}

TEST_CASE("beam_decode: thresholds, temperature, and limits") {
  const TableScorer sure(2, 0, [](int64_t frame, const Tokens& before) {
    const bool say = static_cast<int64_t>(before.size()) == frame;
    return say ? std::vector<float>{0, 3, 2} : std::vector<float>{3, 0, 0};
  });
  CHECK(decode::beam_decode(sure, {.width = 1}).front().tokens == Tokens{1, 1});
  const auto pruned = decode::beam_decode(sure, {.width = 100, .class_threshold = 0.5});
  CHECK(pruned.size() < decode::beam_decode(sure, {.width = 100}).size());
  for (const Hypothesis& h : pruned) CHECK(std::ranges::count(h.tokens, 2) == 0);
  CHECK(decode::beam_decode(sure, {.width = 100, .score_threshold = 0}).size() == 1);
  CHECK(decode::beam_decode(sure, {.width = 2, .score_threshold = 100}).size() == 2);
  for (const Hypothesis& h : decode::beam_decode(sure, {.width = 100, .max_symbols = 1}))
    CHECK(h.tokens.size() <= 2);
  CHECK_THROWS_WITH_AS(decode::beam_decode(sure, {.classes = -1}), "beam_decode: -1 classes to try",
                       Error);
  // As hot as this all classes are alike: of 2 frames, stopping at once is the likeliest.
  CHECK(decode::beam_decode(sure, {.width = 100, .temperature = 1e6}).front().tokens.empty());
  CHECK_THROWS_WITH_AS(decode::beam_decode(sure, {.width = 0}),
                       "beam_decode: width 0, 8 tokens a frame, temperature 1", Error);
}

TEST_CASE("beam_decode: of one class and the blank, each token is the likeliest class") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TableScorer scorer = random_scorer(seed, 4);
    const auto few = decode::beam_decode(scorer, {.width = 100, .classes = 1});
    for (const Hypothesis& h : few) {
      PredictionPtr state = scorer.start();
      for (size_t i = 0; i < h.tokens.size(); ++i) {
        const auto logits = scorer.logits(h.frames[i], state);
        CHECK(std::ranges::max_element(logits) - logits.begin() == h.tokens[i]);
        state = scorer.next(state, h.tokens[i]);
      }
    }
    const auto all = decode::beam_decode(scorer, {.width = 100});
    CHECK(few.size() < all.size());
    CHECK(decode::beam_decode(scorer, {.width = 100, .classes = 3}).size() == all.size());
  }
}

TEST_CASE("beam_decode: a model that counts its calls, whose results depend on every one of them") {
  // Token 1 is a space: text begins with none, and never has two side by side.
  const auto text = [](const Tokens& tokens) {
    std::string said = " ";
    for (const int64_t token : tokens)
      if (token != 1 || said.back() != ' ')
        said += token == 1 ? ' ' : static_cast<char>('a' + token);
    return said;
  };
  decode::BeamOptions options = {.width = 4, .temperature = 1.5, .classes = 4, .text = text};
  const Hypothesis unpruned = decode::beam_decode(counting(4, 6), options).front();
  CHECK(unpruned.tokens == Tokens{5, 2, 3});
  CHECK(unpruned.frames == Tokens{1, 2, 3});
  options.score_threshold = 0.4;
  options.class_threshold = 1.5;
  const Hypothesis pruned = decode::beam_decode(counting(4, 6), options).front();
  CHECK(pruned.tokens == Tokens{2, 3, 4});
  CHECK(pruned.frames == Tokens{1, 2, 3});
  // By tokens, the space counts.
  options.text = {};
  CHECK(decode::beam_decode(counting(4, 6), options).front().tokens == Tokens{1, 2, 3, 4});
}

TEST_CASE("beam_decode: the probability of a text is the sum over all tokens that say it") {
  // Token 1 says what two of token 0 do.
  const auto text = [](const Tokens& tokens) {
    std::string said;
    for (const int64_t token : tokens) said += token == 1 ? "aa" : "a";
    return said;
  };
  // All alike, so that it is no matter which of the tokens go on.
  const TableScorer scorer(3, 2, [](int64_t, const Tokens& tokens) {
    std::vector<float> logits{1, 0.5F, 2};
    if (tokens.size() == 3) logits[0] = logits[1] = -INFINITY;
    return logits;
  });
  std::map<Tokens, double> by_tokens;
  walk(scorer, 0, scorer.start(), 1, by_tokens);
  const double p_a = by_tokens.at({0});
  const auto all = decode::beam_decode(scorer, {.width = 1000, .text = text});
  CHECK(all.size() < by_tokens.size());
  const auto one = std::ranges::find(all, Tokens{0}, &Hypothesis::tokens);
  REQUIRE(one != all.end());
  CHECK(std::exp(one->log_probability) == doctest::Approx(p_a));
  double sum = 0;
  for (const Hypothesis& h : all) sum += std::exp(h.log_probability);
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("lattice_posterior: against the sum over all alignments") {
  const int64_t frames = 4, blank = 1;
  const Tokens tokens{0, 2, 2};
  const Reference logits = random_reference({frames, 4, 3}, 5, -2, 2);
  const auto score = [&](int64_t t, int64_t u, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < 3; ++i) sum += std::exp(logits.at({t, u, i}));
    return std::exp(logits.at({t, u, k})) / sum;
  };
  // Every way to hand out three tokens to four frames, in order.
  double total = 0;
  Reference emit({frames, 3}), node({frames, 4});
  for (int64_t a = 0; a < frames; ++a)
    for (int64_t b = a; b < frames; ++b)
      for (int64_t c = b; c < frames; ++c) {
        const Tokens at{a, b, c};
        double p = 1;
        for (int64_t u = 0; u < 3; ++u)
          p *= score(at[static_cast<size_t>(u)], u, tokens[static_cast<size_t>(u)]);
        for (int64_t t = 0; t < frames; ++t)
          p *= score(t, std::ranges::count_if(at, [=](int64_t x) { return x <= t; }), blank);
        total += p;
        for (int64_t u = 0; u < 3; ++u) emit.at({at[static_cast<size_t>(u)], u}) += p;
        for (int64_t t = 0; t < frames; ++t) {
          const int64_t last = std::ranges::count_if(at, [=](int64_t x) { return x <= t; });
          for (int64_t u = std::ranges::count_if(at, [=](int64_t x) { return x < t; }); u <= last;
               ++u)
            node.at({t, u}) += p;
        }
      }
  const auto posterior =
      decode::lattice_posterior(logits.tensor(f64, test_device()), tokens, blank);
  CHECK(posterior.log_probability == doctest::Approx(std::log(total)).epsilon(1e-12));
  for (size_t i = 0; i < emit.values.size(); ++i)
    CHECK(posterior.emit[i] == doctest::Approx(emit[i] / total).epsilon(1e-12));
  for (size_t i = 0; i < node.values.size(); ++i)
    CHECK(posterior.node[i] == doctest::Approx(node[i] / total).epsilon(1e-12));
  const auto empty = decode::lattice_posterior(
      random_reference({2, 1, 3}, 1).tensor(f32, test_device()), {}, blank);
  CHECK(empty.node == std::vector<double>{1, 1});
  CHECK_THROWS_WITH_AS(
      decode::lattice_posterior(logits.tensor(f64, test_device()), Tokens{0, 2}, blank),
      "lattice_posterior: logits [4, 4, 3] for 2 tokens", Error);
  CHECK_THROWS_WITH_AS(
      decode::lattice_posterior(logits.tensor(f64, test_device()), Tokens{0, 2, 3}, blank),
      "lattice_posterior: token 3 of 3 classes", Error);
}

TEST_CASE("a scorer's states may be null") {
  CHECK(decode::greedy_decode(Stateless(), {.max_symbols = 3}).tokens == Tokens(6, 1));
  const TableScorer same(2, 0, [](int64_t, const Tokens&) { return Stateless::same; });
  const auto found = decode::beam_decode(Stateless()), expected = decode::beam_decode(same);
  REQUIRE(found.size() == 4);
  REQUIRE(expected.size() == found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].tokens == expected[i].tokens);
    CHECK(found[i].frames == expected[i].frames);
    CHECK(found[i].log_probability == expected[i].log_probability);
  }
}
