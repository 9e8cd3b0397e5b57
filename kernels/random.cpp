#include <bs/kernels/random.h>

#include <bs/kernels/distribution.h>
#include <bs/lib/changes.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace bs {

namespace {

void check_probability(const char* op, double p) {
  BS_CHECK(p >= 0 && p <= 1, "{}: probability {} is not within [0, 1]", op, p);
}

void check_dense(const char* op, const Tensor& x) {
  BS_CHECK(x.is_contiguous(), "{}: shape {} with strides {} has gaps", op, x.shape(), x.strides());
}

/// The integers that `dtype` holds without rounding: [first, last].
struct IntegerRange {
  int64_t first, last;
};

IntegerRange exact_integers(DType dtype) {
  const auto symmetric = [](int64_t n) { return IntegerRange{-n, n}; };
  switch (dtype) {
    case DType::boolean:
      return {0, 1};
    case DType::u8:
      return {0, 255};
    case DType::i32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::i64:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    case DType::f16:
      return symmetric(int64_t{1} << 11);
    case DType::bf16:
      return symmetric(int64_t{1} << 8);
    case DType::f32:
      return symmetric(int64_t{1} << 24);
    default:
      return symmetric(int64_t{1} << 53);
  }
}

}  // namespace

Tensor rand(const Shape& shape, DType dtype, Device device, Generator& generator) {
  Tensor x = Tensor::empty(shape, dtype, device);
  uniform_(x, 0, 1, generator);
  return x;
}

Tensor randn(const Shape& shape, DType dtype, Device device, Generator& generator) {
  Tensor x = Tensor::empty(shape, dtype, device);
  normal_(x, 0, 1, generator);
  return x;
}

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  check_dense("uniform_", x);
  BS_CHECK(low < high && std::isfinite(high - low), "uniform_: no numbers in [{}, {})", low, high);
  const RandomState state = generator.next();
  note_change(x, "uniform_");
  if (x.numel() > 0) BS_DISPATCH(x.device(), uniform, x, low, high, state);
}

void normal_(const Tensor& x, double mean, double deviation, Generator& generator) {
  check_dense("normal_", x);
  BS_CHECK(deviation >= 0, "normal_: deviation {} is negative", deviation);
  const RandomState state = generator.next();
  note_change(x, "normal_");
  if (x.numel() > 0) BS_DISPATCH(x.device(), normal, x, mean, deviation, state);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype, Device device,
               Generator& generator) {
  BS_CHECK(low < high, "randint: no integers in [{}, {})", low, high);
  const IntegerRange held = exact_integers(dtype);
  BS_CHECK(low >= held.first && high - 1 <= held.last,
           "randint: {} does not hold all integers of [{}, {})", dtype, low, high);
  Tensor x = Tensor::empty(shape, dtype, device);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const RandomState state = generator.next();
  if (x.numel() > 0) BS_DISPATCH(device, randint, x, low, range, state);
  return x;
}

Tensor bernoulli(double p, const Shape& shape, DType dtype, Device device, Generator& generator) {
  check_probability("bernoulli", p);
  Tensor x = Tensor::empty(shape, dtype, device);
  const RandomState state = generator.next();
  if (x.numel() > 0) BS_DISPATCH(device, bernoulli, x, p, state);
  return x;
}

Tensor permutation(int64_t n, Generator& generator) {
  BS_CHECK(n >= 0 && n <= int64_t{1} << 32, "permutation: of {} numbers", n);
  const RandomState state = generator.next();
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (uint64_t i = numbers.size(); i-- > 1;) {
    const PhiloxBlock b = philox(state.seed, i, state.offset);
    std::swap(numbers[i], numbers[below(join(b.word[0], b.word[1]), i + 1)]);
  }
  return Tensor::from<int64_t>(numbers, {n});
}

}  // namespace bs
