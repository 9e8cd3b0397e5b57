#include <bs/autograd/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/logic.h>
#include <bs/lib/graph.h>
#include <bs/nn/decode/rnnt_scorer.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/rnnt.h>
#include <bs/tests/nn/rnnt_small.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace bs;
using namespace bs::test;

TEST_CASE("nn::RNNT: parameters of the seed's configurations") {
  CHECK(nn::RNNTOptions::testing().parameter_count() == 49'006'080);
  CHECK(nn::RNNTOptions::base().parameter_count() == 84'690'432);
  CHECK(nn::RNNTOptions::large().parameter_count() == 195'590'400);
  for (const int stack : {1, 2, 3})
    for (const int layers : {1, 3}) {
      nn::RNNTOptions o = small_rnnt();
      o.stack = stack;
      o.pre_layers = layers;
      o.prediction_layers = 2;
      CHECK(nn::RNNT(o).parameter_count() == o.parameter_count());
    }
  nn::RNNTOptions testing = nn::RNNTOptions::testing();
  testing.dtype = bf16;
  testing.device = test_device();
  CHECK(nn::RNNT(testing).parameter_count() == 49'006'080);
}

TEST_CASE("nn::RNNT: names of its parameters, and forget gates that start open") {
  const nn::RNNT model(small_rnnt());
  std::string names;
  for (const auto& [name, p] : model.named_parameters()) names += name + to_string(p.shape()) + " ";
  CHECK(names ==
        "pre_rnn.weight_ih_l0[44, 6] pre_rnn.weight_hh_l0[44, 11] pre_rnn.bias_ih_l0[44] "
        "pre_rnn.bias_hh_l0[44] post_rnn.weight_ih_l0[44, 22] post_rnn.weight_hh_l0[44, 11] "
        "post_rnn.bias_ih_l0[44] post_rnn.bias_hh_l0[44] post_rnn.weight_ih_l1[44, 11] "
        "post_rnn.weight_hh_l1[44, 11] post_rnn.bias_ih_l1[44] post_rnn.bias_hh_l1[44] "
        "joint_enc.weight[13, 11] joint_enc.bias[13] embedding.weight[8, 12] "
        "prediction_rnn.weight_ih_l0[48, 12] prediction_rnn.weight_hh_l0[48, 12] "
        "prediction_rnn.bias_ih_l0[48] prediction_rnn.bias_hh_l0[48] joint_pred.weight[13, 12] "
        "joint_pred.bias[13] joint_net.weight[9, 13] joint_net.bias[9] ");
  const Reference bias = Reference::of(model.post_rnn.weights[1].bias_ih.data());
  for (size_t i = 11; i < 22; ++i) CHECK(bias[i] == 1);
}

TEST_CASE("stack_time: steps side by side, zeros at the end") {
  const Reference x = random_reference({5, 2, 3}, 1);
  const Reference y = Reference::of(nn::stack_time(x.tensor(f64, test_device()), 2).data());
  REQUIRE(y.shape == Shape{3, 2, 6});
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t k = 0; k < 6; ++k) {
        const int64_t from = 2 * t + k / 3;
        CHECK(y.at({t, b, k}) == (from < 5 ? x.at({from, b, k % 3}) : 0));
      }
}

TEST_CASE("nn::RNNT: an utterance in two pieces, with the states passed on, equals the whole") {
  const nn::RNNT model(small_rnnt(f64));
  const Tensor x = random_features({3, 10, 6}, f64);
  const Reference whole = Reference::of(model.encode(x).f.data());
  const auto first = model.encode(x.slice(1, 0, 4));
  const auto second = model.encode(x.slice(1, 4, 10), {}, first.state);
  const Reference a = Reference::of(first.f.data()), b = Reference::of(second.f.data());
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t k = 0; k < 13; ++k)
        CHECK(whole.at({n, t, k}) ==
              doctest::Approx(t < 2 ? a.at({n, t, k}) : b.at({n, t - 2, k})).epsilon(1e-12));

  const Tensor y = random_tokens({3, 7});
  const Reference all = Reference::of(model.predict(y).g.data());
  REQUIRE(all.shape == Shape{3, 8, 13});
  const auto begin = model.predict(y.slice(1, 0, 3));
  const Reference rest = Reference::of(model.predict(y.slice(1, 3, 7), begin.state).g.data());
  REQUIRE(rest.shape == Shape{3, 4, 13});
  for (int64_t u = 0; u < 4; ++u)
    CHECK(all.at({1, u + 4, 5}) == doctest::Approx(rest.at({1, u, 5})).epsilon(1e-12));
}

