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

}  // namespace bs::test
