#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/gemm_epilogue.h>
#include <bs/kernels/cpu/normal_math.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs::cpu {

namespace {

using epilogue::Binary;
using epilogue::Operand;
using epilogue::Step;
using epilogue::Unary;

int64_t offset(const Tensor& t, EpiloguePlace at) {
  return at.batch * t.strides()[0] + at.row * t.strides()[1] + at.column * t.strides()[2];
}

/// Neighbours `stride` elements apart, in W.
template <class W>
void load_neighbours(Element element, const Tensor& t, int64_t at, int64_t stride, int64_t count,
                     W* out) {
  const auto each = [&](const auto& read) {
    for (int64_t j = 0; j < count; ++j) out[j] = static_cast<W>(read(at + j * stride));
  };
  switch (element) {
    case Element::i8:
      return each([p = t.data<uint8_t>()](int64_t i) { return static_cast<int8_t>(p[i]); });
    case Element::i32:
      return each([p = t.data<int32_t>()](int64_t i) { return p[i]; });
    case Element::e4m3:
    case Element::e5m2:
      return each(
          [p = t.data<uint8_t>(), element](int64_t i) { return decode_fp8(p[i], element); });
    default:
      visit_floating("epilogue", t.dtype(), [&]<class T>(Type<T>) {
        const T* p = t.data<T>();
        if constexpr (std::is_same_v<Wide<T>, W>)
          if (stride == 1) return widen(count, p + at, out);
        each([p](int64_t i) { return convert<Wide<T>>(p[i]); });
      });
  }
}

/// Rounds to the nearest element, as device/gemm_element.cuh does.
template <class V>
void store_neighbours(Element element, const Tensor& t, int64_t at, int64_t stride, int64_t count,
                      const V* values) {
  const auto whole = [](double x, double low, double high) {
    return std::isnan(x) ? 0.0 : std::clamp(std::nearbyint(x), low, high);
  };
  const auto each = [&](auto* p, const auto& round) {
    for (int64_t j = 0; j < count; ++j) p[at + j * stride] = round(values[j]);
  };
  switch (element) {
    case Element::i8:
      return each(t.data<uint8_t>(), [&](V x) {
        return static_cast<uint8_t>(static_cast<int8_t>(whole(x, -128, 127)));
      });
    case Element::i32:
      return each(t.data<int32_t>(), [&](V x) {
        return static_cast<int32_t>(
            whole(x, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
      });
    case Element::e4m3:
    case Element::e5m2:
      return each(t.data<uint8_t>(),
                  [&](V x) { return encode_fp8(static_cast<float>(x), element); });
    default:
      visit_floating("epilogue", t.dtype(), [&]<class T>(Type<T>) {
        if (stride == 1) return narrow(count, values, t.data<T>() + at);
        each(t.data<T>(), [](V x) { return convert<T>(x); });
      });
  }
}

template <class W, class F>
void map(int64_t count, const W* x, W* out, const F& f) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = f(x[j]);
}

template <class W>
void apply(Unary op, int64_t count, const W* x, W* out, W first, W second) {
  const auto clamped = [](W v, W low, W high) { return v < low ? low : v > high ? high : v; };
  switch (op) {
    case Unary::negate:
      return map(count, x, out, [](W v) { return -v; });
    case Unary::relu:
      return map(count, x, out, [](W v) { return v < 0 ? W(0) : v; });
    case Unary::leaky_relu:
      return map(count, x, out, [=](W v) { return v < 0 ? first * v : v; });
    case Unary::tanh:
      return map(count, x, out, [](W v) { return math::tanh(v); });
    case Unary::sigmoid:
      return map(count, x, out, [](W v) { return math::sigmoid(v); });
    case Unary::silu:
      return map(count, x, out, [](W v) { return v / (1 + math::exp(-v)); });
    case Unary::hardswish:
      return map(count, x, out, [=](W v) { return v * clamped(v + 3, 0, 6) / 6; });
    case Unary::gelu:
      return map(count, x, out, [](W v) { return v * math::normal_cdf(v); });
    case Unary::gelu_tanh:  // 1 + tanh(u) = 2 sigmoid(2 u), which keeps its precision near 0
      return map(count, x, out, [](W v) {
        return v / (1 + math::exp(W(-1.5957691216057308) * v * (1 + W(0.044715) * v * v)));
      });
    case Unary::clamp:
      return map(count, x, out, [=](W v) { return clamped(v, first, second); });
    case Unary::exp:
      return map(count, x, out, [](W v) { return math::exp(v); });
    default:
      return map(count, x, out, [](W v) { return std::abs(v); });
  }
}

template <class W, class F>
void map(int64_t count, const W* x, const W* y, W* out, const F& f) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = f(x[j], y[j]);
}

template <class W>
void apply(Binary op, int64_t count, const W* x, const W* y, W* out) {
  switch (op) {
    case Binary::add:
      return map(count, x, y, out, [](W a, W b) { return a + b; });
    case Binary::subtract:
      return map(count, x, y, out, [](W a, W b) { return a - b; });
    case Binary::multiply:
      return map(count, x, y, out, [](W a, W b) { return a * b; });
    case Binary::divide:
      return map(count, x, y, out, [](W a, W b) { return a / b; });
    case Binary::maximum:
      return map(count, x, y, out, [](W a, W b) { return a > b || a != a ? a : b; });
    default:
      return map(count, x, y, out, [](W a, W b) { return a < b || a != a ? a : b; });
  }
}

}  // namespace

