#pragma once
/** @file Values of every type that functions take: such as may fit, and such as are wrong. */
#include <bs/autograd/variable.h>
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/gemm_epilogue.h>
#include <bs/kernels/operand.h>
#include <bs/lib/layout.h>
#include <bs/lib/random.h>
#include <bs/tests/misuse/fields.h>

#include <any>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeindex>
#include <vector>

namespace bs::test {

/** @brief Where values come from: a sequence of random numbers, and what calls returned. */
class Source {
 public:
  explicit Source(uint64_t seed) : state_(seed) {}
  /** @brief A number from 0 to n - 1. */
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return below(1 << 20) < p * (1 << 20); }
  template <class T>
  const T& one_of(std::span<const T> values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  /** @brief What most tensors of one draw have: functions of several often want them alike. */
  std::optional<Shape> alike;
  /** @brief How many of an aggregate's optional fields are set at present. */
  double density = 0;

  template <class T>
  void keep(const T& value) {
    auto& kept = kept_[typeid(T)];
    if (kept.size() < most_kept)
      kept.emplace_back(value);
    else
      kept[static_cast<size_t>(below(most_kept))] = value;
  }
  /** @brief A value of this type that some call returned, or null. */
  template <class T>
  const T* kept() {
    const auto found = kept_.find(typeid(T));
    if (found == kept_.end()) return nullptr;
    return std::any_cast<T>(&one_of<std::any>(found->second));
  }

 private:
  static constexpr int most_kept = 24;
  /** SplitMix64: it is made anew for each value that is made wrong. */
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
  }
  uint64_t state_;
  std::map<std::type_index, std::vector<std::any>> kept_;
};

Tensor draw_tensor(Source& from);
/** @brief In how many ways a tensor is made wrong, and the k-th of them. */
int wrongs(const Tensor& x);
Tensor wrong(const Tensor& x, int k);
std::string show(const Tensor& x);
Shape draw_shape(Source& from);
LayoutPtr draw_layout(Source& from);
std::string draw_text(Source& from);
GemmEpilogue draw_epilogue(Source& from);

/** @brief `draw` makes a value that may fit; `wrongs` and `make_wrong` the wrong ones in turn. */
template <class T>
struct Values;

template <class T>
requires std::integral<T>
struct Values<T> {
  static constexpr T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  static constexpr std::array<T, 10> bad{
      0,
      1,
      static_cast<T>(-1),
      static_cast<T>(-2),
      7,
      least,
      most,
      most - 1,
      static_cast<T>(sizeof(T) > 4 ? int64_t{1} << 40 : most / 2),
      most / 8 + 1};
  static T draw(Source& from) {
    constexpr std::array<T, 12> good{0, 0, 1, 1, 1, 2, 2, 3, 4, 8, 8, static_cast<T>(-1)};
    return from.one_of<T>(good);
  }
  static int wrongs(T) { return static_cast<int>(bad.size()); }
  static void make_wrong(T& x, int k) { x = bad[static_cast<size_t>(k)]; }
  static std::string show(T x) { return std::to_string(x); }
};

template <>
struct Values<bool> {
  static bool draw(Source& from) { return from.chance(.4); }
  static int wrongs(bool) { return 1; }
  static void make_wrong(bool& x, int) { x = !x; }
  static std::string show(bool x) { return x ? "true" : "false"; }
};

template <class T>
requires std::floating_point<T>
struct Values<T> {
  static constexpr std::array<T, 9> bad{std::numeric_limits<T>::quiet_NaN(),
                                        std::numeric_limits<T>::infinity(),
                                        -std::numeric_limits<T>::infinity(),
                                        std::numeric_limits<T>::max(),
                                        std::numeric_limits<T>::lowest(),
                                        std::numeric_limits<T>::denorm_min(),
                                        0,
                                        -1,
                                        T(1e18)};
  static T draw(Source& from) {
    constexpr std::array<T, 8> good{0, T(.1), T(.5), 1, 1, 2, T(1e-5), 8};
    return from.one_of<T>(good);
  }
  static int wrongs(T) { return static_cast<int>(bad.size()); }
  static void make_wrong(T& x, int k) { x = bad[static_cast<size_t>(k)]; }
  static std::string show(T x) { return format("{}", x); }
};

/** @brief Whether the enumeration has a name for this value: the compiler prints a cast else. */
template <class E, E e>
constexpr bool is_named() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const size_t at = text.rfind("e = ");
  return at != std::string_view::npos && text[at + 4] != '(';
}

