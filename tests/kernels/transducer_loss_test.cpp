#include <bs/autograd/binary.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/copy.h>
#include <bs/tests/kernels/transducer_reference.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

void check_case(const TransducerBatch& batch, const TransducerLossOptions& options,
                DType index = i64) {
  for (bool packed : {false, true}) {
    CAPTURE(packed);
    check_op({.name = "transducer_loss",
              .inputs = {packed ? batch.packed_shape() : batch.dense_shape()},
              .op = [=](const Variables& v) { return loss_of(v[0], batch, options, index); },
              .reference =
                  [=](const References& in) { return transducer_losses(batch, in[0], options); },
              .low = -3,
              .high = 3});
  }
}

const TransducerBatch some = transducer_batch(7, {4, 1, 6, 3}, {3, 2, 0, 5}, 1);

}  // namespace

TEST_CASE("transducer_loss") {
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    check_case(some, {.reduction = reduction}, reduction == Reduction::sum ? i32 : i64);
  check_case(some, {.blank = 0});
  check_case(transducer_batch(10, {7, 5}, {8, 3}), {.blank = 3});
  check_case(transducer_batch(2, {1}, {0}), {});
  check_case(transducer_batch(2, {1}, {1}), {});
  check_case(transducer_batch(33, {3, 3}, {2, 1}), {});
  check_case(transducer_batch(130, {2, 5}, {4, 1}), {});
  check_case(transducer_batch(1030, {2}, {3}), {});
}

TEST_CASE("transducer_loss with penalties, an end of sentence and a star") {
  for (double delay : {0.0, 0.05, 0.99, 1.0, 2.0})
    check_case(some, {.reduction = Reduction::none, .delay_penalty = delay});
  for (double eos : {0.1, 0.5})
    check_case(some, {.delay_penalty = 0.01, .eos = 2, .eos_penalty = eos});
  for (double star : {1.0, std::exp(0.1), std::exp(0.5), 0.75})
    check_case(
        some,
        {.delay_penalty = 0.05, .eos = 1, .eos_penalty = 0.1, .star = 3, .star_penalty = star});
  for (double delay : {0.05, 2.0})
    check_case(transducer_batch(10, {7, 2, 1, 7, 2, 1, 7, 2}, {8, 8, 8, 4, 1, 0, 8, 3}),
               {.delay_penalty = delay,
                .eos = 4,
                .eos_penalty = 0.5,
                .star = 5,
                .star_penalty = std::exp(0.5)});
}

TEST_CASE("the sum over paths of the reference is the sum over all of them") {
  const Reference x = random_reference(some.dense_shape(), 5, -3, 3);
  for (size_t b = 0; b < 4; ++b) {
    const auto row = [&](int64_t t, int64_t u) {
      return (static_cast<int64_t>(b) * some.max_frames + t) * (some.max_labels + 1) + u;
    };
    const TransducerWeights w = weights_of(some, b, x, row, {.star = 3, .star_penalty = 0.5});
    CHECK(w.total() == doctest::Approx(w.paths(0, 0)).epsilon(1e-13));
  }
}

