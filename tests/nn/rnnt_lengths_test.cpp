#include <bs/autograd/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/nn/rnnt_small.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("nn::RNNT: padding changes nothing") {
  const nn::RNNT model(small_rnnt(f64));
  const Tensor x = random_features({2, 9, 6}, f64);
  const Reference padded = Reference::of(model.encode(x, host_lengths({5, 9})).f.data());
  const auto alone = model.encode(x.slice(0, 0, 1).slice(1, 0, 5));
  CHECK(alone.lengths.item() == 3);
  const Reference f = Reference::of(alone.f.data());
  for (int64_t t = 0; t < 3; ++t)
    CHECK(padded.at({0, t, 4}) == doctest::Approx(f.at({0, t, 4})).epsilon(1e-12));
  const nn::RNNTBatch batch = rnnt_batch(f64);
  double sum = 0;
  for (int64_t i = 0; i < 5; ++i) {
    const auto frames = static_cast<int64_t>(batch.lengths.select(0, i).item());
    const auto tokens = static_cast<int64_t>(batch.target_lengths.select(0, i).item());
    sum += model
               .loss({.features =
                          Variable(batch.features.data().slice(0, i, i + 1).slice(1, 0, frames)),
                      .lengths = host_lengths({frames}),
                      .targets = contiguous(batch.targets.slice(0, i, i + 1).slice(1, 0, tokens)),
                      .target_lengths = host_lengths({tokens})})
               .data()
               .item();
  }
  CHECK(model.loss(batch).data().item() == doctest::Approx(sum / 5).epsilon(1e-10));
  nn::RNNTLossOptions summed;
  summed.transducer.reduction = Reduction::sum;
  CHECK(model.loss(batch, summed).data().item() == doctest::Approx(sum).epsilon(1e-10));
}

TEST_CASE("nn::RNNT: padded rows have the loss and the gradients of packed ones") {
  const bool device = test_device().is_cuda();
  for (const DType dtype : {f64, f32}) {
    CAPTURE(dtype);
    nn::RNNTOptions options = small_rnnt(dtype);
    options.joint_dropout = 0.25;
    manual_seed(3);
    const nn::RNNT model(options);
    const auto run = [&](const nn::RNNTLossOptions& how, bool on_device) {
      model.zero_grad();
      nn::RNNTBatch batch = rnnt_batch(dtype);
      batch.features = Variable(batch.features.data(), true);
      if (on_device)
        for (Tensor* lengths : {&batch.lengths, &batch.target_lengths})
          *lengths = lengths->to(test_device());
      manual_seed(4);  // of what is dropped
      const Variable loss = model.loss(batch, how);
      loss.backward();
      std::vector<Reference> results{Reference::of(loss.data()),
                                     Reference::of(batch.features.grad())};
      for (const Variable& p : model.parameters()) results.push_back(Reference::of(p.grad()));
      return results;
    };
    const auto packed = run({}, false);
    for (const int split : {1, 3}) {
      CAPTURE(split);
      for (const nn::RNNTLossOptions& how : {nn::RNNTLossOptions{.split = split, .packed = false},
                                             nn::RNNTLossOptions{.split = split, .rows = 70}}) {
        CAPTURE(how.rows);
        const auto other = run(how, device);
        REQUIRE(other.size() == packed.size());
        for (size_t i = 0; i < packed.size(); ++i)
          check_close("other rows", other[i], packed[i],
                      16 * epsilon(dtype) * std::max(1.0, largest(packed[i])));
      }
    }
  }
}

