#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/gemm_operation.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace bs::cpu {

namespace {

using epilogue::Binary;
using epilogue::Operand;
using epilogue::Reduction;
using epilogue::Step;
using epilogue::Unary;

/// Calls f with a function that reads an element of a tensor, as a double.
template <class F>
void with_reader(Element element, const Tensor& t, F&& f) {
  switch (element) {
    case Element::i8:
      return f([p = t.data<uint8_t>()](int64_t i) -> double { return static_cast<int8_t>(p[i]); });
    case Element::i32:
      return f([p = t.data<int32_t>()](int64_t i) -> double { return p[i]; });
    case Element::e4m3:
    case Element::e5m2:
      return f([p = t.data<uint8_t>(), element](int64_t i) -> double {
        return decode_fp8(p[i], element);
      });
    default:
      visit_floating("gemm", t.dtype(), [&]<class T>(Type<T>) {
        f([p = t.data<T>()](int64_t i) { return static_cast<double>(p[i]); });
      });
  }
}

/// Rounds to the nearest element, as device/gemm_element.cuh does.
void store(Element element, const Tensor& t, int64_t at, double x) {
  const auto whole = [&](double low, double high) {
    return std::isnan(x) ? 0.0 : std::clamp(std::nearbyint(x), low, high);
  };
  switch (element) {
    case Element::i8:
      t.data<uint8_t>()[at] = static_cast<uint8_t>(static_cast<int8_t>(whole(-128, 127)));
      return;
    case Element::i32:
      t.data<int32_t>()[at] = static_cast<int32_t>(
          whole(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
      return;
    case Element::e4m3:
    case Element::e5m2:
      t.data<uint8_t>()[at] = encode_fp8(static_cast<float>(x), element);
      return;
    default:
      visit_floating("gemm", t.dtype(),
                     [&]<class T>(Type<T>) { t.data<T>()[at] = static_cast<T>(x); });
  }
}

/// What the multiplier gets of an operand's element.
double multiplied(const MathInstruction& math, double x) {
  if (math.a != Element::f32 && math.a != Element::tf32) return x;
  if (math.op_class == OpClass::simt || math.operation == MathOperation::fast_f32) return x;
  const auto single = static_cast<float>(x);
  if (math.operation == MathOperation::fast_f16) return static_cast<double>(half(single));
  if (math.operation == MathOperation::fast_bf16) return static_cast<double>(bfloat16(single));
  return round_to_tf32(single);
}

/// A matrix of one product, dense and row by row, as the multiplier gets it.
std::vector<double> gather(const MathInstruction& math, Element element, const Tensor& t) {
  const int64_t rows = t.size(0), columns = t.size(1);
  std::vector<double> out(static_cast<size_t>(rows * columns));
  with_reader(element, t, [&](const auto& read) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out[static_cast<size_t>(i * columns + j)] =
            multiplied(math, read(i * t.strides()[0] + j * t.strides()[1]));
  });
  return out;
}

/// A sum as the accumulator holds it.
double accumulated(const MathInstruction& math, double sum) {
  switch (math.accumulator) {
    case Element::f32:
      return static_cast<float>(sum);
    case Element::f16:
      return static_cast<double>(half(static_cast<float>(sum)));
    case Element::i32:
      if (math.operation == MathOperation::multiply_add_saturate)
        return std::clamp<double>(sum, std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max());
      return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
    default:
      return sum;
  }
}

template <class W>
W apply(Unary op, W x, W first, W second) {
  const auto clamped = [](W v, W low, W high) { return v < low ? low : v > high ? high : v; };
  switch (op) {
    case Unary::negate:
      return -x;
    case Unary::relu:
      return x < 0 ? W(0) : x;
    case Unary::leaky_relu:
      return x < 0 ? first * x : x;
    case Unary::tanh:
      return std::tanh(x);
    case Unary::sigmoid:
      return W(1) / (W(1) + std::exp(-x));
    case Unary::silu:
      return x / (W(1) + std::exp(-x));
    case Unary::hardswish:
      return x * clamped(x + W(3), W(0), W(6)) / W(6);
    case Unary::gelu:
      return W(0.5) * x * (W(1) + std::erf(x * W(0.70710678118654752440)));
    case Unary::gelu_tanh:
      return W(0.5) * x *
             (W(1) + std::tanh(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x)));
    case Unary::clamp:
      return clamped(x, first, second);
    case Unary::exp:
      return std::exp(x);
    default:
      return x < 0 ? -x : x;
  }
}

template <class W>
W apply(Binary op, W x, W y) {
  switch (op) {
    case Binary::add:
      return x + y;
    case Binary::subtract:
      return x - y;
    case Binary::multiply:
      return x * y;
    case Binary::divide:
      return x / y;
    case Binary::maximum:
      return x > y || x != x ? x : y;
    default:
      return x < y || x != x ? x : y;
  }
}

/// The expression in W = float or double, element by element.
template <class W>
class Interpreter {
 public:
  Interpreter(const GemmEpilogue& e, const GemmTensors& p, const std::vector<double>& scalars)
      : e_(e), p_(p), scalars_(scalars), values_(e.steps().size()) {}

