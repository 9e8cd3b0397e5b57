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

/** @brief The same with all that can be reduced beside it. */
inline GemmEpilogue epilogue_of_all_kinds_that_reduces(Element d) {
  using namespace bs::epilogue;
  const Value t = scalar("alpha") * accumulator() + row("r", d) + column("c", Element::f32) +
                  scalar("beta") * tensor("z", d);
  const Value y = gelu(t);
  GemmEpilogue e = GemmEpilogue(y)
                       .store("t", t, d)
                       .row_sum("sums of rows", y)
                       .row_max("maxima of rows", t)
                       .column_sum("sums of columns", y)
                       .column_max("maxima of columns", t);
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

/** @brief Bias and a function, with a sum of one and a maximum of the other. */
inline GemmEpilogue epilogue_that_reduces(Element d) {
  using namespace bs::epilogue;
  const Value t = accumulator() + row("r", d), y = gelu_tanh(t);
  GemmEpilogue e = GemmEpilogue(y).row_sum("sums", y).column_max("maxima", t);
  e.set_d(d);
  return e;
}

}  // namespace bs::test