template <class W>
EpilogueRows<W>::EpilogueRows(const GemmEpilogue& epilogue, std::span<const Tensor> operands,
                              std::span<const double> scalars)
    : e_(epilogue), operands_(operands), scalars_(scalars) {
  for (const Step& step : e_.steps()) {
    const bool scalar = step.kind == Step::Kind::scalar;
    const double value = scalar ? scalars_[static_cast<size_t>(step.slot)] : step.first;
    values_.emplace_back(most, static_cast<W>(value));
  }
}

template <class W>
void EpilogueRows<W>::load(const Step& step, EpiloguePlace at, int64_t count, W* out) const {
  const auto slot = static_cast<size_t>(step.slot);
  if (step.guard >= 0 && scalars_[static_cast<size_t>(step.guard)] == 0) {
    std::fill_n(out, count, W(0));
    return;
  }
  const Tensor& t = operands_[slot];
  const int64_t stride = t.strides()[2];
  load_neighbours(e_.operands()[slot].element, t, offset(t, at), stride, stride == 0 ? 1 : count,
                  out);
  if (stride == 0) std::fill_n(out, count, *out);
}

template <class W>
void EpilogueRows<W>::compute(const Step& step, int64_t count, W* out) const {
  if (step.kind == Step::Kind::unary) {
    apply<W>(static_cast<Unary>(step.op), count, values(step.x), out, static_cast<W>(step.first),
             static_cast<W>(step.second));
  } else if (step.kind == Step::Kind::binary) {
    apply<W>(static_cast<Binary>(step.op), count, values(step.x), values(step.y), out);
  }
}

template <class W>
template <class Sum>
void EpilogueRows<W>::run(EpiloguePlace at, EpiloguePlace in, int64_t count, const Sum* sums) {
  for (size_t s = 0; s < e_.steps().size(); ++s) {
    const Step& step = e_.steps()[s];
    W* const out = values_[s].data();
    if (step.kind == Step::Kind::accumulator) {
      for (int64_t j = 0; j < count; ++j) out[j] = static_cast<W>(sums[j]);
    } else if (step.kind == Step::Kind::load) {
      const Operand& o = e_.operands()[static_cast<size_t>(step.slot)];
      load(step, o.kind == Operand::Kind::tensor ? in : at, count, out);
    } else {
      compute(step, count, out);
    }
  }
  for (size_t o = 0; o < e_.operands().size(); ++o) {
    const Operand& operand = e_.operands()[o];
    if (operand.stored < 0) continue;
    const Tensor& t = operands_[o];
    const bool plain =
        e_.steps()[static_cast<size_t>(operand.stored)].kind == Step::Kind::accumulator;
    if (plain) {
      store_neighbours(operand.element, t, offset(t, in), t.strides()[2], count, sums);
    } else {
      store_neighbours(operand.element, t, offset(t, in), t.strides()[2], count,
                       values(operand.stored));
    }
  }
}

template class EpilogueRows<float>;
template class EpilogueRows<double>;
template void EpilogueRows<float>::run(EpiloguePlace, EpiloguePlace, int64_t, const float*);
template void EpilogueRows<float>::run(EpiloguePlace, EpiloguePlace, int64_t, const double*);
template void EpilogueRows<double>::run(EpiloguePlace, EpiloguePlace, int64_t, const double*);

}  // namespace bs::cpu
