#include <bs/examples/rnnt_lstm/alignment_chart.h>
#include <bs/examples/rnnt_lstm/corpus.h>
#include <bs/examples/rnnt_lstm/stream.h>
#include <bs/lib/peak_memory.h>
#include <bs/lib/safetensors.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <set>

using namespace bs;
using namespace bs::example;

namespace {

Recording pair_of(const std::string& text, double seconds, float loudness = 0.5F) {
  Recording pair{.name = text, .samples = {}, .text = text};
  pair.samples.assign(static_cast<size_t>(8000 * seconds), loudness);
  return pair;
}

Options small() {
  Options options;
  options.encoder = options.prediction = options.joint = 16;
  options.mels = 16;
  options.batch = 2;
  options.held_out = 0.3;
  options.device = Device::cpu();
  return options;
}

Corpus noise(const Options& options) {
  std::vector<Recording> pairs;
  for (int i = 0; i < 12; ++i) {
    pairs.push_back(pair_of(std::string("abcd").substr(0, static_cast<size_t>(1 + i % 4)) +
                                static_cast<char>('e' + i % 3),
                            1));
    data::Draws draws(1, static_cast<uint64_t>(i));
    for (float& x : pairs.back().samples) x = static_cast<float>(draws.uniform() - 0.5);
  }
  return {pairs, options};
}

/// The standard output goes to a file while this lives.
class Redirected {
 public:
  explicit Redirected(const std::string& path) : before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDOUT_FILENO);
    ::close(file);
  }
  ~Redirected() {
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int before_;
};

}  // namespace

TEST_CASE("corpus: pairs that cannot be true are left out, and counted") {
  const Options options;
  LeftOut left;
  CHECK(plausible(pair_of("hello there", 1), options, left));
  CHECK(!plausible(pair_of("", 1), options, left));
  CHECK(!plausible(pair_of("quiet", 1, 0.001F), options, left));
  CHECK(!plausible(pair_of("click", 0.05), options, left));
  CHECK(!plausible(pair_of("long", 9), options, left));
  CHECK(!plausible(pair_of("much more than anybody can say", 0.5), options, left));
  CHECK(left.wordless == 1);
  CHECK(left.silent == 2);
  CHECK(left.too_long == 1);
  CHECK(left.too_fast == 1);
  CHECK(left.all() == 5);
  Options stacked;
  stacked.stack = 64;
  CHECK(!plausible(pair_of("less than a stack", 0.63), stacked, left));
  CHECK(plausible(pair_of("a stack of frames", 0.67), stacked, left));
}

TEST_CASE("corpus: a recording that cannot be read is left out, whatever the reason") {
  const test::Scratch scratch;
  Options options;
  options.data = scratch / "list";
  options.held_out = 0.3;
  std::string list;
  for (int i = 0; i < 30; ++i)
    list +=
        "{\"path\": \"" + std::to_string(i) + "\", \"text\": \"text " + std::to_string(i) + "\"}\n";
  test::write_file(options.data, list);
  const Corpus corpus = Corpus::read(options, [&](const std::string& path) {
    if (path.ends_with("/3")) BS_THROW(IoError, "{}: is damaged", path);
    if (path.ends_with("/4")) throw std::bad_alloc();
    return std::vector<float>(8000, 0.5F);
  });
  CHECK(corpus.left_out().unreadable == 2);
  CHECK(corpus.train()->size() + corpus.held_out()->size() == 28);
}

TEST_CASE("corpus: one text is on one side only, and the guess is the commonest") {
  Options options;
  options.held_out = 0.3;
  std::vector<Recording> pairs;
  for (int i = 0; i < 100; ++i) pairs.push_back(pair_of("text " + std::to_string(i % 40), 2));
  for (int i = 0; i < 9; ++i) pairs.push_back(pair_of("text 1", 2));
  const Corpus corpus(pairs, options);
  std::set<std::string> train, held_out;
  for (const auto& u : *corpus.train()) train.insert(corpus.text(u));
  for (const auto& u : *corpus.held_out()) held_out.insert(corpus.text(u));
  CHECK(train.size() + held_out.size() == 40);
  for (const std::string& text : train) CHECK(!held_out.contains(text));
  CHECK(held_out.size() >= 5);
  CHECK(held_out.size() <= 20);
  CHECK(corpus.train()->size() + corpus.held_out()->size() == 109);
  if (train.contains("text 1")) CHECK(corpus.guess() == "text 1");
  CHECK(corpus.guess_errors().rate() > 0);
  CHECK(Corpus(pairs, options).fingerprint() == corpus.fingerprint());
  pairs.pop_back();
  CHECK(Corpus(pairs, options).fingerprint() != corpus.fingerprint());
  CHECK_THROWS_WITH_AS(Corpus({pair_of("one", 1)}, options), doctest::Contains("both are needed"),
                       UsageError);
}