TEST_CASE("transducer_loss of the example of warp-transducer") {
  TransducerBatch batch = transducer_batch(5, {2}, {2});
  batch.targets = {{1, 2}};
  Reference x(batch.dense_shape());
  x.values = {.1, .6, .1, .1, .1, .1, .1, .6, .1, .1, .1, .1, .2, .8, .1,
              .1, .6, .1, .1, .1, .1, .1, .2, .1, .1, .7, .1, .2, .1, .1};
  // The published cost is 4.495666; these digits are those of a separate computation in double.
  const double cost = 4.495666773770731;
  Reference gradient(batch.dense_shape());
  gradient.values = {
      -0.131166855091, -0.399926795353, 0.177031216815,  0.177031216815, 0.177031216815,
      -0.185727534781, 0.122470537125,  -0.181684076595, 0.122470537125, 0.122470537125,
      -0.320912461482, 0.062691394706,  0.069284706243,  0.126244965825, 0.062691394706,
      0.054560679690,  -0.218242718758, 0.054560679690,  0.054560679690, 0.054560679690,
      0.120739570468,  0.120739570468,  -0.482958281870, 0.120739570468, 0.120739570468,
      -0.692588200183, 0.168711172812,  0.186454681746,  0.168711172812, 0.168711172812};
  CHECK(std::abs(result_of(x, batch, {.blank = 0}).loss.item() - cost) <= 1e-14 * cost);
  CHECK(std::abs(result_of(x, batch, {.blank = 0}, f32).loss.item() - cost) <= 1e-6);
  check_close("gradient", gradient_of(x, batch, {.blank = 0}), gradient, 1e-12);
}

TEST_CASE("transducer_loss of equal logits has a closed form") {
  struct Case {
    int64_t frames, labels, classes;
    double printed;
  };
  for (const Case& c : {Case{1, 0, 2, .693147}, Case{2, 1, 3, 2.602690}, Case{4, 3, 5, 8.270333},
                        Case{7, 8, 10, 26.531409}, Case{2, 2, 5, 5.339139},
                        Case{10, 5, 29, 42.907535}, Case{400, 80, 1024, 3114.039275}}) {
    CAPTURE(c.frames);
    const TransducerBatch batch = transducer_batch(c.classes, {c.frames}, {c.labels});
    const auto t = static_cast<double>(c.frames);
    const auto u = static_cast<double>(c.labels);
    const double paths = std::lgamma(t + u) - std::lgamma(u + 1) - std::lgamma(t);
    const double loss = (t + u) * std::log(static_cast<double>(c.classes)) - paths;
    CHECK(std::abs(loss - c.printed) <= 1e-6);
    Tensor x = zeros(batch.dense_shape(), f32, test_device());
    const auto run = [&](const Tensor& logits) {
      return transducer_loss(logits, batch.targets_tensor(i64, test_device()),
                             batch.frames_tensor(i64, test_device()),
                             batch.labels_tensor(i64, test_device()));
    };
    // Each of T + U steps is off by at most the rounding of its logarithm, about 2^-23 * 7 / 2.
    CHECK(std::abs(run(x).loss.item() - loss) <= 4 * epsilon(f32) * loss);
    if (c.frames < 400) CHECK(std::abs(run(cast(x, f64)).loss.item() - loss) <= 1e-12 * loss);
  }
}

TEST_CASE("each row of the gradient of transducer_loss sums to zero, padding is zero") {
  const Reference x = random_reference(some.dense_shape(), 3, -3, 3);
  const Reference g = gradient_of(
      x, some, {.fastemit_lambda = 0.3, .delay_penalty = 0.2, .star = 3, .star_penalty = 0.5});
  for (int64_t b = 0; b < some.size(); ++b)
    for (int64_t t = 0; t < some.max_frames; ++t)
      for (int64_t u = 0; u <= some.max_labels; ++u) {
        double sum = 0;
        double size = 0;
        for (int64_t k = 0; k < some.classes; ++k) {
          sum += g.at({b, t, u, k});
          size += std::abs(g.at({b, t, u, k}));
        }
        CHECK(std::abs(sum) <= 1e-14);
        const auto i = static_cast<size_t>(b);
        if (t >= some.frames[i] || u > some.labels[i]) CHECK(size == 0);
      }
}

