#pragma once
/** @file Values of the library's own types. */
#include <bs/lib/packed_mask.h>
#include <bs/lib/patterns.h>
#include <bs/tests/misuse/values.h>

#include <functional>

namespace bs::test {

template <>
struct Values<Tensor> {
  static Tensor draw(Source& from) {
    const Tensor* kept = from.chance(.4) ? from.kept<Tensor>() : nullptr;
    return kept ? *kept : draw_tensor(from);
  }
  static int wrongs(const Tensor& x) { return test::wrongs(x); }
  static void make_wrong(Tensor& x, int k) { x = wrong(x, k); }
  static std::string show(const Tensor& x) { return test::show(x); }
};

template <>
struct Values<Variable> {
  static Variable of(const Tensor& x, bool wants) {
    return x.defined() ? Variable(x, wants && is_floating(x.dtype())) : Variable();
  }
  static Variable draw(Source& from) { return of(Values<Tensor>::draw(from), from.chance(.7)); }
  static Tensor data(const Variable& x) { return x.defined() ? x.data() : Tensor(); }
  static int wrongs(const Variable& x) { return test::wrongs(data(x)); }
  static void make_wrong(Variable& x, int k) { x = of(wrong(data(x), k), x.requires_grad()); }
  static std::string show(const Variable& x) { return "variable " + test::show(data(x)); }
};

template <>
struct Values<LayoutPtr> {
  static LayoutPtr draw(Source& from) { return draw_layout(from); }
  static int wrongs(const LayoutPtr&) { return 8; }
  static void make_wrong(LayoutPtr& x, int k) {
    Source other(static_cast<uint64_t>(k));
    x = k == 0 ? nullptr : draw_layout(other);
  }
  static std::string show(const LayoutPtr& x) { return x ? to_string(*x) : "null layout"; }
};

template <>
struct Values<PackedMask> {
  static PackedMask of(const LayoutPtr& within) {
    const auto sees = [](int64_t, int64_t i, int64_t j) { return (i + j) % 3 != 0; };
    return within ? pack_mask(within, within->height(), within->width(), sees) : PackedMask();
  }
  static PackedMask draw(Source& from) {
    return from.chance(.2) ? of(draw_layout(from)) : PackedMask();
  }
  static int wrongs(const PackedMask&) { return 8; }
  static void make_wrong(PackedMask& x, int k) {
    LayoutPtr within;
    Values<LayoutPtr>::make_wrong(within, k);
    x = of(within);
  }
  static std::string show(const PackedMask& x) {
    return x.defined() ? "packed mask of " + to_string(*x.layout()) : "no packed mask";
  }
};

template <>
struct Values<std::string> {
  static std::string draw(Source& from) { return draw_text(from); }
  static int wrongs(const std::string&) { return 5; }
  static void make_wrong(std::string& x, int k) {
    const std::array<std::string, 5> bad{"", "\xff\x80", std::string(16000, 'x'), x + x,
                                         std::string("a\0b", 3)};
    x = bad[static_cast<size_t>(k)];
  }
  static std::string show(const std::string& x) { return '"' + x.substr(0, 80) + '"'; }
};

/// Patterns of attention: none, a few of the library's, and such as give what they should not.
template <>
struct Values<std::function<LayoutPtr(const patterns::Size&)>> {
  using X = std::function<LayoutPtr(const patterns::Size&)>;
  static LayoutPtr causal(const patterns::Size& size) {
    return patterns::dense(size, {.causal = true});
  }
  static LayoutPtr of_one_block(const patterns::Size&) {
    return patterns::dense({.rows = 1, .block = 8});
  }
  static X draw(Source& from) { return from.chance(.5) ? X(causal) : X(); }
  static int wrongs(const X&) { return 3; }
  static void make_wrong(X& x, int k) {
    if (k == 0) x = nullptr;
    if (k == 1) x = of_one_block;
    if (k == 2) x = [](const patterns::Size&) { return LayoutPtr(); };
  }
  static std::string show(const X& x) { return x ? "a pattern" : "no pattern"; }
};

template <>
struct Values<Generator*> {
  static Generator* draw(Source&) { return nullptr; }
  static int wrongs(Generator*) { return 1; }
  static void make_wrong(Generator*& x, int) { x = &default_generator(); }
  static std::string show(Generator* x) { return x ? "a generator" : "no generator"; }
};

template <>
struct Values<Dims> {
  static Dims draw(Source& from);
  static int wrongs(const Dims& x) { return 3 + 8 * x.rank(); }
  static void make_wrong(Dims& x, int k);
  static std::string show(const Dims& x) { return to_string(x); }
};

template <>
struct Values<Device> {
  static Device draw(Source& from) { return from.chance(.05) ? Device::cuda() : Device::cpu(); }
  static int wrongs(Device) { return 3; }
  static void make_wrong(Device& x, int k) {
    x = Device::cuda(k == 0 ? 0 : k == 1 ? -1 : std::numeric_limits<int>::max());
  }
  static std::string show(Device x) { return to_string(x); }
};

template <>
struct Values<Scalar> {
  static Scalar draw(Source& from) {
    if (from.chance(.5)) return Values<int64_t>::draw(from);
    return Values<double>::draw(from);
  }
  static constexpr int integers = 10, reals = 9;
  static int wrongs(const Scalar&) { return integers + reals; }
  static void make_wrong(Scalar& x, int k) {
    if (k < integers)
      x = Values<int64_t>::bad[static_cast<size_t>(k)];
    else
      x = Values<double>::bad[static_cast<size_t>(k - integers)];
  }
  static std::string show(const Scalar& x) { return format("{}", x.to<double>()); }
};

template <>
struct Values<Operand> {
  static Operand draw(Source& from) {
    if (from.chance(.4)) return Values<Scalar>::draw(from);
    return Values<Tensor>::draw(from);
  }
  static int wrongs(const Operand& x) { return test::wrongs(x.tensor); }
  static void make_wrong(Operand& x, int k) { x.tensor = wrong(x.tensor, k); }
  static std::string show(const Operand& x) {
    return x.tensor.defined() ? test::show(x.tensor) : Values<Scalar>::show(x.number);
  }
};

template <>
struct Values<RandomState> {
  static RandomState draw(Source& from) { return {.seed = Values<uint64_t>::draw(from)}; }
  static int wrongs(const RandomState&) { return 2; }
  static void make_wrong(RandomState& x, int k) { (k == 0 ? x.seed : x.offset) = ~uint64_t{0}; }
  static std::string show(const RandomState& x) { return format("seed {}", x.seed); }
};

template <>
struct Values<GemmEpilogue> {
  static GemmEpilogue draw(Source& from) { return draw_epilogue(from); }
  static int wrongs(const GemmEpilogue&) { return 1; }
  static void make_wrong(GemmEpilogue& x, int) { x = GemmEpilogue(); }
  static std::string show(const GemmEpilogue& x) { return to_string(x); }
};

template <>
struct Values<epilogue::Value> {
  static epilogue::Value draw(Source& from) {
    if (from.chance(.3)) return epilogue::accumulator();
    return Values<double>::draw(from);
  }
  static int wrongs(const epilogue::Value&) { return 2; }
  static void make_wrong(epilogue::Value& x, int k) {
    x = k == 0 ? epilogue::Value(std::numeric_limits<double>::quiet_NaN())
               : epilogue::Value(std::shared_ptr<const epilogue::Node>());
  }
  static std::string show(const epilogue::Value&) { return "a value of an epilogue"; }
};

}  // namespace bs::test