template <class E>
requires std::is_enum_v<E>
struct Values<E> {
  template <int... i>
  static constexpr int count(std::integer_sequence<int, i...>) {
    return (0 + ... + (is_named<E, static_cast<E>(i)>() ? 1 : 0));
  }
  static constexpr int names = count(std::make_integer_sequence<int, 24>());
  static_assert(names > 0, "an enumeration from 0 on");
  static E draw(Source& from) { return static_cast<E>(from.below(names)); }
  static int wrongs(E) { return names; }
  static void make_wrong(E& x, int k) { x = static_cast<E>(k); }
  static std::string show(E x) { return "enumerator " + std::to_string(static_cast<int>(x)); }
};

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
struct Values<std::string> {
  static std::string draw(Source& from) { return draw_text(from); }
  static int wrongs(const std::string&) { return 5; }
  static void make_wrong(std::string& x, int k) {
    const std::array<std::string, 5> bad{"", "\xff\x80", std::string(70000, 'x'), x + x,
                                         std::string("a\0b", 3)};
    x = bad[static_cast<size_t>(k)];
  }
  static std::string show(const std::string& x) { return '"' + x.substr(0, 80) + '"'; }
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

template <class T>
struct Values<std::optional<T>> {
  using X = std::optional<T>;
  static X draw(Source& from) { return from.chance(.3) ? X(Values<T>::draw(from)) : X(); }
  static int wrongs(const X& x) { return x ? Values<T>::wrongs(*x) + 1 : 0; }
  static void make_wrong(X& x, int k) {
    if (k == 0)
      x.reset();
    else
      Values<T>::make_wrong(*x, k - 1);
  }
  static std::string show(const X& x) { return x ? Values<T>::show(*x) : "none"; }
};

template <class T>
struct Values<std::vector<T>> {
  using X = std::vector<T>;
  static X draw(Source& from) {
    const X* kept = from.chance(.4) ? from.kept<X>() : nullptr;
    if (kept) return *kept;
    X x;
    constexpr std::array<int, 6> sizes{1, 1, 1, 2, 2, 3};
    const int size = from.one_of<int>(sizes);
    for (int i = 0; i < size; ++i) x.push_back(Values<T>::draw(from));
    return x;
  }
  static int wrongs(const X& x) { return x.empty() ? 0 : 3 + Values<T>::wrongs(x.front()); }
  static void make_wrong(X& x, int k) {
    if (k == 0) {
      x.clear();
    } else if (k == 1) {
      x.push_back(x.front());
    } else if (k == 2) {
      x.pop_back();
    } else {
      T value = x.front();
      Values<T>::make_wrong(value, k - 3);
      x.front() = value;
    }
  }
  static std::string show(const X& x) {
    std::string text = "[";
    for (const T& value : x) text += Values<T>::show(value) + "; ";
    return text + "]";
  }
};

template <class T>
struct Values<std::map<std::string, T>> {
  using X = std::map<std::string, T>;
  static X draw(Source& from) {
    X x;
    for (const char* name : {"alpha", "beta", "c", "t", "bias"})
      if (from.chance(.4)) x.insert_or_assign(name, Values<T>::draw(from));
    return x;
  }
  static int wrongs(const X& x) { return x.empty() ? 0 : 1 + Values<T>::wrongs(x.begin()->second); }
  static void make_wrong(X& x, int k) {
    if (k == 0)
      x.clear();
    else
      Values<T>::make_wrong(x.begin()->second, k - 1);
  }
  static std::string show(const X& x) {
    std::string text = "{";
    for (const auto& [name, value] : x) text += name + ": " + Values<T>::show(value) + "; ";
    return text + "}";
  }
};

template <class T, size_t n>
struct Values<std::array<T, n>> {
  using X = std::array<T, n>;
  static X draw(Source& from) {
    X x{};
    for (T& value : x) value = Values<T>::draw(from);
    return x;
  }
  static int wrongs(const X& x) { return Values<T>::wrongs(x[0]); }
  static void make_wrong(X& x, int k) { Values<T>::make_wrong(x[0], k); }
  static std::string show(const X& x) {
    return Values<std::vector<T>>::show(std::vector<T>(x.begin(), x.end()));
  }
};

/** @brief An aggregate is what its fields are. Numbers keep their defaults more often than not. */
template <class T>
requires std::is_aggregate_v<T>
struct Values<T> {
  template <class Field>
  static void draw_field(Field& field, Source& from) {
    constexpr bool number = std::is_arithmetic_v<Field> || std::is_enum_v<Field>;
    if (from.chance(number ? .15 : from.density)) field = Values<Field>::draw(from);
  }
  static T draw(Source& from) {
    const T* kept = from.chance(.5) ? from.kept<T>() : nullptr;
    if (kept) return *kept;
    T x{};
    constexpr std::array<double, 4> densities{0, .3, 1, 1};
    from.density = from.one_of<double>(densities);
    std::apply([&](auto&... field) { (draw_field(field, from), ...); }, fields(x));
    return x;
  }
  static int wrongs(const T& x) {
    return std::apply(
        [](const auto&... field) {
          return (0 + ... + Values<std::remove_cvref_t<decltype(field)>>::wrongs(field));
        },
        fields(x));
  }
  static void make_wrong(T& x, int k) {
    const auto one = [&](auto& field) {
      using V = Values<std::remove_cvref_t<decltype(field)>>;
      const int count = V::wrongs(field);
      if (k >= 0 && k < count) V::make_wrong(field, k);
      k -= count;
    };
    std::apply([&](auto&... field) { (one(field), ...); }, fields(x));
  }
  static std::string show(const T& x) {
    std::string text = "{";
    std::apply(
        [&](const auto&... field) {
          ((text += Values<std::remove_cvref_t<decltype(field)>>::show(field) + "; "), ...);
        },
        fields(x));
    return text + "}";
  }
};

template <>
struct Values<ProductOptions> {
  static ProductOptions draw(Source& from) {
    if (from.chance(.6)) return {};
    return {.epilogue = Values<std::optional<GemmEpilogue>>::draw(from),
            .tensors = Values<std::map<std::string, Tensor>>::draw(from),
            .scalars = Values<std::map<std::string, double>>::draw(from)};
  }
  static int wrongs(const ProductOptions& x) {
    return Values<std::map<std::string, Tensor>>::wrongs(x.tensors);
  }
  static void make_wrong(ProductOptions& x, int k) {
    Values<std::map<std::string, Tensor>>::make_wrong(x.tensors, k);
  }
  static std::string show(const ProductOptions& x) {
    return (x.epilogue ? to_string(*x.epilogue) : "no epilogue") +
           Values<std::map<std::string, Tensor>>::show(x.tensors);
  }
};

}  // namespace bs::test
