#include <bs/autograd/binary.h>
#include <bs/autograd/matmul.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/transducer_joint.h>
#include <bs/autograd/transducer_loss.h>
#include <bs/autograd/view.h>
#include <bs/tests/kernels/transducer_reference.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

/// f + g, cut off below zero, within the lengths; padded or packed.
Reference joint_of(const Reference& f, const Reference& g, const TransducerBatch& batch, bool relu,
                   bool packed) {
  const int64_t n = f.shape[2];
  Reference h(packed ? Shape{batch.packed_rows(), n}
                     : Shape{f.shape[0], f.shape[1], g.shape[1], n});
  size_t at = 0;
  for (int64_t b = 0; b < f.shape[0]; ++b)
    for (int64_t t = 0; t < f.shape[1]; ++t)
      for (int64_t u = 0; u < g.shape[1]; ++u) {
        const bool within =
            t < batch.frames[static_cast<size_t>(b)] && u <= batch.labels[static_cast<size_t>(b)];
        for (int64_t j = 0; j < n; ++j) {
          const double sum = f.at({b, t, j}) + g.at({b, u, j});
          if (within) h[at++] = relu && sum < 0 ? 0 : sum;
          if (!within && !packed) h[at++] = 0;
        }
      }
  return h;
}

void check_case(const TransducerBatch& batch, int64_t n) {
  CAPTURE(n);
  const int64_t b = batch.size();
  for (bool relu : {false, true})
    for (bool packed : {false, true}) {
      CAPTURE(relu);
      CAPTURE(packed);
      const TransducerJointOptions options = {.relu = relu,
                                              .packed_rows = packed ? batch.packed_rows() : -1};
      const DType index = relu ? i64 : i32;
      // Inputs that keep f + g away from the kink at zero: f in (-1, 1) moved by +-3 by columns.
      const auto moved = [n](const Reference& f) {
        Reference out = f;
        for (size_t i = 0; i < f.values.size(); ++i)
          out[i] += static_cast<int64_t>(i) % n % 3 == 0 ? -3 : 3;
        return out;
      };
      const Reference shift = moved(Reference({b, batch.max_frames, n}));
      check_op({.name = "transducer_joint",
                .inputs = {{b, batch.max_frames, n}, {b, batch.max_labels + 1, n}},
                .op =
                    [=](const Variables& v) {
                      const Variable f =
                          add(v[0], Variable(shift.tensor(v[0].dtype(), test_device())));
                      return transducer_joint(f, v[1], batch.frames_tensor(index, test_device()),
                                              batch.labels_tensor(index, test_device()), options);
                    },
                .reference =
                    [=](const References& in) {
                      return joint_of(moved(in[0]), in[1], batch, relu, packed);
                    }});
    }
}

const TransducerBatch some = transducer_batch(7, {4, 1, 6, 0, 3}, {3, 2, 0, 1, 5}, 1);

}  // namespace

TEST_CASE("transducer_joint") {
  check_case(some, 8);
  check_case(some, 5);
  check_case(some, 1);
  check_case(transducer_batch(3, {1}, {0}), 16);
  check_case(transducer_batch(3, {7, 9}, {4, 2}), 136);
}

