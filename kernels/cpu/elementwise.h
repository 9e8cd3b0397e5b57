#pragma once
/** @file Runs a function of elements over operands of any strides and dtype on the cores.
 *
 *  Everything is brought, a short piece at a time, into dense arrays of the type it is computed in.
 *  So all that is compiled for a function is one dense loop for each such type, which vectorises;
 *  the pieces stay in the first cache. Operands that are dense already are read where they lie. */
#include <bs/kernels/operand.h>

#include <span>
#include <utility>

namespace bs::cpu {

namespace detail {

/// y[i] = f(x[0][i], x[1][i], ...) for i < n, the types known to the loop only.
using Loop = void (*)(const void* f, int64_t n, void* y, const void* const* x);

/// Runs `loop` over all elements of `y`. Inputs are read as `types`, to which their dtype is equal
/// or, where it has 16 bits, widened; the loop's results are narrowed likewise.
void run(Loop loop, const void* f, const Tensor& y, std::span<const Operand> x,
         std::span<const DType> types);

template <class F, class R, class... W>
void dense_loop(const F& f, int64_t n, R* __restrict y, const W* __restrict... x) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}

template <class F, class R, class... W, size_t... I>
Loop loop_of(std::index_sequence<I...>) {
  return [](const void* f, int64_t n, void* y, const void* const* x) {
    dense_loop(*static_cast<const F*>(f), n, static_cast<R*>(y), static_cast<const W*>(x[I])...);
  };
}

}  // namespace detail

/** @brief y = f(x...) element by element. Inputs are up to three tensors expanded to y's shape, or
 *  Operands. f takes values of types W and gives one of type R: float for all floats but f64. */
template <class R, class... W, class F, class... X>
void map(const F& f, const Tensor& y, const X&... x) {
  static_assert(sizeof...(W) == sizeof...(X) && sizeof...(X) <= 3);
  const Operand operands[] = {Operand(x)...};
  const DType types[] = {dtype_of<W>...};
  detail::run(detail::loop_of<F, R, W...>(std::index_sequence_for<W...>{}), &f, y, operands, types);
}

/** @brief Calls f(Type<W>{}) with the type that floats of `dtype` are computed in. */
template <class F>
void visit_wide(const char* op, DType dtype, F&& f) {
  if (is_low_precision(dtype) || dtype == f32) {
    f(Type<float>{});
  } else if (dtype == f64) {
    f(Type<double>{});
  } else {
    bs::detail::unsupported_dtype(op, dtype, "f64, f32, f16 or bf16");
  }
}

}  // namespace bs::cpu