TEST_CASE("nn::RNNT: a step as one launch is the same step, bit for bit" *
          doctest::skip(!test_device().is_cuda())) {
  struct Model {
    explicit Model(const nn::RNNTLossOptions& given)
        : how(given),
          net([] {
            manual_seed(3);
            nn::RNNTOptions options = small_rnnt(bf16);
            options.joint_dropout = 0.25;
            options.encoder_hidden = 128;
            return options;
          }()),
          optimizer(net, {.learning_rate = 1e-2}),
          batch(rnnt_batch(bf16)) {
      for (Tensor* lengths : {&batch.lengths, &batch.target_lengths})
        *lengths = lengths->to(test_device());
    }
    void compute() {
      optimizer.zero_grad();
      const Variable l = net.loss(batch, how);
      l.backward();
      loss = l.data();
      optimizer.step({.norm = optim::grad_norm(net.parameters()), .max_norm = 1});
    }
    nn::RNNTLossOptions how;
    nn::RNNT net;
    optim::AdamW optimizer;
    nn::RNNTBatch batch;
    Tensor loss;
  };
  for (const nn::RNNTLossOptions& how :
       {nn::RNNTLossOptions{.packed = false}, nn::RNNTLossOptions{.rows = 75},
        nn::RNNTLossOptions{.split = 2, .rows = 50}}) {
    CAPTURE(how.rows);
    Model eager(how), graphed(how);
    cuda::Graph graph(test_device());
    manual_seed(5);
    const RandomState begin = default_generator().state();
    std::vector<double> losses;
    for (int step = 0; step < 5; ++step) {
      eager.compute();
      losses.push_back(eager.loss.item());
    }
    default_generator().set_state(begin);
    for (int step = 0; step < 5; ++step) {
      CAPTURE(step);
      if (step == 2) graph.capture([&] { graphed.compute(); });
      step < 2 ? graphed.compute() : graph.replay();
      CHECK(graphed.loss.item() == losses[static_cast<size_t>(step)]);
    }
    CHECK(losses.back() < losses.front());
    const auto a = eager.net.named_parameters(), b = graphed.net.named_parameters();
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(a[i].name);
      CHECK(equal(a[i].variable.data(), b[i].variable.data()));
    }
  }
}

TEST_CASE("nn::RNNT: a split batch has the loss and the gradients of the whole") {
  // Also with dropout in the joint, which drops the same elements in parts as in the whole. All
  // that may differ is the order in which utterances add up in the gradients that they share:
  // errors of a few roundings of the largest term (f64, f32), and of the rounded sums so far (16
  // bits).
  for (const DType dtype : {f64, f32, bf16})
    for (const double dropout : {0.0, 0.25}) {
      CAPTURE(dtype);
      CAPTURE(dropout);
      nn::RNNTOptions options = small_rnnt(dtype);
      options.joint_dropout = dropout;
      manual_seed(3);
      const nn::RNNT model(options);
      nn::RNNTBatch batch = rnnt_batch(dtype);
      const auto run = [&](int split, double factor) {
        model.zero_grad();
        batch.features = Variable(batch.features.data(), true);
        manual_seed(4);  // of what is dropped
        const Variable loss = model.loss(batch, {.split = split});
        (loss * factor).backward();
        std::vector<Reference> results{Reference::of(loss.data()),
                                       Reference::of(batch.features.grad())};
        for (const Variable& p : model.parameters()) {
          REQUIRE(p.grad().defined());
          results.push_back(Reference::of(p.grad()));
        }
        return results;
      };
      const auto whole = run(1, 1);
      for (const int split : {2, 3, 5, 8}) {
        CAPTURE(split);
        const auto parts = run(split, 1);
        for (size_t i = 0; i < whole.size(); ++i)
          check_close("gradient", parts[i], whole[i],
                      16 * epsilon(dtype) * std::max(1.0, largest(whole[i])));
      }
      if (dtype == bf16) continue;
      const auto scaled = run(3, -3);
      for (size_t i = 1; i < whole.size(); ++i)
        for (size_t k = 0; k < whole[i].values.size(); ++k)
          REQUIRE(std::abs(scaled[i][k] + 3 * whole[i][k]) <=
                  48 * epsilon(dtype) * std::max(1.0, largest(whole[i])));
    }
}

