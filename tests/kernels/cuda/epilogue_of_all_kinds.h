#pragma once
/** @file An epilogue that asks the most of a kernel. */
#include <bs/kernels/gemm_epilogue.h>

namespace bs::test {

/** @brief Every kind of operand, a function, one more result that leaves as D does, and one that
 *  does not. */
inline GemmEpilogue epilogue_of_all_kinds(Element d) {
  using namespace bs::epilogue;
  const Value t = scalar("alpha") * accumulator() + row("r", d) + column("c", Element::f32) +
                  scalar("beta") * tensor("z", d);
  GemmEpilogue e = GemmEpilogue(gelu(t)).store("t", t, d).store("wide", t, Element::f32);
  e.set_d(d);
  return e;
}

/** @brief What a layer of a network asks for. */
inline GemmEpilogue bias_and_gelu(Element d) {
  using namespace bs::epilogue;
  GemmEpilogue e(gelu_tanh(accumulator() + row("r", d)));
  e.set_d(d);
  return e;
}

/** @brief Bias, a function and what it is taken of, with reductions of both, one of each kind. */
inline GemmEpilogue epilogue_that_reduces(Element d) {
  using namespace bs::epilogue;
  const Value t = accumulator() + row("r", d), y = gelu_tanh(t);
  GemmEpilogue e = GemmEpilogue(y)
                       .store("t", t, d)
                       .row_sum("row sums", y)
                       .row_max("row maxima", t)
                       .column_sum("column sums", t)
                       .column_max("column maxima", y);
  e.set_d(d);
  return e;
}

}  // namespace bs::test