TEST_CASE("transducer_joint: packed rows that no utterance has are zeros, and read by nobody") {
  constexpr int64_t spare = 300;
  const int64_t rows = some.packed_rows();
  const Tensor frames = some.frames_tensor(i64, test_device());
  const Tensor labels = some.labels_tensor(i64, test_device());
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t n : {8, 5})
      for (const double dropout : {0.0, 0.25, 1.0}) {
        CAPTURE(dtype);
        CAPTURE(n);
        CAPTURE(dropout);
        const auto to = [dtype](const Reference& r) { return r.tensor(dtype, test_device()); };
        const Tensor f = to(random_reference({some.size(), some.max_frames, n}, 1));
        const Tensor g = to(random_reference({some.size(), some.max_labels + 1, n}, 2));
        Reference dh = random_reference({rows, n}, 3);
        const auto run = [&](int64_t count) {
          dh.shape = {count, n};
          dh.values.resize(static_cast<size_t>(count * n), std::nan(""));
          const TransducerJointOptions options = {.dropout = dropout, .packed_rows = count};
          Tensor kept;
          const Tensor h = transducer_joint(f, g, frames, labels, options, {7, 1}, &kept);
          const auto [df, dg] =
              transducer_joint_backward(f, g, to(dh), frames, labels, options, kept);
          return References{Reference::of(h), Reference::of(df), Reference::of(dg)};
        };
        const References exact = run(rows), more = run(rows + spare);
        const auto end = more[0].values.begin() + rows * n;
        CHECK(std::equal(more[0].values.begin(), end, exact[0].values.begin()));
        CHECK(std::all_of(end, more[0].values.end(), [](double x) { return x == 0; }));
        CHECK(more[1].values == exact[1].values);
        CHECK(more[2].values == exact[2].values);
      }
  const Tensor none = Tensor::empty({0, 3, 4}, f32, test_device());
  const Tensor h = transducer_joint(none, none, {}, {}, {.packed_rows = 2});
  CHECK(Reference::of(h).values == std::vector<double>(8, 0));
}

TEST_CASE("transducer_joint: packed rows of an utterance that finds too few are zeros on a GPU") {
  const TransducerBatch batch = transducer_batch(3, {4, 3, 2}, {2, 3, 1});  // 12, 12 and 4 rows
  constexpr int64_t n = 5;
  const Tensor f = random_reference({3, 4, n}, 1).tensor(f32, test_device());
  const Tensor g = random_reference({3, 4, n}, 2).tensor(f32, test_device());
  const Tensor frames = batch.frames_tensor(i64, test_device());
  const Tensor labels = batch.labels_tensor(i64, test_device());
  const auto run = [&](int64_t rows) {
    return transducer_joint(f, g, frames, labels, {.relu = false, .packed_rows = rows});
  };
  if (test_device().is_cpu()) {
    CHECK_THROWS_WITH_AS(run(20), "transducer_joint: 20 packed rows, but lengths that make 28",
                         Error);
    return;
  }
  const std::vector<double> whole = Reference::of(run(28)).values;
  for (const int64_t rows : {27, 24, 20, 12, 11, 1}) {
    CAPTURE(rows);
    const int64_t fit = rows >= 24 ? 24 : rows >= 12 ? 12 : 0;
    // What the memory held before must not be seen.
    { const Tensor used = full({rows, n}, 3, f32, test_device()); }
    const std::vector<double> h = Reference::of(run(rows)).values;
    for (int64_t i = 0; i < rows * n; ++i) {
      const auto at = static_cast<size_t>(i);
      CHECK(h[at] == (i < fit * n ? whole[at] : 0));
    }
  }
}

TEST_CASE("transducer_joint of many frames and labels, in parts") {
  const TransducerBatch batch = transducer_batch(3, {150, 90}, {300, 10});
  const Reference f = random_reference({2, 150, 24}, 1);
  const Reference g = random_reference({2, 301, 24}, 2);
  const Reference dh = random_reference({2, 150, 301, 24}, 3);
  const Tensor frames = batch.frames_tensor(i64, test_device());
  const Tensor labels = batch.labels_tensor(i64, test_device());
  Reference df(f.shape), dg(g.shape);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < batch.frames[static_cast<size_t>(b)]; ++t)
      for (int64_t u = 0; u <= batch.labels[static_cast<size_t>(b)]; ++u)
        for (int64_t j = 0; j < 24; ++j) {
          if (f.at({b, t, j}) + g.at({b, u, j}) <= 0) continue;
          df.at({b, t, j}) += dh.at({b, t, u, j});
          dg.at({b, u, j}) += dh.at({b, t, u, j});
        }
  for (DType dtype : {f64, f32}) {
    const auto to = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    // Signs of f + g are those of the doubles unless a sum is within a rounding of zero.
    const auto run = [&] {
      return transducer_joint_backward(to(f), to(g), to(dh), frames, labels);
    };
    const auto [x, y] = run();
    check_close("df", Reference::of(x), df, 301 * epsilon(dtype));
    check_close("dg", Reference::of(y), dg, 150 * epsilon(dtype));
    const auto [again, too] = run();
    CHECK(Reference::of(x).values == Reference::of(again).values);
    CHECK(Reference::of(y).values == Reference::of(too).values);
  }
}

