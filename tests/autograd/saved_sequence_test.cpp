#include <bs/autograd/binary.h>
#include <bs/autograd/ctc_loss.h>
#include <bs/autograd/gru.h>
#include <bs/autograd/lstm.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/rnn.h>
#include <bs/autograd/transducer_joint.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

uint64_t seed = 1;

Variable leaf(const Shape& shape) {
  return Variable(random_reference(shape, seed++).tensor(f64, test_device()), true);
}

void refuses(const Variable& loss, const char* text) {
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains(text), Error);
}

/// Two layers over x [4, 3, 2], which may stand above each other.
std::vector<LSTMDirectionVariables> lstm_of_two() {
  std::vector<LSTMDirectionVariables> layers(2);
  for (LSTMDirectionVariables& d : layers) d.weights = {.ih = leaf({8, 2}), .hh = leaf({8, 2})};
  return layers;
}

}  // namespace

TEST_CASE("saved tensors: states of an LSTM are watched") {
  const Variable x = leaf({4, 3, 2});
  const std::vector<LSTMDirectionVariables> d = lstm_of_two();
  const auto check = [&](auto run, const char* text) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      std::vector<LSTMStates> states = run();
      fill(states[i].y.data(), 0);
      refuses(sum(states[1].y), text);
      states = run();
      fill(states[i].c.data(), 0);
      refuses(sum(states[1].y), text);
      states = run();
      fill(states[i].h_n.data(), 0);  // a part of y
      refuses(sum(states[1].y), text);
    }
  };
  check([&] { return lstm(x, d); }, "lstm saved a tensor f64 [4, 3, 2] that fill");
  check([&] { return lstm_layers(x, d); }, "lstm_layers saved a tensor f64 [4, 3, 2] that fill");
  const std::vector<LSTMStates> states = lstm(x, d);
  const Variable loss = sum(states[0].y);
  loss.backward();
  fill(states[0].y.data(), 0);  // after backward
  CHECK_NOTHROW(sum(lstm(x, d)[0].y).backward());
}

TEST_CASE("saved tensors: lengths of recurrent layers are watched") {
  const Variable x = leaf({4, 3, 2});
  const Tensor lengths = full({3}, 3, i64);
  const Tensor alias = lengths;
  const std::vector<LSTMDirectionVariables> d = lstm_of_two();
  const auto one = [](int64_t gates) {
    return RecurrentDirectionVariables{
        .weights = {.ih = leaf({2 * gates, 2}), .hh = leaf({2 * gates, 2})}};
  };
  const RecurrentDirectionVariables g = one(3), r = one(1);
  const auto check = [&](auto run, const char* text) {
    fill(lengths, 3);
    CHECK_NOTHROW(run().backward());
    const Variable loss = run();
    fill(lengths, 1);
    refuses(loss, text);
  };
  check([&] { return sum(lstm(x, d, lengths)[0].y); }, "lstm saved a tensor i64 [3] that fill");
  check([&] { return sum(lstm_layers(x, d, lengths)[1].y); },
        "lstm_layers saved a tensor i64 [3] that fill");
  check([&] { return sum(gru(x, {&g, 1}, lengths)[0].y); }, "gru saved a tensor i64 [3] that fill");
  check(
      [&] {
        return sum(rnn(x, {&r, 1}, Nonlinearity::tanh, lengths)[0].y);
      },
      "rnn saved a tensor i64 [3] that fill");
}

TEST_CASE("saved tensors: lengths of a joint, and targets of ctc_loss, are watched") {
  const auto counts = [](double value) { return full({2}, value, i64, test_device()); };
  const Variable f = leaf({2, 3, 4}), g = leaf({2, 3, 4});
  const Tensor frames = counts(3), labels = counts(2);
  Variable loss = sum(transducer_joint(f, g, frames, labels));
  CHECK_NOTHROW(loss.backward());
  loss = sum(transducer_joint(f, g, frames, labels));
  fill(frames, 1);
  refuses(loss, "transducer_joint saved a tensor i64 [2] that fill");
  loss = sum(transducer_joint(f, g, frames, labels));
  fill(labels, 1);
  refuses(loss, "transducer_joint saved a tensor i64 [2] that fill");
  CHECK_NOTHROW(sum(transducer_joint(f, g)).backward());

  const Variable x = leaf({5, 2, 4});
  const Tensor targets = full({2, 2}, 1, i64, test_device());
  const auto ctc = [&](const Tensor& of) { return ctc_loss(x, of, counts(5), counts(2)); };
  CHECK_NOTHROW(ctc(targets).backward());
  loss = ctc(targets);
  fill(targets, 2);
  refuses(loss, "ctc_loss saved a tensor i64 [2, 2] that fill");
  const Tensor concatenated = full({4}, 1, i64, test_device());
  loss = ctc(concatenated);
  fill(concatenated, 2);  // the loss has a copy
  CHECK_NOTHROW(loss.backward());
}
