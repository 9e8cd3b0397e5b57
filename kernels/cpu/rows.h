#pragma once
/** @file Rows of any floating type as rows of the type that is computed in: float for 16-bit types,
 *  else the type itself. Loops over such rows vectorise; conversions of 16-bit types inside a loop
 *  with other work often do not. */
#include <bs/kernels/cpu/convert.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

namespace bs::cpu {

/** @brief Terms that are summed together: errors of sums do not grow with the length of a row. */
inline constexpr int64_t run_of_sum = 512;

/** @brief The sum of term(0) .. term(n - 1), in runs. The terms may have effects; their order is
 * not defined. */
template <class W, class Term>
W sum_of(int64_t n, Term term) {
  constexpr int64_t run = run_of_sum;
  W total = 0;
  for (int64_t begin = 0; begin < n; begin += run) {
    const int64_t end = std::min(begin + run, n);
    W sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += term(i);
    total += sum;
  }
  return total;
}

/** @brief Allocates whole lines of the cache: a vector of AVX-512 that lies across two of them
 * takes twice as long. */
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t line{64};

  LineAllocator() = default;
  /// Implicit, as containers expect of allocators.
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
  void deallocate(T* p, size_t) { ::operator delete(p, line); }
  bool operator==(const LineAllocator&) const { return true; }
};

/** @brief A vector that begins with a line of the cache. */
template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

/** @brief Shows rows of T as rows of Wide<T>: in place where the types agree, else through a buffer
 *  of its own. One for each row in use at a time, and for each thread. */
template <class T, class Values = LineVector<Wide<T>>>
class RowBuffer {
 public:
  static constexpr bool converts = !std::is_same_v<T, Wide<T>>;

  /** @brief For rows of up to n values. */
  explicit RowBuffer(int64_t n) : values_(converts ? static_cast<size_t>(n) : 0) {}
  /** @brief For rows of up to as many values as `Values`, an array, has. */
  RowBuffer() = default;

  /** @brief The row's n values; valid until the next call. */
  const Wide<T>* read(const T* row, int64_t n) {
    if constexpr (converts) {
      widen(n, row, values_.data());
      return values_.data();
    } else {
      return row;
    }
  }
  /** @brief Where to put the values of `row`, which `write` then brings there. */
  Wide<T>* target(T* row) {
    if constexpr (converts) {
      return values_.data();
    } else {
      return row;
    }
  }
  void write(T* row, int64_t n) const {
    if constexpr (converts) narrow(n, values_.data(), row);
  }

 private:
  alignas(64) Values values_;
};

}  // namespace bs::cpu