TEST_CASE("transducer_joint of a model's sizes, in types of 16 and 32 bits") {
  const TransducerBatch batch = transducer_batch(3, {101, 51, 77}, {25, 12, 18});
  const int64_t columns = batch.max_labels + 1;
  for (const DType dtype : {f16, bf16, f32}) {
    const int64_t n = dtype == f16 ? 512 : 509;
    CAPTURE(dtype);
    // The values as the type has them, so that signs of f + g are those of the reference.
    const auto rounded = [dtype](const Shape& shape, uint64_t seed) {
      return Reference::of(random_reference(shape, seed).tensor(dtype, Device::cpu()));
    };
    const Reference f = rounded({3, batch.max_frames, n}, 1);
    const Reference g = rounded({3, columns, n}, 2);
    const Reference dh = rounded({batch.packed_rows(), n}, 3);
    const auto to = [dtype](const Reference& r) { return r.tensor(dtype, test_device()); };
    const TransducerJointOptions options = {.packed_rows = batch.packed_rows()};
    const Tensor frames = batch.frames_tensor(i32, test_device());
    const Tensor labels = batch.labels_tensor(i32, test_device());
    const Reference h = Reference::of(transducer_joint(to(f), to(g), frames, labels, options));
    const Reference expected = joint_of(f, g, batch, true, true);
    for (size_t i = 0; i < h.values.size(); ++i)
      REQUIRE(std::abs(h[i] - expected[i]) <= epsilon(dtype) * expected[i]);
    Reference df(f.shape), dg(g.shape);
    for (size_t b = 0, row = 0; b < 3; ++b)
      for (int64_t t = 0; t < batch.frames[b]; ++t)
        for (int64_t u = 0; u <= batch.labels[b]; ++u, ++row)
          for (int64_t j = 0; j < n; ++j) {
            if (expected[row * static_cast<size_t>(n) + static_cast<size_t>(j)] <= 0) continue;
            const double d = dh[row * static_cast<size_t>(n) + static_cast<size_t>(j)];
            df.at({static_cast<int64_t>(b), t, j}) += d;
            dg.at({static_cast<int64_t>(b), u, j}) += d;
          }
    const auto [x, y] = transducer_joint_backward(to(f), to(g), to(dh), frames, labels, options);
    // One rounding of the result, and of sums of up to 26 and 101 terms below 1 in f32.
    const auto check = [dtype](const Reference& actual, const Reference& sums, double terms) {
      for (size_t i = 0; i < sums.values.size(); ++i)
        REQUIRE(std::abs(actual[i] - sums[i]) <=
                epsilon(dtype) * std::abs(sums[i]) + terms * terms / 2 * epsilon(f32));
    };
    check(Reference::of(x), df, 26);
    check(Reference::of(y), dg, 101);
  }
}

TEST_CASE("transducer_joint of more utterances than a warp has lanes, some of them empty") {
  std::vector<int64_t> frames, labels;
  for (int64_t b = 0; b < 75; ++b) {
    frames.push_back(b % 7 == 3 || (b > 30 && b < 66) ? 0 : 1 + b * 5 % 23);
    labels.push_back(b * 3 % 11);
  }
  const TransducerBatch batch = transducer_batch(3, frames, labels);
  const int64_t n = 264;
  const Reference f = random_reference({75, batch.max_frames, n}, 1);
  const Reference g = random_reference({75, batch.max_labels + 1, n}, 2);
  const Reference dh = random_reference({batch.packed_rows(), n}, 3);
  const auto to = [](const Reference& r) { return r.tensor(f64, test_device()); };
  const auto [x, y] = transducer_joint_backward(
      to(f), to(g), to(dh), batch.frames_tensor(i64, test_device()),
      batch.labels_tensor(i64, test_device()), {.packed_rows = batch.packed_rows()});
  Reference df(f.shape), dg(g.shape);
  size_t at = 0;
  for (int64_t b = 0; b < 75; ++b)
    for (int64_t t = 0; t < frames[static_cast<size_t>(b)]; ++t)
      for (int64_t u = 0; u <= labels[static_cast<size_t>(b)]; ++u)
        for (int64_t j = 0; j < n; ++j, ++at) {
          if (f.at({b, t, j}) + g.at({b, u, j}) <= 0) continue;
          df.at({b, t, j}) += dh[at];
          dg.at({b, u, j}) += dh[at];
        }
  check_close("df", Reference::of(x), df, 11 * epsilon(f64));
  check_close("dg", Reference::of(y), dg, 23 * epsilon(f64));
}

