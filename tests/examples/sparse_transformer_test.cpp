#include <bs/examples/sparse_transformer/bigram.h>
#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/sparse_transformer/pattern.h>
#include <bs/examples/sparse_transformer/trainer.h>
#include <bs/kernels/fill.h>
#include <bs/lib/peak_memory.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>
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
  CHECK(options.kept.at("--dtype") == "f32");  // what `auto` was: a GPU would resume in another
  CHECK(options.kept.count("--out") == 0);
}

TEST_CASE("options: a checkpoint does not say where a run computes or writes") {
  const test::Scratch scratch;
  const std::string path = scratch / "checkpoint.safetensors";
  nn::save_checkpoint(path, {.step = 1,
                             .metadata = {{"--data", text_file},
                                          {"--width", "128"},
                                          {"--out", scratch / "elsewhere"},
                                          {"--device", "cuda:7"},
                                          {"--profile", scratch / "trace"},
                                          {"--graph", "on"},
                                          {"--resume", "/no/such/file"},
                                          {"--smoke", "true"},
                                          {"--help", "true"},
                                          {"--no-such-option", "1"},
                                          {"width", "256"},
                                          {"", "x"}}});
  const auto check = [&](const Options& options, const std::string& out) {
    CHECK(options.width == 128);  // what the model needs is taken over
    CHECK(options.out == out);
    CHECK(options.device == Device::cpu());
    CHECK(options.profile.empty());
    CHECK(options.graph == "auto");
    CHECK(!options.smoke);
    for (const char* name : {"--out", "--device", "--profile", "--graph", "--resume", "--smoke"})
      CHECK(!options.kept.contains(name));
  };
  const std::string folder = path.substr(0, path.rfind('/'));
  check(parse({"--resume", path, "--device", "cpu"}), folder);
  check(parse({"--resume", path, "--device", "cpu", "--out", "mine"}), "mine");
  if (!cuda_available()) check(parse({"--resume", path}), folder);
}

TEST_CASE("options: a prompt of any bytes comes back from a checkpoint as it was") {
  const test::Scratch scratch;
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string prompt = i % 3 == 0 ? "bytes:" : "x";
    for (uint64_t n = random() % 8; n > 0; --n)
      prompt += static_cast<char>(1 + random() % (i % 2 == 0 ? 255 : 127));  // no word has a 0
    CAPTURE(prompt);
    const Options options = parse({"--data", text_file, "--device", "cpu", "--prompt=" + prompt});
    nn::save_checkpoint(scratch / "c", {.step = 1, .metadata = options.kept});
    CHECK(parse({"--resume", scratch / "c", "--device", "cpu"}).prompt == prompt);
  }
}

TEST_CASE("options: what a checkpoint keeps is checked as the command line is") {
  const test::Scratch scratch;
  const std::map<std::string, std::string> wrong{
      {"--width", "-8"},    {"--layers", "100000000"}, {"--steps", "many"},
      {"--dtype", "i7"},    {"--data", "/no/such"},    {"--temperature", "nan"},
      {"--pattern", "../"}, {"--prompt", "bytes:"},    {"--heads", "99999999999"},
      {"--lr", "nan"},      {"--batch", "-1"},         {"--density", "nan"},
      {"--context", "1e99"}};
  for (const auto& [key, value] : wrong) {
    const std::string name = key;
    std::map<std::string, std::string> kept{{"--data", text_file}};
    kept[name] = value;
    nn::save_checkpoint(scratch / "c", {.step = 1, .metadata = kept});
    const std::string text = usage_error({"--resume", scratch / "c", "--device", "cpu"});
    CAPTURE(name);
    CHECK_MESSAGE(text.find(name) != std::string::npos, text);
  }
}

TEST_CASE("options: a checkpoint asks for a model of its own size") {
  const test::Scratch scratch;
  const std::string path = scratch / "c", data = scratch / "text";
  test::write_file(data, std::string(200'000, 'x'));
  const auto refusal = [&](std::map<std::string, std::string> kept) {
    kept.insert({{"--data", data}, {"--context", "64"}, {"--batch", "1"}});
    nn::save_checkpoint(path, {.step = 1, .metadata = kept});
    const Options options = parse({"--resume", path, "--device", "cpu"});
    const Text text(data::TextDataset::read(data), options);
    const PeakMemory peak(Device::cpu());
    std::string refused = "no error";
    try {
      const Trainer trainer(options, text);
    } catch (const Error& error) {
      refused = error.what();
    }
    CHECK(peak.bytes() <= int64_t{64} << 20);
    return refused;
  };
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"--width", "65536"}, {"--layers", "1000"}, {"--context", "8192"}}) {
    const std::string name = key;
    CAPTURE(name);
    std::map<std::string, std::string> kept{{name, value}};
    if (name == "--context") kept["--width"] = "8192", kept["--heads"] = "1";
    const std::string text = refusal(kept);
    CHECK_MESSAGE(text.starts_with("checkpoint: " + path + " has 0 bytes of tensors"), text);
    CHECK_MESSAGE(text.find(" " + name + " " + value) != std::string::npos, text);
  }
  CHECK(refusal({}).find("is not what the checkpoint was trained on") != std::string::npos);
  // The limit ends with the model.
  CHECK(zeros({int64_t{80} << 20}, u8).numel() == int64_t{80} << 20);
}

TEST_CASE("options: a pattern whose list of blocks is too long is refused before it is made") {
  for (const char* name : {"dense", "random", "fixed", "strided"}) {
    std::vector<std::string> words{"--data",          text_file, "--context",      "1048576",
                                   "--block",         "8",       "--pattern",      name,
                                   "--stride",        "1",       "--local-blocks", "1",
                                   "--global-blocks", "1"};
    CAPTURE(name);
    CHECK(usage_error(words) ==
          format("--pattern {} may keep 17179869184 blocks at --context 1048576, over 16777216; "
                 "--block is 8",
                 name));
  }
  for (const char* name : {"sliding", "bigbird", "longformer", "fixed", "strided"})
    CHECK(parse({"--data", text_file, "--context", "1048576", "--block", "128", "--pattern", name,
                 "--stride", "64", "--local-blocks", "64"})
              .pattern.name == name);
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
  for (const char* name : {"--block", "--heads", "--seed", "--lr", "--density", "--top-k"})
    CHECK(usage_error({"--data", text_file, name, ""}).starts_with(std::string(name) + ": "));
  CHECK(usage_error({"--data", text_file, "--width", "100"}) ==
        "--width 100 is not a multiple of 8 x --heads 4");
  CHECK(usage_error({"--data", text_file, "--batch", "1000000"}) ==
        "--batch 1000000 at --context 256 is over 67108864 bytes of text a step");
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