TEST_CASE("nn::RNNT: learns a text by heart, and says it when it hears the sound") {
  for (DType dtype : {f32, bf16}) {
    manual_seed(1);
    nn::RNNTOptions o = small_rnnt(dtype);
    o.encoder_hidden = o.prediction_hidden = o.joint = 32;
    nn::RNNT model(o);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2, .weight_decay = 0});
    const nn::RNNTBatch batch = rnnt_batch(dtype);
    double first = 0, last = 0;
    for (int step = 0; step < 150; ++step) {
      optimizer.zero_grad();
      const Variable loss = model.loss(batch);
      loss.backward();
      optimizer.step();
      last = loss.data().item();
      if (step == 0) first = last;
    }
    CHECK(last < 0.05 * first);
    model.eval();
    for (int64_t i = 0; i < 5; ++i) {
      const auto frames = static_cast<int64_t>(batch.lengths.select(0, i).item());
      decode::RNNTScorer scorer(model);
      scorer.append(batch.features.data().select(0, i).slice(0, 0, frames));
      scorer.finish();
      std::vector<int64_t> expected;
      const auto count = static_cast<int64_t>(batch.target_lengths.select(0, i).item());
      for (int64_t u = 0; u < count; ++u)
        expected.push_back(
            static_cast<int64_t>(batch.targets.select(0, i).select(0, u).to(Device::cpu()).item()));
      CHECK(decode::greedy_decode(scorer).tokens == expected);
      CHECK(decode::beam_decode(scorer).front().tokens == expected);
    }
  }
}

TEST_CASE("decode::RNNTScorer: pieces of any size give the frames of the whole") {
  nn::RNNT model(small_rnnt(f64));
  model.eval();
  const Tensor x = random_features({11, 6}, f64);
  decode::RNNTScorer whole(model), pieces(model);
  whole.append(x);
  CHECK(whole.frames() == 5);
  whole.finish();
  CHECK(whole.frames() == 6);
  for (int64_t at = 0, size = 0; at < 11; at += size, size = size % 3 + 1)
    pieces.append(x.slice(0, at, std::min<int64_t>(at + size, 11)));
  CHECK(pieces.frames() == 5);
  pieces.finish();
  REQUIRE(pieces.frames() == 6);
  const auto state = whole.next(whole.next(whole.start(), 3), 5);
  for (int64_t t = 0; t < 6; ++t) {
    const auto a = whole.logits(t, state), b = pieces.logits(t, state);
    REQUIRE(a.size() == 9);
    for (size_t k = 0; k < 9; ++k) CHECK(a[k] == doctest::Approx(b[k]).epsilon(1e-6));
  }
  CHECK_THROWS_WITH_AS(whole.append(x.slice(1, 0, 5)),
                       "rnnt_scorer: features [11, 5], expected [frames, 6]", Error);
  CHECK_THROWS_WITH_AS(whole.logits(6, state), "rnnt_scorer: logits of frame 6, but there are 6",
                       Error);
  CHECK_THROWS_WITH_AS(whole.logits(-1, state), "rnnt_scorer: logits of frame -1, but there are 6",
                       Error);
}

TEST_CASE("nn::RNNT refuses what does not fit") {
  const nn::RNNT model(small_rnnt());
  nn::RNNTOptions all_dropped = small_rnnt();
  all_dropped.joint_dropout = 1.5;
  CHECK_THROWS_WITH_AS(nn::RNNT{all_dropped}, "rnnt: joint_dropout 1.5 is not in [0, 1]", Error);
  nn::RNNTBatch batch = rnnt_batch(f32);
  CHECK_THROWS_WITH_AS(model.loss(batch, {.split = 0}), "rnnt: a batch cut into 0 parts", Error);
  CHECK_THROWS_WITH_AS(model.encode(batch.features.data().slice(2, 0, 5)),
                       "rnnt: features [5, 9, 5], expected [batch, frames, 6]", Error);
  batch.lengths = host_lengths({9, 4, 7, 10, 5});
  CHECK_THROWS_WITH_AS(model.loss(batch), "rnnt: one of the lengths is 10, beyond 9", Error);
  batch = rnnt_batch(f32);
  batch.target_lengths = host_lengths({1, 2});
  CHECK_THROWS_WITH_AS(model.loss(batch),
                       "rnnt: target_lengths [2] of i64 on cpu, expected [5] of i64 on the host",
                       Error);
}
