#include <bs/kernels/transducer_joint.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/integers.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bs {

namespace {

/// Lengths as the backends take them: undefined where they are all the full ones.
Tensor lengths_of(const char* op, const char* what, const Tensor& given, const Tensor& x) {
  if (!given.defined()) return {};
  BS_CHECK(given.rank() == 1 && given.size(0) == x.size(0), "{}: {} {} for {} utterances", op, what,
           given.shape(), x.size(0));
  BS_CHECK(given.dtype() == i64 || given.dtype() == i32, "{}: {} of dtype {}, expected i64 or i32",
           op, what, given.dtype());
  check_same_device(op, given, x);
  return contiguous(given);
}

TransducerSizes sizes_of(const char* op, const Tensor& f, const Tensor& g,
                         const TransducerJointOptions& options) {
  BS_CHECK(f.rank() == 3 && g.rank() == 3 && f.size(0) == g.size(0) && f.size(2) == g.size(2),
           "{}: f {} and g {}, expected [batch, frames, n] and [batch, labels + 1, n]", op,
           f.shape(), g.shape());
  BS_CHECK(is_floating(f.dtype()), "{}: f of dtype {}", op, f.dtype());
  check_same_dtype(op, f, g);
  check_same_device(op, f, g);
  BS_CHECK(g.size(1) > 0, "{}: g {} has no column for the start", op, g.shape());
  BS_CHECK(options.dropout >= 0 && options.dropout <= 1, "{}: dropout {} is not within [0, 1]", op,
           options.dropout);
  // Numbers of frames, and of blocks of random bits in one, have 32 bits each.
  const auto fits = [](int64_t a, int64_t b) { return b == 0 || a <= UINT32_MAX / b; };
  const int64_t first = options.first_utterance;
  BS_CHECK(options.dropout == 0 ||
               (first >= 0 && first <= UINT32_MAX && fits(first + f.size(0), f.size(1)) &&
                fits(g.size(1), ceil_div(f.size(2), 8))),
           "{}: dropout for f {} and g {} from utterance {} on is too much", op, f.shape(),
           g.shape(), first);
  const bool packed = options.packed_rows >= 0;
  return {.batch = f.size(0),
          .frames = f.size(1),
          .labels = g.size(1) - 1,
          .classes = f.size(2),
          .rows = packed ? options.packed_rows : Shape{f.size(0), f.size(1), g.size(1)}.product(),
          .packed = packed};
}

/// Checks all but gradients and what was kept.
TransducerJointProblem problem_of(const char* op, const Tensor& f, const Tensor& g,
                                  const Tensor& logit_lengths, const Tensor& target_lengths,
                                  const TransducerJointOptions& options, RandomState state) {
  return {.sizes = sizes_of(op, f, g, options),
          .logit_lengths = lengths_of(op, "logit_lengths", logit_lengths, f),
          .target_lengths = lengths_of(op, "target_lengths", target_lengths, f),
          .options = options,
          .state = state};
}

Shape result_shape(const TransducerSizes& s) {
  if (s.packed) return {s.rows, s.classes};
  return {s.batch, s.frames, s.labels + 1, s.classes};
}

/// Words of bits where some elements are dropped and some are not, else -1.
int64_t words_of_bits(DType dtype, const TransducerSizes& s,
                      const TransducerJointOptions& options) {
  const uint32_t patterns = detail::joint_dropout(options.dropout).patterns;
  return patterns == 0 || patterns == 65536 ? -1 : detail::JointBits(dtype, s).words(s);
}

}  // namespace

detail::JointDropout detail::joint_dropout(double p) {
  constexpr uint32_t infinity = 0x7f80, minus = 0x8000;
  if (p >= 1) return {65536, 0, 0};
  // Below zero there are as many as infinity has bits; the two zeros come together.
  auto patterns = std::min(static_cast<uint32_t>(std::lround(p * 65536)), 2 * infinity + 1);
  if (patterns == infinity + 1) ++patterns;
  const uint32_t bound =
      patterns <= infinity ? minus + infinity - patterns : patterns - infinity - 1;
  return {patterns, static_cast<uint16_t>(bound), 65536 / static_cast<double>(65536 - patterns)};
}

