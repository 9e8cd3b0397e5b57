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

}  // namespace bs::test