TEST_CASE("alignment_chart: a picture with each character") {
  const decode::LatticePosterior posterior{.frames = 2,
                                           .tokens = 2,
                                           .node = {1, 0.5, 0, 0, 0.5, 1},
                                           .emit = {1, 0, 0, 1},
                                           .log_probability = 0};
  const std::string svg = alignment_chart(posterior, {"<", "b"}, 0.06);
  for (const char* part : {"<svg", "&lt;", ">b<", "circle", "</svg>"})
    CHECK(svg.find(part) != std::string::npos);
}

TEST_CASE("check: weights that give no finite loss or gradient are no checkpoint's") {
  Options options = small();
  options.warmup = 0;
  const Corpus corpus = noise(options);
  Trainer trainer(options, corpus);
  trainer.step();
  const Tensor before = trainer.recogniser().parameters().front().data().clone();
  trainer.check();
  CHECK(to_string(trainer.recogniser().parameters().front().data()) == to_string(before));
  trainer.check();  // changes nothing, so that it can be asked again
  options.learning_rate = 1e38;
  Trainer wild(options, corpus);
  wild.step();
  wild.step();
  CHECK_THROWS_AS(wild.check(), Diverged);
}

TEST_CASE("trainer: steps of padded batches, replayed, learn what others do" *
          doctest::skip(!test::test_device().is_cuda())) {
  Options options = small();
  options.device = test::test_device();
  options.dropout = 0;  // which elements are dropped depends on the padding
  const Corpus corpus = noise(options);
  const auto losses = [&](const std::string& graph, int64_t& replays) {
    options.graph = graph;
    Trainer trainer(options, corpus);
    std::vector<double> values;
    for (int step = 0; step < 30; ++step) values.push_back(trainer.step().loss.item());
    trainer.check();
    replays = trainer.replays();
    return values;
  };
  int64_t replays = 0;
  const std::vector<double> eager = losses("off", replays);
  CHECK(replays == 0);
  const std::vector<double> graphed = losses("on", replays);
  CHECK(replays >= 15);
  for (size_t i = 0; i < eager.size(); ++i)
    CHECK(graphed[i] == doctest::Approx(eager[i]).epsilon(1e-3));
}

TEST_CASE("stream: an alphabet of a checkpoint is what anybody may have written") {
  const test::Scratch scratch;
  Options options = small();
  const Corpus corpus = noise(options);
  Trainer(options, corpus).save(scratch / "good");
  const auto& samples = corpus.held_out()->front().samples;
  const auto heard = [&](const std::string& alphabet) {
    Safetensors content = load_safetensors(scratch / "good");
    content.metadata["user.alphabet"] = alphabet;
    save_safetensors(scratch / "changed", content);
    Options streamed = options;
    streamed.resume = std::make_shared<nn::Checkpoint>(scratch / "changed");
    {
      const Redirected redirected(scratch / "out");
      stream(streamed, samples);
    }
    return test::read_file(scratch / "out");
  };
  const std::string letters = corpus.alphabet().text();
  const std::string as_trained = heard(letters);
  CHECK(as_trained.find_first_of(letters) != std::string::npos);
  std::string control;
  for (size_t i = 0; i < letters.size(); ++i) control += static_cast<char>(0x0b + i);
  const std::string escapes = heard(control);
  CHECK(escapes.find_first_of(control) == std::string::npos);
  CHECK(std::ranges::count(escapes, '?') == static_cast<int64_t>(as_trained.size()) - 1);
  CHECK_THROWS_WITH_AS(
      heard("aa"), "--resume: the checkpoint is none of a recogniser: alphabet: 'a' comes twice",
      UsageError);
  CHECK_THROWS_AS(heard(letters + "z"), Error);
}

TEST_CASE("stream: a checkpoint asks for a model of its own size") {
  const test::Scratch scratch;
  const std::string path = scratch / "c", sound = "/proc/self/cmdline";  // is there
  const auto refusal = [&](const std::string& name, const std::string& value) {
    nn::save_checkpoint(path, {.step = 1, .metadata = {{name, value}, {"alphabet", "abc"}}});
    std::vector<std::string> words{"rnnt_lstm", "--device", "cpu", "--resume",
                                   path,        "--stream", sound};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    const PeakMemory peak(Device::cpu());
    std::string text = "no error";
    try {
      Options options;
      parse_options(static_cast<int>(arguments.size()), arguments.data(), options);
      stream(options, std::vector<float>(8000, 0.5F));
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK(peak.bytes() <= int64_t{64} << 20);
    return text;
  };
  for (const char* name : {"--encoder", "--prediction", "--joint"}) {
    const std::string text = refusal(name, "65536");
    CHECK_MESSAGE(text.starts_with("checkpoint: " + path + " has 0 bytes of tensors"), text);
    CHECK_MESSAGE(text.find(std::string(" ") + name + " 65536") != std::string::npos, text);
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"--encoder", "-1"},
                                                        {"--joint", "9223372036854775808"},
                                                        {"--mels", "nan"},
                                                        {"--window", "1e300"},
                                                        {"--window", "nan"},
                                                        {"--hop", "-0.01"},
                                                        {"--max-seconds", "nan"},
                                                        {"--dropout", "nan"},
                                                        {"--lr", "nan"}}) {
    const std::string text = refusal(name, value);
    CHECK_MESSAGE(text.starts_with(name), text);
  }
}