TEST_CASE("transducer_loss of packed logits equals that of padded ones, bit for bit") {
  // Rows of 16 bytes or more: on CUDA the order of a row's sum depends on where 16 bytes begin.
  const TransducerBatch aligned = transducer_batch(8, {4, 1, 6, 3}, {3, 2, 0, 5}, 1);
  for (DType dtype : {f64, f32, f16, bf16}) {
    const Reference packed = random_reference(aligned.packed_shape(), 4, -2, 2);
    Reference padded(aligned.dense_shape());
    for (double& v : padded.values) v = std::nan("");
    std::vector<size_t> place;  // of each packed element
    for (int64_t b = 0; b < aligned.size(); ++b)
      for (int64_t t = 0; t < aligned.frames[static_cast<size_t>(b)]; ++t)
        for (int64_t u = 0; u <= aligned.labels[static_cast<size_t>(b)]; ++u)
          for (int64_t k = 0; k < aligned.classes; ++k) {
            const size_t from = place.size();
            place.push_back(static_cast<size_t>(
                ((b * aligned.max_frames + t) * (aligned.max_labels + 1) + u) * aligned.classes +
                k));
            padded[place.back()] = packed[from];
          }
    const TransducerLossOptions options = {.reduction = Reduction::none, .delay_penalty = 0.05};
    CHECK(Reference::of(result_of(packed, aligned, options, dtype).loss).values ==
          Reference::of(result_of(padded, aligned, options, dtype).loss).values);
    const Reference a = gradient_of(packed, aligned, options, 0.5, dtype);
    const Reference b = gradient_of(padded, aligned, options, 0.5, dtype);
    for (size_t i = 0; i < place.size(); ++i) REQUIRE(a[i] == b[place[i]]);
  }
}

TEST_CASE("transducer_loss: packed rows that no utterance has are not read") {
  const auto exact = static_cast<size_t>(some.packed_rows() * some.classes);
  const Reference x = random_reference(some.packed_shape(), 4, -2, 2);
  Reference more = x;
  more.shape = {some.packed_rows() + 40, some.classes};
  more.values.resize(static_cast<size_t>(more.shape.product()), std::nan(""));
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(dtype);
    CHECK(Reference::of(result_of(more, some, {}, dtype).loss).values ==
          Reference::of(result_of(x, some, {}, dtype).loss).values);
    const Reference a = gradient_of(x, some, {}, 0.5, dtype);
    const Reference b = gradient_of(more, some, {}, 0.5, dtype);
    for (size_t i = 0; i < b.values.size(); ++i) REQUIRE(b[i] == (i < exact ? a[i] : 0));
  }
}

TEST_CASE("transducer_loss takes an upstream gradient of any sign, and zero") {
  const Reference x = random_reference(some.dense_shape(), 6);
  const Reference one = gradient_of(x, some, {});
  const Reference other = gradient_of(x, some, {}, -2.5);
  const Reference none = gradient_of(x, some, {}, 0);
  for (size_t i = 0; i < one.values.size(); ++i) {
    CHECK(other[i] == doctest::Approx(-2.5 * one[i]));
    CHECK(none[i] == 0);
  }
}

TEST_CASE("transducer_loss writes gradients over the logits where asked to") {
  const Reference x = random_reference(some.dense_shape(), 7);
  for (DType dtype : {f64, f32, f16, bf16}) {
    const Reference expected = gradient_of(x, some, {}, 2, dtype);
    const Tensor logits = x.tensor(dtype, test_device());
    const Tensor targets = some.targets_tensor(i64, test_device());
    const TransducerLossOptions options = {.reduction = Reduction::sum};
    const auto result = transducer_loss(logits, targets, some.frames_tensor(i64, test_device()),
                                        some.labels_tensor(i64, test_device()), options);
    const Tensor two = full({}, 2, result.loss.dtype(), test_device());
    const Tensor gradient = transducer_loss_backward(logits, targets, result, two, options, true);
    CHECK(gradient.shares_storage(logits));
    CHECK(Reference::of(gradient).values == expected.values);
  }
  const Variable leaf(x.tensor(f32, test_device()), true);
  const auto loss_of = [](const Variable& logits) {
    return transducer_loss(logits, some.targets_tensor(i64, test_device()),
                           some.frames_tensor(i64, test_device()),
                           some.labels_tensor(i64, test_device()), {}, true);
  };
  const Variable loss = loss_of(leaf + leaf);
  loss.backward({.retain_graph = true});
  CHECK_THROWS_WITH_AS(loss.backward(),
                       "transducer_loss: a second backward, but the first has written the gradient "
                       "over the logits",
                       Error);
  // exp needs its result, which is gone by then.
  CHECK_THROWS_WITH_AS(loss_of(exp(leaf)).backward(), doctest::Contains("backward: exp saved"),
                       Error);
}

