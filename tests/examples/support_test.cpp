#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/examples/support/chart.h>
#include <bs/examples/support/history.h>
#include <bs/examples/support/program.h>
#include <bs/examples/support/recent.h>
#include <bs/examples/support/step_graph.h>
#include <bs/examples/support/step_profile.h>
#include <bs/examples/support/training.h>
#include <bs/kernels/random.h>
#include <bs/lib/check.h>
#include <bs/lib/host_view.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/support/decimal_comma.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>

using namespace bs;
using namespace bs::example;

TEST_CASE("printable: no control character reaches a terminal") {
  CHECK(printable("a\tb\nc") == "a\tb\nc");
  CHECK(printable("\x1b[2J\x7f\r") == "?[2J??");
  CHECK(printable(std::string("\0", 1)) == "?");
  CHECK(printable("\xc2\x9b"
                  "2J") == "?2J");  // U+009B begins a command as ESC [ does
  CHECK(printable("caf\xc3\xa9 \xc2\xa0 \xe2\x80\x9c") == "caf\xc3\xa9 \xc2\xa0 \xe2\x80\x9c");
  CHECK(printable("\xc2") == "\xc2");
}

TEST_CASE("run_program: what ends a program is a status and a line") {
  const test::Scratch scratch;
  // The status of a program that throws `error`, and what it says.
  const auto told = [&](const auto& error) {
    std::fflush(stderr);
    const int before = ::dup(STDERR_FILENO);
    const int file = ::open((scratch / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDERR_FILENO);
    const int status = run_program("program", [&]() -> int { throw error; });
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    ::close(file);
    return std::to_string(status) + " " + test::read_file(scratch / "err");
  };
  CHECK(told(UsageError("--data x")) == "2 program: --data x (--help lists the options)\n");
  CHECK(told(Diverged("a loss")) == "3 program: a loss\n");
  CHECK(told(IoError("a\x1b file")) == "1 program: a? file\n");
  CHECK(told(OutOfMemory("8 bytes")) == "1 program: 8 bytes\n");
  CHECK(told(std::bad_alloc()) == "1 program: the host has no memory left\n");
  CHECK(told(std::length_error("vector")) == "1 program: vector\n");
}

TEST_CASE("recent: the value that was not asked for longest makes room") {
  Recent<int, std::string> recent(2);
  recent.at(1) = "one";
  recent.at(2) = "two";
  CHECK(recent.at(1) == "one");
  CHECK(recent.at(3).empty());
  CHECK(recent.at(1) == "one");
  CHECK(recent.at(2).empty());
  recent.clear();
  CHECK(recent.at(1).empty());
}

namespace {

/// A layer that learns from batches of 3 or 4 rows.
class Learning {
 public:
  explicit Learning(std::string_view graph)
      : layer_([] {
          manual_seed(3);
          return nn::LinearOptions{.in = 8, .out = 4, .device = test::test_device()};
        }()),
        optimizer_(layer_, {.learning_rate = 0.1}),
        steps_(test::test_device(), graph) {}

  /// The loss, and the weights after the step.
  std::vector<double> step(int number) {
    const int64_t rows = 3 + number * number % 3;
    Generator generator(static_cast<uint64_t>(number));
    const Tensor x = randn({rows, 8}, f32, test::test_device(), generator);
    optimizer_.set_learning_rate(0.1 / (1 + number));
    const auto work = [this](const std::vector<Tensor>& batch) {
      optimizer_.zero_grad();
      const Variable y = layer_.forward(batch[0]);
      const Variable loss = mean(y * y);
      loss.backward();
      optimizer_.step();
      return std::vector<Tensor>{loss.data()};
    };
    kept_.push_back(steps_.run({x}, optimizer_, work, number % 2)[0]);
    std::vector<double> values;
    for (const Tensor& t : {kept_.back(), layer_.weight.data()})
      for_each_value<float>(host_view(t), [&](float v) { values.push_back(v); });
    return values;
  }
  /// The losses of all steps, as they are now.
  std::vector<double> losses() const {
    std::vector<double> values;
    for (const Tensor& loss : kept_) values.push_back(loss.item());
    return values;
  }
  int64_t replays() const { return steps_.replays(); }

 private:
  nn::Linear layer_;
  optim::Sgd optimizer_;
  StepGraph steps_;
  std::vector<Tensor> kept_;
};

}  // namespace

TEST_CASE("step_graph: steps of several shapes have the bits that they have without a graph") {
  const bool gpu = test::test_device().is_cuda();
  Learning eager("off"), graphed(gpu ? "on" : "auto");
  for (int step = 0; step < 24; ++step) {
    CAPTURE(step);
    CHECK(graphed.step(step) == eager.step(step));
  }
  CHECK(graphed.losses() == eager.losses());
  CHECK(eager.replays() == 0);
  CHECK(graphed.replays() == (gpu ? 20 : 0));  // two shapes, each for odd and for even steps
}

TEST_CASE("history: goes on after a step and drops what came later") {
  const test::Scratch scratch;
  const std::string folder = scratch / "";
  {
    History history(folder, 0);
    for (int64_t step = 1; step <= 4; ++step)
      history.add({step, {{"loss", 5.0 / static_cast<double>(step)}, {"rate", 1e-3}}});
    history.add({2, {{"held_out_loss", 3.5}}});
    history.add({4, {{"held_out_loss", 1.5}}});
  }
  {
    const History history(folder, 3);
    REQUIRE(history.steps().size() == 3);
    CHECK(history.steps()[2].at("loss") == 5.0 / 3);
    REQUIRE(history.evaluations().size() == 1);
    CHECK(history.evaluations()[0].at("held_out_loss") == 3.5);
    CHECK_THROWS_WITH_AS(history.steps()[0].at("none"), "no member 'none'", IoError);
  }
  CHECK(History(folder, 5).steps().size() == 3);
  CHECK(History(folder, 0).steps().empty());
  CHECK_THROWS_AS(History("/no/such/folder", 0), IoError);
}

TEST_CASE("history: numbers that were not finite are there again, as NaN") {
  const test::Scratch scratch;
  const std::string folder = scratch / "";
  History(folder, 0).add({1, {{"loss", NAN}, {"rate", INFINITY}, {"scale", 2}}});
  const History history(folder, 1);
  REQUIRE(history.steps().size() == 1);
  const Metrics& step = history.steps()[0];
  CHECK(std::isnan(step.at("loss")));
  CHECK(std::isnan(step.at("rate")));
  CHECK(step.at("scale") == 2);
}

TEST_CASE("history: of a long run memory keeps some steps and evaluations, the file all") {
  const test::Scratch scratch;
  const std::string folder = scratch / "";
  constexpr int64_t count = 3 * static_cast<int64_t>(History::most) + 5;
  const auto check_part = [&](const std::vector<Metrics>& steps) {
    CHECK(steps.size() <= History::most);
    CHECK(steps.size() >= History::most / 2);
    CHECK(steps.front().step == 1);
    CHECK(steps.back().step == count);
    for (size_t i = 2; i + 1 < steps.size(); ++i)
      CHECK(steps[i].step - steps[i - 1].step == steps[1].step - steps[0].step);
  };
  const auto check = [&](const History& history) {
    check_part(history.steps());
    check_part(history.evaluations());
  };
  {
    History history(folder, 0);
    for (int64_t step = 1; step <= count; ++step) {
      history.add({step, {{"loss", 1.0}}});
      history.add({step, {{"held_out_loss", 1.0}}});
      CHECK(history.steps().back().step == step);
      CHECK(history.evaluations().back().step == step);
    }
    check(history);
  }
  check(History(folder, count));
  const std::string file = test::read_file(scratch / "metrics.jsonl");
  CHECK(std::count(file.begin(), file.end(), '\n') == 2 * count);
}

TEST_CASE("history: half a line at the end is dropped, a wrong one before it is an error") {
  const test::Scratch scratch;
  const std::string folder = scratch / "", path = scratch / "metrics.jsonl";
  const std::string two = "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":1.5}\n";
  test::write_file(path, two + "{\"step\":3,\"lo");
  CHECK(History(folder, 9).steps().size() == 2);
  CHECK(test::read_file(path) == two);
  test::write_file(path, "{\"st\n" + two);
  CHECK_THROWS_AS(History(folder, 9), IoError);
  CHECK(test::read_file(path) == "{\"st\n" + two);  // as it was
}

