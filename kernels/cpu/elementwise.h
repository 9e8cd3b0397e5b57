#pragma once
/** @file Runs a function of elements over operands of any strides and dtype on the cores.
 *
 *  Everything is brought, a short piece at a time, into dense arrays of the type it is computed in.
 *  So all that is compiled for a function is one dense loop for each such type, which vectorises;
 *  the pieces stay in the first cache. Operands that are dense already are read where they lie.
 * Where all are dense and of one 16-bit dtype, a second loop converts them on the way. */
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/operand.h>

#include <span>
#include <utility>

namespace bs::cpu {

namespace loops {

/// Elements that a loop takes at a time.
inline constexpr int64_t block = 64;

/// An input of a loop: dense, or a block of equal elements, which is read again and again.
struct Source {
  const void* data;
  bool moves;
};

/// y[i] = f(x[0][i], x[1][i], ...) for i < n, the types known to the loop only.
using Loop = void (*)(const void* f, int64_t n, void* y, const Source* x);

/// A loop over the types that are computed in; where these are floats, also loops over whole blocks
/// of 16-bit elements, which are widened and narrowed on the way.
struct Loops {
  Loop wide = nullptr, of_half = nullptr, of_bfloat16 = nullptr;
};

/// Runs a loop over all elements of `y`. Inputs are read as `types`, to which their dtype is equal
/// or, where it has 16 bits, widened; the loop's results are narrowed likewise.
void run(const Loops& loops, const void* f, const Tensor& y, std::span<const Operand> x,
         std::span<const DType> types);

template <class T>
struct Block {
  /// g++ vectorises no load of a bool.
  using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  const Stored* at;
  int64_t step;

  explicit Block(const Source& x)
      : at(static_cast<const Stored*>(x.data)), step(x.moves ? block : 0) {}
  void next() { at += step; }
};

/// Of a function that holds for most arguments, as f.holds tells: y[i] = f.beyond(x[i]...)
/// elsewhere.
template <class F, class R, class... X>
void mend(const F& f, int64_t n, R* y, const X*... x) {
  if constexpr (requires { f.holds(*x...); }) {
    int beyond = 0;
    for (int64_t i = 0; i < n; ++i) beyond |= f.holds(x[i]...) ? 0 : 1;
    if (beyond == 0) return;
    for (int64_t i = 0; i < n; ++i)
      if (!f.holds(x[i]...)) y[i] = f.beyond(x[i]...);
  }
}

template <class F, class R, class... W>
void dense_loop(const F& f, int64_t n, R* __restrict y, Block<W>... x) {
  for (; n >= block; n -= block, y += block, (x.next(), ...)) {
    for (int64_t i = 0; i < block; ++i) y[i] = f(static_cast<W>(x.at[i])...);
    mend(f, block, y, x.at...);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = f(static_cast<W>(x.at[i])...);
  mend(f, n, y, x.at...);
}

template <class T>
struct WideBlock {
  alignas(64) float at[block];

  explicit WideBlock(const T* x) { widen(block, x, at); }
};

/// y[i] = f(x[i]...) for a block. Of constant length, what is widened stays in registers.
template <class F, class T, class... X>
void compute_block(const F& f, T* y, const X&... x) {
  alignas(64) float wide[block];
#pragma omp simd
  for (int64_t i = 0; i < block; ++i) wide[i] = f(x.at[i]...);
  mend(f, block, wide, x.at...);
  narrow(block, wide, y);
}

template <class F, class T, class... X>
void narrow_loop(const F& f, int64_t n, T* y, X... x) {
  for (; n >= block; n -= block, y += block, (x.next(), ...))
    compute_block(f, y, WideBlock<T>(x.at)...);
}

template <class F, class R, class... W, size_t... I>
Loops loops_of(std::index_sequence<I...>) {
  Loops loops;
  loops.wide = [](const void* f, int64_t n, void* y, const Source* x) {
    dense_loop(*static_cast<const F*>(f), n, static_cast<R*>(y), Block<W>(x[I])...);
  };
  if constexpr ((std::is_same_v<R, float> && ... && std::is_same_v<W, float>)) {
    loops.of_half = [](const void* f, int64_t n, void* y, const Source* x) {
      narrow_loop(*static_cast<const F*>(f), n, static_cast<half*>(y), Block<half>(x[I])...);
    };
    loops.of_bfloat16 = [](const void* f, int64_t n, void* y, const Source* x) {
      narrow_loop(*static_cast<const F*>(f), n, static_cast<bfloat16*>(y),
                  Block<bfloat16>(x[I])...);
    };
  }
  return loops;
}

}  // namespace loops

/** @brief y = f(x...) element by element. Inputs are up to three tensors expanded to y's shape, or
 *  Operands. f takes values of types W and gives one of type R: float for all floats but f64. Where
 *  it has `holds`, what that refuses is given to f.beyond instead. */
template <class R, class... W, class F, class... X>
void map(const F& f, const Tensor& y, const X&... x) {
  static_assert(sizeof...(W) == sizeof...(X) && sizeof...(X) <= 3);
  const Operand operands[] = {Operand(x)...};
  const DType types[] = {dtype_of<W>...};
  loops::run(loops::loops_of<F, R, W...>(std::index_sequence_for<W...>{}), &f, y, operands, types);
}

/** @brief Calls f(Type<W>{}) with the type that floats of `dtype` are computed in. */
template <class F>
void visit_wide(const char* op, DType dtype, F&& f) {
  if (is_low_precision(dtype) || dtype == f32) {
    f(Type<float>{});
  } else if (dtype == f64) {
    f(Type<double>{});
  } else {
    detail::unsupported_dtype(op, dtype, "f64, f32, f16 or bf16");
  }
}

/** @brief y = f(x) of floats, element by element, computed in the type for their dtype. */
template <class F>
void map_floats(const char* op, const F& f, const Tensor& x, const Tensor& y) {
  visit_wide(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W>(f, y, x); });
}

/** @brief y = f(a, b), likewise. */
template <class F>
void map_floats(const char* op, const F& f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_wide(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
}

}  // namespace bs::cpu