TEST_CASE("a batch worked through part by part has the gradients of the whole") {
  const TransducerBatch batch =
      transducer_batch(6, {9, 20, 14, 1, 12, 7, 20, 5}, {10, 4, 3, 0, 7, 2, 1, 6});
  const auto variable = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  const int64_t n = 13;
  const Tensor targets = batch.targets_tensor(i64, test_device());
  const Tensor frames = batch.frames_tensor(i64, test_device());
  const Tensor labels = batch.labels_tensor(i64, test_device());
  const auto run = [&](int64_t parts, bool packed, double factor) {
    const Variable f = variable({8, batch.max_frames, n}, 1);
    const Variable g = variable({8, batch.max_labels + 1, n}, 2);
    const Variable w = variable({n, 6}, 3);
    const PartLoss loss = [&](const std::vector<Variable>& cut, const std::vector<Variable>& whole,
                              int64_t begin, int64_t end) {
      TransducerJointOptions options = {.dropout = 0.25, .first_utterance = begin};
      const Tensor t = frames.slice(0, begin, end);
      const Tensor u = labels.slice(0, begin, end);
      if (packed) options.packed_rows = transducer_packed_rows(t, u);
      const Variable h = transducer_joint(cut[0], cut[1], t, u, options, RandomState{3, 4});
      return transducer_loss(matmul(h, whole[0]), targets.slice(0, begin, end), t, u,
                             {.reduction = Reduction::sum});
    };
    const Variable total = part_by_part({mul(f, 2.0), g}, {w}, parts, loss, 0.5);
    (total * factor).backward();
    return References{Reference::of(total.data()), Reference::of(f.grad()), Reference::of(g.grad()),
                      Reference::of(w.grad())};
  };
  const References whole = run(1, false, 0.5);
  CHECK(largest(whole[1]) > 0);
  for (int64_t parts : {2, 3, 8})
    for (bool packed : {false, true}) {
      const References split = run(parts, packed, 0.5);
      check_close("loss", split[0], whole[0], 1e-12 * largest(whole[0]));
      // Products of other shapes may add in another order; nothing else may differ.
      for (size_t i = 1; i < 4; ++i)
        check_close("gradient", split[i], whole[i], 1e-13 * largest(whole[i]));
    }
  // Another gradient than parts were taken backward with.
  const References other = run(3, true, -1.5);
  for (size_t i = 1; i < 4; ++i)
    for (size_t k = 0; k < whole[i].values.size(); ++k)
      REQUIRE(std::abs(other[i][k] + 3 * whole[i][k]) <= 1e-12 * largest(whole[i]));
}