TEST_CASE("history: two runs cannot write in one folder") {
  const test::Scratch scratch;
  const std::string folder = scratch / "";
  const History first = open_history(folder, 0, false);
  CHECK_THROWS_WITH_AS(open_history(folder, 0, false),
                       (folder + ": another run is writing there").c_str(), IoError);
}

TEST_CASE("history: a new run sets aside the one that was there") {
  const test::Scratch scratch;
  const std::string folder = scratch / "";
  for (int64_t run = 1; run <= 3; ++run) {
    History history = open_history(folder, 0, false);
    history.add({run, {{"loss", 1.0}}});
    test::write_file(scratch / "checkpoint.safetensors", std::to_string(run));
  }
  CHECK(test::read_file(scratch / "previous-1/checkpoint.safetensors") == "1");
  CHECK(test::read_file(scratch / "previous-2/checkpoint.safetensors") == "2");
  CHECK(test::read_file(scratch / "previous-2/metrics.jsonl") == "{\"step\":2,\"loss\":1.0}\n");
  CHECK(test::read_file(scratch / "metrics.jsonl") == "{\"step\":3,\"loss\":1.0}\n");
  CHECK(open_history(folder, 3, true).steps().size() == 1);  // a run that goes on stays
}

TEST_CASE("chart: names its curves, and draws nothing at all too") {
  const std::string svg =
      chart("bits per byte", {{.name = "training", .colour = "red", .points = {{1, 2}, {2, 1}}}},
            {{"bigram", "green", 1.5}});
  for (const char* part : {"<svg", "bits per byte", "training", "bigram", "</svg>"})
    CHECK(svg.find(part) != std::string::npos);
  CHECK(chart("nothing", {}).starts_with("<svg"));
  const auto draw = [] {
    return chart("loss", {{.name = "a", .colour = "red", .points = {{1, 2.25}, {3, 0.125}}}}, {});
  };
  const std::string picture = draw();
  const test::DecimalComma comma;
  CHECK(draw() == picture);
}

