#include <bs/examples/sparse_transformer/bigram.h>
#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/sparse_transformer/pattern.h>
#include <doctest/doctest.h>

#include <cmath>
#include <string_view>

using namespace bs;
using namespace bs::example;

namespace {

std::span<const uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Options parse(std::vector<std::string> words) {
  words.insert(words.begin(), "sparse_transformer");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  Options options;
  const bool parsed = parse_options(static_cast<int>(arguments.size()), arguments.data(), options);
  CHECK(parsed);
  return options;
}

std::string usage_error(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// Some file there is on every machine.
const std::string text_file = "/proc/self/cmdline";

}  // namespace

TEST_CASE("bigram: the formula, by hand") {
  // a is followed by b twice and by c once; 6 bytes, of which 3 are a, 2 are b, 1 is c.
  const Bigram bigram(bytes("ababac"));
  const double single_b = (2 + 1) / (6.0 + 256), single_d = 1 / (6.0 + 256);
  CHECK(bigram.probability('a', 'b') == doctest::Approx((2 + 2 * single_b) / (3 + 2)));
  CHECK(bigram.probability('a', 'd') == doctest::Approx(2 * single_d / (3 + 2)));
  CHECK_MESSAGE(bigram.probability('d', 'b') == doctest::Approx(single_b), "never seen before");
  CHECK_MESSAGE(bigram.probability('c', 'b') == doctest::Approx(single_b), "only at the end");
  const double loss = -std::log(bigram.probability('a', 'b') * bigram.probability('b', 'z')) / 2;
  CHECK(bigram.loss(bytes("abz")) == doctest::Approx(loss));
  CHECK(bigram.loss(bytes("a")) == 0);
}

TEST_CASE("bigram: probabilities sum to one") {
  const Bigram bigram(bytes("the quick brown fox jumps over the lazy dog"));
  for (int before = 0; before < 256; ++before) {
    double sum = 0;
    for (int next = 0; next < 256; ++next)
      sum += bigram.probability(static_cast<uint8_t>(before), static_cast<uint8_t>(next));
    CHECK(sum == doctest::Approx(1));
  }
}

TEST_CASE("options: defaults, and what is kept for a resumed run") {
  const Options options =
      parse({"--data", text_file, "--width", "128", "--mlp-factors", "2", "--device", "cpu"});
  CHECK(options.width == 128);
  CHECK(options.mlp_factors == 2);
  CHECK(options.dtype == f32);
  CHECK(options.kept.at("--width") == "128");
  CHECK(options.kept.at("--layers") == "4");
  CHECK(options.kept.at("--per-head") == "false");
  CHECK(options.kept.count("--out") == 0);
}

TEST_CASE("options: each mistake gets one line") {
  const auto contains = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
  };
  CHECK(usage_error({}) == "--data FILE is needed: the text to learn");
  CHECK(contains(usage_error({"--data", "/no/such/file"}), "--data"));
  CHECK(contains(usage_error({"--data", text_file, "--pattern", "plaid"}), "--pattern"));
  CHECK(contains(usage_error({"--data", text_file, "--steps", "many"}), "--steps"));
  CHECK(contains(usage_error({"--data", text_file, "--block", "48"}), "--block"));
  CHECK(contains(usage_error({"--data", text_file, "--colour", "red"}), "--colour"));
  CHECK(contains(usage_error({"--data", text_file, "--device", "tpu"}), "tpu"));
  CHECK(usage_error({"--data", text_file, "--width", "100"}) ==
        "--width 100 is not a multiple of 8 x --heads 4");
  CHECK(usage_error({"--data", text_file, "--context", "100"}) ==
        "--context 100 is not a multiple of --block 32");
}

TEST_CASE("pattern: each name makes a causal pattern of the size asked for") {
  for (const char* name :
       {"fixed", "strided", "bigbird", "longformer", "sliding", "dense", "random"})
    for (const bool per_head : {false, true}) {
      CAPTURE(name);
      const PatternOptions options{.name = name, .per_head = per_head};
      const LayoutPtr layout =
          make_pattern(options, 1)({.heads = 4, .rows = 8, .cols = 8, .block = 32});
      CHECK(layout->heads() == (per_head && layout->heads() > 1 ? 4 : 1));
      CHECK(layout->height() == 256);
      for (int head = 0; head < layout->heads(); ++head)
        for (int row = 0; row < 8; ++row) {
          CHECK(layout->contains(head, row, row));
          for (int col = row + 1; col < 8; ++col) CHECK(!layout->contains(head, row, col));
        }
    }
}