TEST_CASE("part_by_part: variables without gradients, and what does not fit") {
  const Variable f(random_reference({4, 3}, 1).tensor(f64, test_device()), true);
  const Variable g(random_reference({4, 2}, 2).tensor(f64, test_device()));
  const Variable w(random_reference({3, 2}, 3).tensor(f64, test_device()));
  const PartLoss loss = [](const std::vector<Variable>& cut, const std::vector<Variable>& whole,
                           int64_t begin, int64_t end) {
    CHECK(cut[0].size(0) == end - begin);
    return sum(matmul(cut[0], whole[0]) * cut[1]);
  };
  const Variable one = part_by_part({f, g}, {w}, 4, loss);
  const Variable all = loss({f, g}, {w}, 0, 4);
  CHECK(one.data().item() == doctest::Approx(all.data().item()).epsilon(1e-14));
  one.backward();
  const Reference split = Reference::of(f.grad());
  f.zero_grad();
  all.backward();
  check_close("gradient", split, Reference::of(f.grad()), 1e-14);
  CHECK_FALSE(g.grad().defined());
  CHECK_FALSE(w.grad().defined());
  {
    const NoGrad no_grad;
    CHECK_FALSE(part_by_part({f, g}, {w}, 2, loss).requires_grad());
  }
  CHECK_THROWS_WITH_AS(part_by_part({f, g}, {w}, 5, loss), "part_by_part: 5 parts of a batch of 4",
                       Error);
  CHECK_THROWS_WITH_AS(part_by_part({f, w}, {}, 2, loss),
                       "part_by_part: [4, 3] and [3, 2] of different batches", Error);
  CHECK_THROWS_WITH_AS(part_by_part({}, {w}, 1, loss), "part_by_part: nothing to cut", Error);
  CHECK_THROWS_WITH_AS(part_by_part({f}, {w}, 1, loss, 0), "part_by_part: a scale of zero", Error);
}

TEST_CASE("transducer_joint refuses what does not fit") {
  const Tensor f = Tensor::empty({2, 3, 4}, f32);
  const Tensor g = Tensor::empty({2, 5, 4}, f32);
  const Tensor lengths = Tensor::from<int64_t>({3, 2});
  CHECK_THROWS_WITH_AS(
      transducer_joint(f, Tensor::empty({2, 5, 3}, f32)),
      "transducer_joint: f [2, 3, 4] and g [2, 5, 3], expected [batch, frames, n] and [batch, "
      "labels + 1, n]",
      Error);
  CHECK_THROWS_WITH_AS(transducer_joint(f, Tensor::empty({2, 5, 4}, f64)),
                       "transducer_joint: dtypes f32 and f64 differ", Error);
  CHECK_THROWS_WITH_AS(transducer_joint(f, g, {}, {}, {.dropout = 1.5}),
                       "transducer_joint: dropout 1.5 is not within [0, 1]", Error);
  CHECK_THROWS_WITH_AS(
      transducer_joint(f, g, {}, {}, {.dropout = 0.5, .first_utterance = int64_t{1} << 31}),
      "transducer_joint: dropout for f [2, 3, 4] and g [2, 5, 4] from utterance 2147483648 on is "
      "too much",
      Error);
  const Tensor dh = Tensor::empty({2, 3, 5, 4}, f32);
  CHECK_THROWS_WITH_AS(transducer_joint_backward(f, g, dh, {}, {}, {.dropout = 0.5}),
                       "transducer_joint_backward: dropout 0.5 without what the forward kept",
                       Error);
  // Cells of four frames: 30 / 4 rows, and 5 of each utterance, with a field of 16 bits each.
  CHECK_THROWS_WITH_AS(
      transducer_joint_backward(f, g, dh, {}, {}, {.dropout = 0.5}, Tensor::empty({8}, i32)),
      "transducer_joint_backward: kept [8] of dtype i32, expected [9] of i32", Error);
  CHECK_THROWS_WITH_AS(transducer_joint(f, g, Tensor::from<int64_t>({3})),
                       "transducer_joint: logit_lengths [1] for 2 utterances", Error);
  CHECK_THROWS_WITH_AS(transducer_joint(f, g, lengths, lengths, {.packed_rows = 5}),
                       "transducer_joint: 5 packed rows, but lengths that make 18", Error);
  CHECK_THROWS_WITH_AS(transducer_joint(f, g, Tensor::from<int64_t>({3, 4}), lengths),
                       "transducer_joint: logit_lengths[1] is 4, outside of [0, 3]", Error);
  CHECK(transducer_packed_rows(lengths, lengths) == 18);
  CHECK_THROWS_WITH_AS(transducer_packed_rows(lengths, Tensor::from<int64_t>({1, -2})),
                       "transducer_packed_rows: 2 frames and -2 labels of utterance 1", Error);
  CHECK_THROWS_WITH_AS(transducer_packed_rows(full({2}, 0x1p40, i64), full({2}, 0x1p40, i64)),
                       "transducer_packed_rows: 2.41785e+24 rows are too many", Error);
}
