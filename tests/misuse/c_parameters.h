#pragma once
/** @file Parameters of the C interface: options behind pointers, places of results, what a forward
 *  saved. */
#include <bs/tests/misuse/c_values.h>

#include <stdexcept>

namespace bs::test {

template <class T>
concept Saved = std::is_same_v<T, bs_attention> || std::is_same_v<T, bs_transducer>;

template <Saved S>
struct Values<const S*> {
  using X = const S*;
  static X draw(Source& from) {
    const std::vector<S*>& all = handles().saved<S>();
    return all.empty() || from.chance(.1) ? nullptr : from.one_of<S*>(all);
  }
  static int wrongs(X) { return 1; }
  static void make_wrong(X& x, int) { x = nullptr; }
  static std::string show(X x) { return x ? "what a forward saved" : "null"; }
};

/** @brief Where a function writes a result, or null. The handle given is freed, or kept. */
template <class T>
struct Place {
  T result{};
  bool none = false;

  Place() = default;
  Place(const Place& other) : none(other.none) {}
  Place& operator=(const Place& other) {
    none = other.none;
    return *this;
  }
  ~Place() {
    if constexpr (std::is_same_v<T, bs_tensor*>) bs_tensor_free(result);
    if constexpr (std::is_same_v<T, bs_layout*>) bs_layout_free(result);
    if constexpr (Saved<std::remove_pointer_t<T>>)
      if (result) handles().saved<std::remove_pointer_t<T>>().push_back(result);
  }
};
template <class T>
struct Values<Place<T>> {
  static Place<T> draw(Source& from) {
    Place<T> place;
    place.none = from.chance(.1);
    return place;
  }
  static int wrongs(const Place<T>&) { return 1; }
  static void make_wrong(Place<T>& place, int) { place.none = true; }
  static std::string show(const Place<T>& place) { return place.none ? "no place" : "a place"; }
};
template <class T>
struct Parameter<T*> {
  using Kept = Place<T>;
  static T* pass(Kept& kept) { return kept.none ? nullptr : &kept.result; }
};

/** @brief Options behind a pointer that may be null. */
template <class T>
struct Given {
  T value{};
  bool none = false;
};
template <class T>
struct Values<Given<T>> {
  static Given<T> draw(Source& from) { return {Values<T>::draw(from), from.chance(.1)}; }
  static int wrongs(const Given<T>& x) { return 1 + Values<T>::wrongs(x.value); }
  static void make_wrong(Given<T>& x, int k) {
    x.none = k == 0;
    if (k > 0) Values<T>::make_wrong(x.value, k - 1);
  }
  static std::string show(const Given<T>& x) { return x.none ? "null" : Values<T>::show(x.value); }
};
template <class T>
struct Parameter<const T*> {
  using Kept = Given<T>;
  static const T* pass(Kept& kept) { return kept.none ? nullptr : &kept.value; }
};
template <class H>
struct HandleParameter {
  using Kept = H;
  static H pass(Kept& kept) { return kept; }
};
template <>
struct Parameter<const bs_tensor*> : HandleParameter<const bs_tensor*> {};
template <>
struct Parameter<const bs_layout*> : HandleParameter<const bs_layout*> {};
template <Saved S>
struct Parameter<const S*> : HandleParameter<const S*> {};

/** @brief A status is what an exception is elsewhere. */
inline void take(bs_status status, Source&) {
  if (status == BS_INTERNAL_ERROR) throw std::runtime_error(bs_last_error());
  if (status != BS_OK) throw Error(bs_last_error());
}

}  // namespace bs::test
