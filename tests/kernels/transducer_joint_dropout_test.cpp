#include <bs/kernels/fill.h>
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>
#include <bs/tests/kernels/transducer_reference.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

const TransducerBatch some = transducer_batch(7, {4, 1, 6, 0, 3}, {3, 2, 0, 1, 5}, 1);

/// Which elements are dropped: padded and packed, on both devices. Gives padded results.
Reference check_dropped(const Reference& f, const Reference& g, RandomState state) {
  const int64_t n = f.shape[2];
  const auto run = [&](Device device, bool packed, double p) {
    return Reference::of(
        transducer_joint(f.tensor(f32, device), g.tensor(f32, device),
                         some.frames_tensor(i64, device), some.labels_tensor(i64, device),
                         {.dropout = p, .packed_rows = packed ? some.packed_rows() : -1}, state));
  };
  const Reference kept = run(test_device(), false, 0);
  const Reference padded = run(test_device(), false, 0.3);
  CHECK(padded.values == run(Device::cpu(), false, 0.3).values);
  const double p = std::round(0.3 * 65536) / 65536;
  double dropped = 0;
  double all = 0;
  for (size_t i = 0; i < kept.values.size(); ++i) {
    if (kept[i] == 0) continue;
    all += 1;
    dropped += padded[i] == 0;
    if (padded[i] != 0) CHECK(padded[i] == doctest::Approx(kept[i] / (1 - p)).epsilon(1e-6));
  }
  CHECK(std::abs(dropped / all - p) <= 4 * std::sqrt(p * (1 - p) / all));
  std::vector<double> within;  // padded values in packed order
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t t = 0; t < some.frames[static_cast<size_t>(b)]; ++t)
      for (int64_t u = 0; u <= some.labels[static_cast<size_t>(b)]; ++u)
        for (int64_t j = 0; j < n; ++j) within.push_back(padded.at({b, t, u, j}));
  CHECK(run(test_device(), true, 0.3).values == within);
  for (double v : run(test_device(), false, 1).values) REQUIRE(v == 0);
  return padded;
}

/// Linear where elements are kept: each has the gradient of its own, times the factor, or none.
void check_dropout(int64_t n) {
  CAPTURE(n);
  const Reference f = random_reference({5, some.max_frames, n}, 4, 0.5, 1);
  const Reference g = random_reference({5, some.max_labels + 1, n}, 5, 0.5, 1);
  const RandomState state{7, 9};
  const Reference padded = check_dropped(f, g, state);
  const double p = std::round(0.3 * 65536) / 65536;
  const auto device = test_device();
  for (bool packed : {false, true}) {
    CAPTURE(packed);
    const Reference dh = random_reference(packed ? Shape{some.packed_rows(), n} : padded.shape, 6);
    const TransducerJointOptions options = {.dropout = 0.3,
                                            .packed_rows = packed ? some.packed_rows() : -1};
    const Tensor frames = some.frames_tensor(i64, device);
    const Tensor labels = some.labels_tensor(i64, device);
    Tensor bits;
    transducer_joint(f.tensor(f64, device), g.tensor(f64, device), frames, labels, options, state,
                     &bits);
    const auto [df, dg] =
        transducer_joint_backward(f.tensor(f64, device), g.tensor(f64, device),
                                  dh.tensor(f64, device), frames, labels, options, bits);
    Reference x(f.shape), y(g.shape);
    size_t at = 0;  // of packed dh
    for (int64_t b = 0; b < 5; ++b)
      for (int64_t t = 0; t < some.frames[static_cast<size_t>(b)]; ++t)
        for (int64_t u = 0; u <= some.labels[static_cast<size_t>(b)]; ++u)
          for (int64_t j = 0; j < n; ++j) {
            const double d = packed ? dh[at++] : dh.at({b, t, u, j});
            if (padded.at({b, t, u, j}) == 0) continue;
            x.at({b, t, j}) += d / (1 - p);
            y.at({b, u, j}) += d / (1 - p);
          }
    check_close("df", Reference::of(df), x, 1e-14);
    check_close("dg", Reference::of(dg), y, 1e-14);
  }
}

