#include <bs/kernels/fill.h>
#include <bs/tests/kernels/transducer_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

TEST_CASE("transducer_loss and lengths or labels out of range") {
  TransducerBatch batch = transducer_batch(4, {2, 3}, {1, 2});
  const Reference x = random_reference(batch.dense_shape(), 17);
  const auto refused = [&](const char* message) {
    if (test_device().is_cpu()) {
      CHECK_THROWS_WITH_AS(result_of(x, batch, {}), message, Error);
      return;
    }
    // A GPU is not waited for: the utterance becomes NaN instead, and no other.
    const Reference loss = Reference::of(result_of(x, batch, {.reduction = Reduction::none}).loss);
    CHECK(std::isfinite(loss[0]));
    CHECK(std::isnan(loss[1]));
  };
  batch.frames[1] = 4;
  refused("transducer_loss: logit_lengths[1] is 4, outside of [0, 3]");
  batch.frames[1] = 3;
  batch.labels[1] = -1;
  refused("transducer_loss: target_lengths[1] is -1, outside of [0, 2]");
  batch.labels[1] = 2;
  batch.targets[1][0] = 4;
  refused("transducer_loss: targets[1, 0] is 4, outside of [0, 4)");
  batch.targets[1][0] = -1;
  refused("transducer_loss: targets[1, 0] is -1, outside of [0, 4)");
}

TEST_CASE("transducer_loss refuses what does not fit") {
  const Tensor x = Tensor::empty({2, 3, 3, 4}, f32);
  const Tensor targets = zeros({2, 2}, i64);
  const Tensor lengths = zeros({2}, i64);
  CHECK_THROWS_WITH_AS(transducer_loss(x.select(0, 0), targets, lengths, lengths),
                       "transducer_loss: logits [3, 3, 4], expected [batch, frames, labels + 1, "
                       "classes] or packed [rows, classes]",
                       Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, zeros({2, 3}, i64), lengths, lengths),
                       "transducer_loss: logits [2, 3, 3, 4] for targets [2, 3]", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, zeros({2, 2}, f32), lengths, lengths),
                       "transducer_loss: targets of dtype f32, expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, targets, zeros({3}, i64), lengths),
                       "transducer_loss: logit_lengths [3] for targets [2, 2]", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, targets, lengths, zeros({2}, f32)),
                       "transducer_loss: target_lengths of dtype f32, expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, targets, lengths, lengths, {.blank = 4}),
                       "transducer_loss: blank 4 is outside of 4 classes", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(x, targets, lengths, lengths, {.star_penalty = -1}),
                       "transducer_loss: star_penalty -1 is negative", Error);
  CHECK_THROWS_WITH_AS(
      transducer_loss(Tensor::empty({1, 4}, f32), targets, full({2}, 1, i64), lengths),
      "transducer_loss: 1 packed rows, but lengths that make 2", Error);
  CHECK_THROWS_WITH_AS(transducer_loss(Tensor::empty({2, 3, 3, 4}, i32), targets, lengths, lengths),
                       "transducer_loss: logits of dtype i32", Error);
}
