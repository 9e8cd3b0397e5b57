#pragma once
/** @file What a step of an optimiser moves. */
#include <bs/lib/operation.h>

#include <span>

namespace bs {

/** @brief Weights and state are read and written, gradients read. */
template <class Parameter>
Work step_work(std::span<const Parameter> parameters) {
  Work work;
  const auto moves = [&](const Tensor& x, int times) {
    if (x.defined()) work.bytes += times * static_cast<double>(x.bytes());
  };
  for (const Parameter& p : parameters) {
    moves(p.value, p.master.defined() ? 1 : 2);
    moves(p.master, 2);
    moves(p.gradient, 1);
    for (const auto state : Parameter::states) moves(p.*state, 2);
  }
  return work;
}

}  // namespace bs