TEST_CASE("nn::RNNT: a batch with more padding has the same loss and gradients") {
  for (const DType dtype : {f64, f32})
    for (const int split : {1, 3}) {
      CAPTURE(dtype);
      CAPTURE(split);
      const nn::RNNT model(small_rnnt(dtype));
      const auto run = [&](const nn::RNNTBatch& batch, const nn::RNNTLossOptions& how) {
        model.zero_grad();
        const Variable loss = model.loss(batch, how);
        loss.backward();
        std::vector<Reference> results{Reference::of(loss.data())};
        for (const Variable& p : model.parameters()) results.push_back(Reference::of(p.grad()));
        return results;
      };
      const nn::RNNTBatch batch = rnnt_batch(dtype);
      nn::RNNTBatch padded = batch;
      padded.features = zeros({5, 16, 6}, dtype, test_device());
      copy(batch.features.data(), padded.features.data().slice(1, 0, 9));
      padded.targets = zeros({5, 8}, i32, test_device());
      copy(batch.targets, padded.targets.slice(1, 0, 4));
      for (Tensor* lengths : {&padded.lengths, &padded.target_lengths})
        *lengths = lengths->to(test_device());
      const int64_t rows = model.packed_rows(batch.lengths, batch.target_lengths, split);
      const auto expected = run(batch, {.split = split});
      const auto got = run(padded, {.split = split, .rows = rows + 11});
      for (size_t i = 0; i < expected.size(); ++i)
        check_close("padded", got[i], expected[i],
                    16 * epsilon(dtype) * std::max(1.0, largest(expected[i])));
    }
}

TEST_CASE("nn::RNNT: packed rows of the part that has the most") {
  const nn::RNNT model(small_rnnt());  // stacks of two frames
  const nn::RNNTBatch batch = rnnt_batch(f32);
  const std::vector<int64_t> each{5 * 5, 2 * 1, 4 * 4, 5 * 2, 3 * 5};
  const auto rows = [&](int split) {
    return model.packed_rows(batch.lengths, batch.target_lengths, split);
  };
  CHECK(rows(1) == each[0] + each[1] + each[2] + each[3] + each[4]);
  CHECK(rows(2) == each[2] + each[3] + each[4]);
  CHECK(rows(9) == each[0]);
  CHECK_THROWS_WITH_AS(rows(0), "rnnt: a batch cut into 0 parts", Error);
  CHECK_THROWS_WITH_AS(model.packed_rows(batch.lengths, host_lengths({1})),
                       "rnnt: target_lengths [1] of i64 on cpu, expected [5] of i64 on the host",
                       Error);
  CHECK_THROWS_WITH_AS(model.packed_rows(batch.lengths, host_lengths({1, 2, INT64_MAX, 3, 4})),
                       "rnnt: one of the target_lengths is 9.22337e+18, beyond 2147483647", Error);
  CHECK_THROWS_WITH_AS(model.loss(batch, {.rows = 67}),
                       "rnnt: 67 rows of packed logits, but lengths that make 68", Error);
}

TEST_CASE("nn::RNNT: lengths on a device are for padded rows alone" *
          doctest::skip(!test_device().is_cuda())) {
  const nn::RNNT model(small_rnnt());
  nn::RNNTBatch batch = rnnt_batch(f32);
  batch.target_lengths = batch.target_lengths.to(test_device());
  CHECK_THROWS_WITH_AS(model.loss(batch), doctest::Contains("set packed to false"), Error);
  CHECK(std::isfinite(model.loss(batch, {.packed = false}).data().item()));
  CHECK_THROWS_AS(model.encode(batch.features, batch.lengths.to(test_device())), Error);
}

TEST_CASE("nn::RNNT: what is past the lengths is of no account, and needs no memory") {
  const nn::RNNT model(small_rnnt(f64));
  nn::RNNTBatch batch = rnnt_batch(f64);
  const double loss = model.loss(batch).data().item();
  // Twice as long, with anything in the padding.
  const Tensor nonsense = full({5, 9, 6}, std::nan(""), f64, test_device());
  const Variable features(concat({batch.features, nonsense}, 1).data(), true);
  batch.features = features;
  batch.targets = concat({Variable(batch.targets), Variable(random_tokens({5, 4}))}, 1).data();
  const Variable longer = model.loss(batch);
  CHECK(longer.data().item() == doctest::Approx(loss).epsilon(1e-12));
  longer.backward();
  const Reference gradient = Reference::of(features.grad());
  for (int64_t n = 0; n < 5; ++n)
    for (int64_t t = 0; t < 18; ++t)
      for (int64_t k = 0; k < 6; ++k) {
        const bool within = t < static_cast<int64_t>(batch.lengths.select(0, n).item());
        CHECK((gradient.at({n, t, k}) != 0) == within);
      }
  for (const Variable& p : model.parameters())
    CHECK(std::isfinite(largest(Reference::of(p.grad()))));
}
