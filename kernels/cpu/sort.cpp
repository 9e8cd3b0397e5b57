#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/ranks.h>
#include <bs/kernels/sort.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

namespace bs::cpu {

namespace {

/// An unsigned number in the order of the values, of their size: NaN last, -0 as 0.
template <class T>
auto key_of(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return static_cast<uint8_t>(value);
  } else if constexpr (std::is_integral_v<T>) {
    using Key = std::make_unsigned_t<T>;
    constexpr Key sign = std::is_signed_v<T> ? Key{1} << (8 * sizeof(T) - 1) : Key{0};
    return static_cast<Key>(static_cast<Key>(value) ^ sign);
  } else {
    using Rank = Ranks<T>;
    using Key = typename Rank::Bits;
    const Key infinity = Rank::of(static_cast<Key>(Rank::sign - 1 - Rank::first));
    const Key bits = Rank::bits_of(value);
    const Key rank = Rank::of(bits == Rank::sign ? Key{0} : bits);
    return rank > infinity ? std::numeric_limits<Key>::max() : rank;
  }
}

/// A key and a position in one number, which is in their order.
struct Packed {
  uint64_t value;
  Packed() = default;
  Packed(uint64_t key, int64_t at) : value(key << 32 | static_cast<uint64_t>(at)) {}
  int64_t at() const { return static_cast<int64_t>(value & 0xffffffff); }
  size_t digit(int d) const { return value >> (32 + 8 * d) & 255; }
  bool operator<(const Packed& b) const { return value < b.value; }
};

struct Item {
  uint64_t key;
  int64_t place;
  Item() = default;
  Item(uint64_t k, int64_t i) : key(k), place(i) {}
  int64_t at() const { return place; }
  size_t digit(int d) const { return key >> (8 * d) & 255; }
  bool operator<(const Item& b) const { return key != b.key ? key < b.key : place < b.place; }
};

/// Items of keys of `digits` bytes in order, in one of two arrays. They come in the order of their
/// positions, and items of one digit keep theirs. A digit that all have alike takes no pass.
template <int digits, class I>
I* sorted_by_digits(I* items, I* other, int64_t n) {
  std::array<std::array<int64_t, 256>, digits> counts{};
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < digits; ++d) ++counts[static_cast<size_t>(d)][items[i].digit(d)];
  for (int d = 0; d < digits; ++d) {
    auto& places = counts[static_cast<size_t>(d)];
    if (places[items[0].digit(d)] == n) continue;
    int64_t place = 0;
    for (int64_t& count : places) {
      const int64_t next = place + count;
      count = place;
      place = next;
    }
    for (int64_t i = 0; i < n; ++i) other[places[items[i].digit(d)]++] = items[i];
    std::swap(items, other);
  }
  return items;
}

/// Keys and positions of a row's n elements.
template <class I, class T>
void list_items(const T* from, int64_t n, bool descending, I* items) {
  using Key = decltype(key_of(T{}));
  for (int64_t i = 0; i < n; ++i) {
    const Key key = key_of(from[i]);
    items[i] = I(descending ? static_cast<Key>(~key) : key, i);
  }
}

/// Whether a key of T and a position of n are one number.
template <class T>
bool packs(int64_t n) {
  return sizeof(T) <= 4 && n <= int64_t{std::numeric_limits<uint32_t>::max()};
}

/// The first k positions of each row's order, for rows [begin, end).
template <class I, class T>
void order_rows(const T* from, int64_t n, int64_t* to, int64_t k, bool descending, int64_t begin,
                int64_t end) {
  using Key = decltype(key_of(T{}));
  constexpr int digits = sizeof(Key);
  constexpr int64_t few = 64, short_row = 32 * digits;
  std::vector<I> items(static_cast<size_t>(n)), other(static_cast<size_t>(n));
  for (int64_t r = begin; r < end; ++r) {
    I* first = items.data();
    list_items(from + r * n, n, descending, first);
    if (k < std::min(few, n)) {
      std::partial_sort(first, first + k, first + n);
    } else if (n < short_row) {
      std::sort(first, first + n);
    } else {
      first = sorted_by_digits<digits>(first, other.data(), n);
    }
    for (int64_t j = 0; j < k; ++j) to[r * k + j] = first[j].at();
  }
}

/// Position number k, from 0 on, of each row's order, for rows [begin, end). By each digit, from
/// the highest on, items stay that share it with the one looked for. In the end all keys are alike.
template <class I, class T>
void select_number(const T* from, int64_t n, int64_t* to, int64_t k, int64_t begin, int64_t end) {
  using Key = decltype(key_of(T{}));
  std::vector<I> items(static_cast<size_t>(n));
  for (int64_t r = begin; r < end; ++r) {
    list_items(from + r * n, n, false, items.data());
    int64_t left = n, before = k;
    for (int d = sizeof(Key) - 1; d >= 0 && left > 1; --d) {
      std::array<int64_t, 256> counts{};
      for (int64_t i = 0; i < left; ++i) ++counts[items[static_cast<size_t>(i)].digit(d)];
      size_t digit = 0;
      while (before >= counts[digit]) before -= counts[digit++];
      if (counts[digit] == left) continue;
      int64_t kept = 0;  // each item is stored, and the next one over it where it does not stay
      for (int64_t i = 0; i < left; ++i) {
        const I item = items[static_cast<size_t>(i)];
        items[static_cast<size_t>(kept)] = item;
        kept += item.digit(d) == digit;
      }
      left = kept;
    }
    to[r] = items[static_cast<size_t>(before)].at();
  }
}

}  // namespace

void argsort(const Tensor& x, const Tensor& indices, bool descending, Stream) {
  const int64_t n = x.size(1), k = indices.size(1);
  int64_t* const to = indices.data<int64_t>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* const from = x.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (16 * n));
    parallel_for(x.size(0), grain, [&](int64_t begin, int64_t end) {
      if (packs<T>(n)) return order_rows<Packed>(from, n, to, k, descending, begin, end);
      order_rows<Item>(from, n, to, k, descending, begin, end);
    });
  });
}

void kthvalue(const Tensor& x, const Tensor& indices, int64_t k, Stream) {
  const int64_t n = x.size(1);
  int64_t* const to = indices.data<int64_t>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* const from = x.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (4 * n));
    parallel_for(x.size(0), grain, [&](int64_t begin, int64_t end) {
      if (packs<T>(n)) return select_number<Packed>(from, n, to, k - 1, begin, end);
      select_number<Item>(from, n, to, k - 1, begin, end);
    });
  });
}

}  // namespace bs::cpu