  /// Computes, stores, and adds to the reductions.
  void element(int64_t batch, int64_t i, int64_t j, double sum) {
    for (size_t s = 0; s < e_.steps().size(); ++s)
      values_[s] = value(e_.steps()[s], batch, i, j, sum);
    for (size_t o = 0; o < e_.operands().size(); ++o) {
      const Operand& operand = e_.operands()[o];
      if (operand.stored < 0) continue;
      const auto step = static_cast<size_t>(operand.stored);
      const bool plain = e_.steps()[step].kind == Step::Kind::accumulator;
      store(operand.element, p_.operands[o], at(p_.operands[o], batch, i, j),
            plain ? sum : static_cast<double>(values_[step]));
    }
    for (size_t r = 0; r < e_.reductions().size(); ++r) reduce(r, batch, i, j);
  }

 private:
  static int64_t at(const Tensor& t, int64_t batch, int64_t i, int64_t j) {
    return batch * t.strides()[0] + i * t.strides()[1] + j * t.strides()[2];
  }

  W value(const Step& step, int64_t batch, int64_t i, int64_t j, double sum) const {
    const auto x = [&] { return values_[static_cast<size_t>(step.x)]; };
    const auto y = [&] { return values_[static_cast<size_t>(step.y)]; };
    switch (step.kind) {
      case Step::Kind::accumulator:
        return static_cast<W>(sum);
      case Step::Kind::constant:
        return static_cast<W>(step.first);
      case Step::Kind::scalar:
        return static_cast<W>(scalars_[static_cast<size_t>(step.slot)]);
      case Step::Kind::load: {
        if (step.guard >= 0 && scalars_[static_cast<size_t>(step.guard)] == 0) return W(0);
        const auto slot = static_cast<size_t>(step.slot);
        double loaded = 0;
        with_reader(e_.operands()[slot].element, p_.operands[slot],
                    [&](const auto& read) { loaded = read(at(p_.operands[slot], batch, i, j)); });
        return static_cast<W>(loaded);
      }
      case Step::Kind::unary:
        return apply(static_cast<Unary>(step.op), x(), static_cast<W>(step.first),
                     static_cast<W>(step.second));
      default:
        return apply(static_cast<Binary>(step.op), x(), y());
    }
  }

  void reduce(size_t r, int64_t batch, int64_t i, int64_t j) {
    const Reduction& reduction = e_.reductions()[r];
    const Tensor& t = p_.reductions[r];
    const int64_t place = reduction.over_columns ? i : j;
    const bool first = (reduction.over_columns ? j : i) == 0;
    W& total = t.data<W>()[batch * t.size(1) + place];
    const W next = values_[static_cast<size_t>(reduction.step)];
    if (first) {
      total = next;
    } else {
      total = apply(reduction.is_max ? Binary::maximum : Binary::add, total, next);
    }
  }

  const GemmEpilogue& e_;
  const GemmTensors& p_;
  const std::vector<double>& scalars_;
  std::vector<W> values_;
};

template <class W>
void run(const GemmDescription& d, const GemmTensors& p, const std::vector<double>& scalars) {
  std::vector<double> sums(static_cast<size_t>(p.m * p.n));
  Interpreter<W> interpreter(d.epilogue, p, scalars);
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    std::fill(sums.begin(), sums.end(), 0.0);
    if (p.k > 0) {
      const std::vector<double> a = gather(d.tile.math, d.a.element, p.a.select(0, batch));
      const std::vector<double> b = gather(d.tile.math, d.b.element, p.b.select(0, batch));
      parallel_gemm<double, double, double>(1, p.m, p.n, p.k, 1.0, a.data(), 0, p.k, 1, b.data(), 0,
                                            p.n, 1, 0.0, sums.data(), 0, p.n, 1);
    }
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j)
        interpreter.element(batch, i, j,
                            accumulated(d.tile.math, sums[static_cast<size_t>(i * p.n + j)]));
  }
}

}  // namespace

void gemm_operation(const GemmLaunch& launch, Stream) {
  const GemmDescription& d = launch.operation->description();
  for (const GemmTensors& p : launch.products) {
    if (d.tile.math.accumulator == Element::f64) {
      run<double>(d, p, launch.scalars);
    } else {
      run<float>(d, p, launch.scalars);
    }
  }
}

}  // namespace bs::cpu