int64_t transducer_packed_rows(const Tensor& logit_lengths, const Tensor& target_lengths) {
  check_same_shape("transducer_packed_rows", logit_lengths, target_lengths);
  check_unrecorded("transducer_packed_rows", logit_lengths.device(), "reads lengths on the host");
  const Tensor frames = cast(logit_lengths, f64).to(Device::cpu());
  const Tensor labels = cast(target_lengths, f64).to(Device::cpu());
  double rows = 0;
  for (int64_t b = 0; b < frames.numel(); ++b) {
    const double t = frames.select(0, b).item(), u = labels.select(0, b).item();
    BS_CHECK(t >= 0 && u >= 0, "transducer_packed_rows: {} frames and {} labels of utterance {}", t,
             u, b);
    rows += t * (u + 1);
  }
  BS_CHECK(rows <= 0x1p53, "transducer_packed_rows: {} rows are too many", rows);
  return static_cast<int64_t>(rows);
}

Tensor transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths,
                        const Tensor& target_lengths, const TransducerJointOptions& options,
                        RandomState state, Tensor* kept) {
  const TransducerJointProblem problem =
      problem_of("transducer_joint", f, g, logit_lengths, target_lengths, options, state);
  const TransducerSizes& s = problem.sizes;
  Tensor h = Tensor::empty(result_shape(s), f.dtype(), f.device());
  const int64_t words = words_of_bits(f.dtype(), s, options);
  const Tensor bits = words < 0 ? Tensor() : Tensor::empty({words}, i32, f.device());
  if (s.batch > 0) {
    BS_DISPATCH(f.device(), transducer_joint, contiguous(f), contiguous(g), h, bits, problem);
  } else {
    fill(h, 0);
  }
  if (kept != nullptr) *kept = bits;
  return h;
}

std::pair<Tensor, Tensor> transducer_joint_backward(const Tensor& f, const Tensor& g,
                                                    const Tensor& dh, const Tensor& logit_lengths,
                                                    const Tensor& target_lengths,
                                                    const TransducerJointOptions& options,
                                                    const Tensor& kept) {
  const char* op = "transducer_joint_backward";
  const TransducerJointProblem problem =
      problem_of(op, f, g, logit_lengths, target_lengths, options, {});
  const TransducerSizes& s = problem.sizes;
  BS_CHECK(dh.shape() == result_shape(s), "{}: dh {} for a joint {}", op, dh.shape(),
           result_shape(s));
  check_same_dtype(op, f, dh);
  check_same_device(op, f, dh);
  const int64_t words = words_of_bits(f.dtype(), s, options);
  if (words >= 0) {
    BS_CHECK(kept.defined(), "{}: dropout {} without what the forward kept", op, options.dropout);
    BS_CHECK(kept.shape() == Shape{words} && kept.dtype() == i32 && kept.is_contiguous(),
             "{}: kept {} of dtype {}, expected [{}] of i32", op, kept.shape(), kept.dtype(),
             words);
    check_same_device(op, f, kept);
  }
  if (options.dropout == 1)
    return {zeros(f.shape(), f.dtype(), f.device()), zeros(g.shape(), g.dtype(), g.device())};
  std::pair<Tensor, Tensor> out = {Tensor::empty(f.shape(), f.dtype(), f.device()),
                                   Tensor::empty(g.shape(), g.dtype(), g.device())};
  if (s.batch > 0)
    BS_DISPATCH(f.device(), transducer_joint_backward, contiguous(f), contiguous(g), contiguous(dh),
                kept, out.first, out.second, problem);
  return out;
}

}  // namespace bs