/// Rows of which neighbouring threads share random bits, in every type: as on the CPU, to which
/// what was kept here means the same.
void check_dropout_of(DType dtype, int64_t n, double p, bool relu) {
  CAPTURE(dtype);
  CAPTURE(n);
  CAPTURE(p);
  CAPTURE(relu);
  const Reference f = random_reference({5, some.max_frames, n}, 4);
  const Reference g = random_reference({5, some.max_labels + 1, n}, 5);
  const Reference dh = random_reference({5, some.max_frames, some.max_labels + 1, n}, 6);
  const TransducerJointOptions options = {.relu = relu, .dropout = p, .first_utterance = 2};
  const RandomState state{uint64_t{7} << 40, 9};
  const auto run = [&](Device device, Device backward_device) {
    Device on = device;
    const auto to = [&](const Reference& r) { return r.tensor(dtype, on); };
    const auto frames = [&] { return some.frames_tensor(i64, on); };
    const auto labels = [&] { return some.labels_tensor(i64, on); };
    Tensor kept;
    const Tensor h = transducer_joint(to(f), to(g), frames(), labels(), options, state, &kept);
    on = backward_device;
    const auto [df, dg] =
        transducer_joint_backward(to(f), to(g), to(dh), frames(), labels(), options, kept.to(on));
    return References{Reference::of(h), Reference::of(df), Reference::of(dg)};
  };
  const References here = run(test_device(), test_device());
  const References cpu = run(Device::cpu(), Device::cpu());
  CHECK(here[0].values == cpu[0].values);
  const References there = run(test_device(), Device::cpu());
  CHECK(there[1].values == cpu[1].values);
  CHECK(there[2].values == cpu[2].values);
  // Sums of up to 7 terms below 1 / (1 - p), in another order, and one rounding of the result.
  const double bound = 7 * epsilon(dtype == f64 ? f64 : f32) * 7 / (1 - p);
  for (size_t k = 1; k < 3; ++k)
    for (size_t i = 0; i < cpu[k].values.size(); ++i)
      REQUIRE(std::abs(here[k][i] - cpu[k][i]) <= bound + epsilon(dtype) * std::abs(cpu[k][i]));
}

}  // namespace

TEST_CASE("transducer_joint drops the same elements padded, packed, on both devices and backward") {
  for (const int64_t n : {21, 24}) check_dropout(n);
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t n : {13, 8, 136})
      for (const double p : {0.002, 0.3, 0.5, 0.95}) check_dropout_of(dtype, n, p, n != 8);
}

TEST_CASE("transducer_joint drops what its header says") {
  // All bfloat16 that are numbers, in order.
  std::vector<float> numbers;
  const auto number = [](uint32_t bits) { return std::bit_cast<float>(bits << 16); };
  for (uint32_t bits = 0; bits < 65536; ++bits)
    if (!std::isnan(number(bits))) numbers.push_back(number(bits));
  std::sort(numbers.begin(), numbers.end());
  const RandomState state{uint64_t{5} << 33 | 77, uint64_t{3} << 35 | 4};
  const int64_t batch = 2, frames = 5, columns = 3, n = 43, first_utterance = 6;
  const Tensor f = ones({batch, frames, n}, f64, test_device());
  const Tensor g = zeros({batch, columns, n}, f64, test_device());
  for (const double p : {0.002, 0.1, 0.3, 0.4981, 0.5, 0.75, 0.996, 0.9999}) {
    CAPTURE(p);
    const auto wanted = static_cast<size_t>(std::lround(p * 65536));
    const float bound = numbers[std::min(wanted, numbers.size() - 1)];
    const auto below = static_cast<double>(std::lower_bound(numbers.begin(), numbers.end(), bound) -
                                           numbers.begin());
    if (p < 0.996) CHECK(std::abs(below / 65536 - p) <= 0.5 / 65536);
    const Reference h = Reference::of(
        transducer_joint(f, g, {}, {}, {.dropout = p, .first_utterance = first_utterance}, state));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < frames; ++t)
        for (int64_t u = 0; u < columns; ++u)
          for (int64_t j = 0; j < n; ++j) {
            const auto frame = static_cast<uint64_t>((first_utterance + b) * frames + t);
            const auto block = static_cast<uint64_t>(u * 6 + j / 8);
            const PhiloxBlock bits = philox<7>(state.seed, frame << 32 | block, state.offset);
            const uint32_t own = bits.word[j % 8 / 2] >> (16 * (j % 2)) & 0xffffU;
            const double expected = number(own) < bound ? 0 : 65536 / (65536 - below);
            REQUIRE(std::abs(h.at({b, t, u, j}) - expected) <= 1e-13 * expected);
          }
  }
}