TEST_CASE("transducer_loss from an address that is no multiple of 16 bytes, and strided") {
  const TransducerBatch batch = transducer_batch(9, {5, 3}, {2, 3});
  const Reference x = random_reference(batch.dense_shape(), 8);
  for (DType dtype : {f64, f32, bf16}) {
    const Reference expected = gradient_of(x, batch, {}, 1, dtype);
    const Tensor wide = zeros({2 * x.shape.product() + 1}, dtype, test_device());
    const Tensor shifted = wide.slice(0, 1, x.shape.product() + 1).view(x.shape);
    copy(x.tensor(dtype, test_device()), shifted);
    CHECK(gradient_of(Reference::of(shifted), batch, {}, 1, dtype).values == expected.values);
    const auto run = [&](const Tensor& logits) {
      const Variable leaf(logits, true);
      loss_of(leaf, batch, {.reduction = Reduction::sum}).backward();
      return Reference::of(leaf.grad());
    };
    // Sums of a row may be taken in another order there.
    check_close("shifted", run(shifted), expected, 4 * epsilon(dtype));
    const Tensor strided = wide.slice(0, 0, 2 * x.shape.product(), 2).view(x.shape);
    copy(x.tensor(dtype, test_device()), strided);
    check_close("strided", run(strided), expected, 0);
  }
}

TEST_CASE("clamp bounds an utterance's gradient before it is weighted") {
  const Reference x = random_reference(some.dense_shape(), 10, -2, 2);
  const Reference free = gradient_of(x, some, {});
  const Reference bound = gradient_of(x, some, {.clamp = 0.05}, -3);
  double top = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    CHECK(bound[i] == doctest::Approx(-3 * std::clamp(free[i], -0.05, 0.05)));
    top = std::max(top, std::abs(bound[i]));
  }
  CHECK(top == doctest::Approx(0.15));
}

TEST_CASE("transducer_loss of improbable text neither overflows nor underflows") {
  // Every class but the wanted ones is 60 nats more likely: each label costs 60 or more.
  const TransducerBatch batch = transducer_batch(5, {40}, {30});
  Reference x = random_reference(batch.dense_shape(), 11);
  for (size_t i = 0; i < x.values.size(); ++i)
    if (i % 5 == 0) x[i] += 60;
  for (DType dtype : {f64, f32}) {
    const Reference rounded = Reference::of(x.tensor(dtype, Device::cpu()));
    const double expected = transducer_losses(batch, rounded, {})[0];
    CHECK(expected > 4000);
    CHECK(std::abs(result_of(x, batch, {}, dtype).loss.item() - expected) <=
          4 * epsilon(dtype) * expected);
    const Reference g = gradient_of(x, batch, {}, 1, dtype);
    const Reference exact = gradient_of(rounded, batch, {});
    check_close("gradient", g, exact, 64 * 60 * epsilon(dtype));
  }
}

