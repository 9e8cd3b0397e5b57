#pragma once
/** @file Values that are made of others: containers and aggregates. */
#include <bs/tests/misuse/library_values.h>

namespace bs::test {

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