TEST_CASE("transducer_joint drops as often as told, and independently of what lies beside") {
  const Tensor f = ones({2, 40, 130}, f32, test_device());
  const Tensor g = zeros({2, 20, 130}, f32, test_device());
  const double all = 2 * 40 * 20 * 130;
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    CAPTURE(p);
    const Reference h = Reference::of(transducer_joint(f, g, {}, {}, {.dropout = p}, {11, 3}));
    double dropped = 0;
    for (double v : h.values) dropped += v == 0;
    // Five standard deviations of a binomial count; those of pairs with both dropped are as many
    // as of independent trials with p^2.
    CHECK(std::abs(dropped - all * p) <= 5 * std::sqrt(all * p * (1 - p)));
    for (const size_t apart : {size_t{1}, size_t{2}, size_t{8}, size_t{130}, size_t{130 * 20}}) {
      double both = 0;
      const size_t pairs = h.values.size() - apart;
      for (size_t i = 0; i < pairs; ++i) both += h[i] == 0 && h[i + apart] == 0;
      // Pairs that share an element are correlated: at most twice p^3 more a pair.
      const double variance = p * p * (1 - p * p) + 2 * p * p * p * (1 - p);
      CHECK(std::abs(both - static_cast<double>(pairs) * p * p) <=
            5 * std::sqrt(static_cast<double>(pairs) * variance));
    }
  }
}

TEST_CASE("transducer_joint that drops everything leaves zeros, and no gradient") {
  const Tensor f = full({2, 3, 8}, infinity, f32, test_device());
  const Tensor g = ones({2, 4, 8}, f32, test_device());
  const Tensor h = transducer_joint(f, g, {}, {}, {.dropout = 1});
  for (double v : Reference::of(h).values) REQUIRE(v == 0);
  const Tensor dh = full(h.shape(), infinity, f32, test_device());
  const auto [df, dg] = transducer_joint_backward(f, g, dh, {}, {}, {.dropout = 1});
  for (double v : Reference::of(df).values) REQUIRE(v == 0);
  for (double v : Reference::of(dg).values) REQUIRE(v == 0);
}

TEST_CASE("transducer_joint: what is not a number has gradients, with dropout too") {
  const int64_t n = 16;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const bool relu : {false, true})
      for (const double p : {0.0, 0.25}) {
        CAPTURE(dtype);
        CAPTURE(relu);
        CAPTURE(p);
        const Tensor f = full({1, 2, n}, nan, dtype, test_device());
        const Tensor g = full({1, 3, n}, -infinity, dtype, test_device());
        Tensor kept;
        const Tensor h =
            transducer_joint(f, g, {}, {}, {.relu = relu, .dropout = p}, {1, 2}, &kept);
        CHECK(kept.defined() == (p > 0));
        const auto [df, dg] = transducer_joint_backward(f, g, ones(h.shape(), dtype, test_device()),
                                                        {}, {}, {.relu = relu, .dropout = p}, kept);
        const Reference y = Reference::of(h);
        Reference sums({1, 2, n});
        for (int64_t t = 0; t < 2; ++t)
          for (int64_t u = 0; u < 3; ++u)
            for (int64_t j = 0; j < n; ++j) {
              const double v = y.at({0, t, u, j});
              CHECK((std::isnan(v) || (p > 0 && v == 0)));
              sums.at({0, t, j}) += std::isnan(v) ? 1 / (1 - p) : 0;
            }
        check_close("df", Reference::of(df), sums, 4 * epsilon(dtype));
      }
}
