#pragma once
/** @file What reductions on the CPU combine, and how: an operation of two, and the term that an
 *  element is. */
#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/lib/tensor.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace bs::cpu {

/// Partial sums in registers: an array of single ones goes through memory each time.
template <class W>
struct Vector {
  static constexpr int64_t size = vector_bytes / static_cast<int64_t>(sizeof(W));
  typedef W type __attribute__((vector_size(vector_bytes)));
};

struct Sum {
  static constexpr bool in_registers = true;
  template <class W>
  static constexpr W identity = 0;
  template <class W>
  static W combine(W a, W b) {
    if constexpr (std::is_same_v<W, int64_t>)  // integers wrap around
      return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else if constexpr (std::is_same_v<W, Vector<int64_t>::type>)
      return reinterpret_cast<W>(reinterpret_cast<Vector<uint64_t>::type>(a) +
                                 reinterpret_cast<Vector<uint64_t>::type>(b));
    else
      return a + b;
  }
};

struct Product {
  static constexpr bool in_registers = true;
  template <class W>
  static constexpr W identity = 1;
  template <class W>
  static W combine(W a, W b) {
    if constexpr (std::is_same_v<W, int64_t>)  // integers wrap around
      return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else if constexpr (std::is_same_v<W, Vector<int64_t>::type>)
      return reinterpret_cast<W>(reinterpret_cast<Vector<uint64_t>::type>(a) *
                                 reinterpret_cast<Vector<uint64_t>::type>(b));
    else
      return a * b;
  }
};

/// A sum of terms that are computed one by one.
struct ElementSum : Sum {
  static constexpr bool in_registers = false;
};

/// The largest element, or the smallest.
template <bool largest>
struct Choice {
  static constexpr bool in_registers = false;
  static constexpr bool of_largest = largest;
  template <class W>
  static constexpr W identity = [] {
    using Limits = std::numeric_limits<W>;
    const W most = Limits::has_infinity ? Limits::infinity() : Limits::max();
    const W least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    return largest ? least : most;
  }();
  // Where a is NaN the comparison of a with itself keeps it; where b is, the first one is false.
  // Two selections are two vector instructions; one of both comparisons would be three.
  template <class W>
  static W combine(W a, W b) {
    const W better = (largest ? a > b : a < b) ? a : b;
    return a != a ? a : better;
  }
};
using Max = Choice<true>;
using Min = Choice<false>;

/// Combines the elements of a vector in its first one: halves, then quarters and so on. In
/// registers, for a vector that is stored and read in parts waits for memory.
template <class Op, int64_t half, class V, size_t... I>
V fold_halves(V v, std::index_sequence<I...> all) {
  if constexpr (half == 0) {
    return v;
  } else {
    const V other = __builtin_shufflevector(v, v, (static_cast<int64_t>(I) ^ half)...);
    return fold_halves<Op, half / 2>(Op::combine(v, other), all);
  }
}
template <class Op, class W>
W fold_vector(typename Vector<W>::type v) {
  constexpr int64_t size = Vector<W>::size;
  return fold_halves<Op, size / 2>(v, std::make_index_sequence<size>{})[0];
}

/// Terms of a sum or a choice: the elements themselves.
struct Identity {
  template <class V>
  V operator()(V x, int64_t) const {
    return x;
  }
};
struct Square {
  template <class V>
  V operator()(V x, int64_t) const {
    return x * x;
  }
};
/// 1 where x is the number of its result, else 0.
template <class W, class T>
struct EqualTo {
  const T* number;
  template <class V>
  V operator()(V x, int64_t result) const {
    return x == static_cast<W>(number[result]) ? V{} + W(1) : V{};
  }
};

/// e^(x - shift), one shift a result.
template <class W>
struct Exponential {
  const W* shift;
  W operator()(W x, int64_t result) const { return math::exp(x - shift[result]); }
};

/// An element as it is computed: bytes need not go through float.
template <class W, class T>
W term_of(T x) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return x;
  } else {
    return convert<W>(x);
  }
}

template <class W, class T>
const W* widened(const T* x, int64_t count, W* buffer) {
  if constexpr (std::is_same_v<T, W>) {
    return x;
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    for (int64_t i = 0; i < count; ++i) buffer[i] = x[i];
    return buffer;
  } else {
    widen(count, x, buffer);
    return buffer;
  }
}

/// The elements of x; bool ones are bytes of 0 or 1.
template <class T>
const T* elements(const Tensor& x) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<const uint8_t*>(x.data());
  } else {
    return x.data<T>();
  }
}

/// Calls f(Type<T>{}, Type<W>{}) with the types of x and of its sums.
template <class F>
void visit_terms(const char* op, DType dtype, F f) {
  if (dtype == u8 || dtype == boolean) return f(Type<uint8_t>{}, Type<int64_t>{});
  if (dtype == i64) return f(Type<int64_t>{}, Type<int64_t>{});
  visit_floating(op, dtype, [&]<class T>(Type<T> t) { f(t, Type<Wide<T>>{}); });
}

/// y of what f gives in the dtype of sums.
template <class F>
void through_wide(const Tensor& y, F f) {
  if (!is_low_precision(y.dtype())) return f(y);
  const Tensor wide = Tensor::empty(y.shape(), f32, y.device());
  f(wide);
  copy(wide, y);
}

/// Rows of a chunk when columns of n rows are reduced: about as many as there are chunks.
inline int64_t chunk_rows(int64_t n) {
  int64_t rows = 64;
  while (rows * rows < n) rows *= 2;
  return rows;
}

}  // namespace bs::cpu