TEST_CASE("step profile: ten steps after two, or fewer where the run ends") {
  const test::Scratch scratch;
  const auto steps = [&](const std::string& name, int count) {
    StepProfile profile(scratch / name);
    for (int i = 0; i < count; ++i) {
      profile.next();
      const TraceRange range("step");
    }
    CHECK(profiling() == (count > 2 && count <= 12));
    profile.finish();
    CHECK(!profiling());
  };
  const auto recorded = [&](const std::string& name) {
    const std::string text = test::read_file(scratch / name);
    int count = 0;
    for (size_t at = 0; (at = text.find("\"step\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  steps("none", 2);
  CHECK(scratch.files() == 0);
  steps("some", 5);
  CHECK(recorded("some") == 3);
  steps("all", 20);
  CHECK(recorded("all") == 10);
  StepProfile nothing("");
  for (int i = 0; i < 5; ++i) nothing.next();
  CHECK(!profiling());
  nothing.finish();
}

namespace {

struct LongOptions : RunOptions {
  int64_t steps = 10, eval_every = 10;
};

/// Is interrupted in its third step by all of `signals`, with weights of `loss` then.
struct InterruptedTrainer {
  struct Step {};
  double loss = 0;
  std::vector<int> signals;
  int64_t steps = 0;
  bool saved = false;
  int64_t steps_done() const { return steps; }
  Step step() {
    if (++steps == 3)
      for (const int signal : signals) ::raise(signal);
    return {};
  }
  void check() const { check_finite("held-out loss", loss, steps); }
  void save(const std::string& /*path*/) { saved = true; }
};

/// What a run of ten steps does that is interrupted, in a process of its own: the signal stays
/// seen.
int status_of_interrupted(double loss, const std::vector<int>& signals = {SIGINT}) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int nothing = 1, saved = 2, diverged = 3;
    LongOptions options;
    options.device = Device::cpu();
    InterruptedTrainer trainer{.loss = loss, .signals = signals};
    catch_interrupts();
    try {
      train(
          options, trainer, [](const auto&, auto) {}, [] {});
      ::_exit(trainer.steps == 3 && trainer.saved ? saved : nothing);
    } catch (const Diverged&) {
      ::_exit(trainer.saved ? nothing : diverged);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("train: a run that is interrupted saves, but no weights that have diverged") {
  CHECK(status_of_interrupted(1.5) == 2);
  CHECK(status_of_interrupted(NAN) == 3);
}

TEST_CASE("train: only who asks a second time ends a run at once") {
  // A terminal that is closed sends SIGHUP, and so does its shell.
  CHECK(status_of_interrupted(1.5, {SIGHUP, SIGHUP, SIGHUP}) == 2);
  CHECK(status_of_interrupted(1.5, {SIGTERM, SIGHUP}) == 2);
  CHECK(status_of_interrupted(1.5, {SIGINT, SIGPIPE}) == 2);
  CHECK(status_of_interrupted(1.5, {SIGINT, SIGINT}) == 130);
  CHECK(status_of_interrupted(1.5, {SIGHUP, SIGTERM}) == 130);
}