TEST_CASE("transducer_loss at the edges: no frames, no path, infinities and NaN") {
  TransducerBatch batch = transducer_batch(4, {2, 0, 2, 2, 2, 2}, {1, 1, 1, 1, 0, 1});
  const auto classes = static_cast<size_t>(batch.classes);
  Reference x = random_reference(batch.dense_shape(), 12);
  const auto row = [&](size_t b, size_t t, size_t u) { return ((b * 2 + t) * 2 + u) * classes; };
  // 2: the label has no probability; 3: a NaN; 4: another class has none; 5: one is +infinity
  const auto label = static_cast<size_t>(batch.targets[2][0]);
  for (size_t t = 0; t < 2; ++t) x[row(2, t, 0) + label] = -infinity;
  x[row(3, 1, 0)] = std::nan("");
  x[row(4, 0, 0) + 1] = -infinity;
  x[row(5, 1, 1)] = infinity;
  for (DType dtype : {f64, f32}) {
    const Reference loss =
        Reference::of(result_of(x, batch, {.reduction = Reduction::none}, dtype).loss);
    CHECK(std::isfinite(loss[0]));
    CHECK(loss[1] == infinity);
    CHECK(loss[2] == infinity);
    CHECK(std::isnan(loss[3]));
    CHECK(std::isfinite(loss[4]));
    CHECK(std::isnan(loss[5]));
    const Reference g = gradient_of(x, batch, {}, 1, dtype);
    for (size_t b = 0; b < 6; ++b)
      for (size_t i = 0; i < 4 * classes; ++i) {
        const double value = g[row(b, 0, 0) + i];
        if (b == 0 || b == 4) CHECK(std::isfinite(value));
        if (b == 1 || b == 2) CHECK(value == 0);
        if (b == 3 || b == 5) CHECK(std::isnan(value));
      }
    CHECK(g[row(4, 0, 0) + 1] == 0);
  }
}

TEST_CASE("transducer_loss of nothing") {
  const Tensor lengths = zeros({0}, i64, test_device());
  const auto run = [&](Reduction reduction) {
    return transducer_loss(zeros({0, 3, 3, 4}, f32, test_device()),
                           zeros({0, 2}, i64, test_device()), lengths, lengths,
                           {.reduction = reduction})
        .loss;
  };
  CHECK(run(Reduction::none).numel() == 0);
  CHECK(run(Reduction::sum).item() == 0);
  CHECK(std::isnan(run(Reduction::mean).item()));
}

TEST_CASE("transducer_loss of more columns than a warp, a block or several turns have") {
  for (int64_t labels : {31, 32, 64, 127, 128, 700, 2100}) {
    CAPTURE(labels);
    const TransducerBatch batch = transducer_batch(3, {7, 3}, {labels, labels / 2});
    const Reference x = random_reference(batch.dense_shape(), 14);
    const double expected = transducer_losses(batch, x, {})[0];
    CHECK(std::abs(result_of(x, batch, {}).loss.item() - expected) <= 1e-13 * expected);
    const Reference g = gradient_of(x, batch, {});
    double none = 0;  // rows sum to zero, and each diagonal's shares to one
    for (double v : g.values) none += v;
    CHECK(std::abs(none) <= 1e-10);
  }
}

TEST_CASE("the log of the sum of exponentials of a row, at all widths") {
  for (int k = 0; k < 15; k += 2)
    for (int64_t more : {0, 1, 3}) {
      const int64_t n = (int64_t{1} << k) + more;
      const TransducerBatch batch = transducer_batch(std::max<int64_t>(n, 2), {20}, {1});
      for (DType dtype : {f64, f32, f16}) {
        const Reference x = Reference::of(
            random_reference(batch.dense_shape(), 16, -8, 8).tensor(dtype, Device::cpu()));
        const Reference lse = Reference::of(result_of(x, batch, {}, dtype).lse);
        for (size_t r = 0; r < lse.values.size(); ++r) {
          double sum = 0;
          for (int64_t j = 0; j < batch.classes; ++j)
            sum += std::exp(x[r * static_cast<size_t>(batch.classes) + static_cast<size_t>(j)]);
          CHECK(std::abs(lse[r] - std::log(sum)) <=
                4 * epsilon(dtype == f64 ? f64 : f32) * std::max(1.0, std::abs(std::log(sum))));
        }
      }
    }
}
