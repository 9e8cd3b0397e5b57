#pragma once
/** @file Differentiable joining and cutting; see kernels/concat.h. */
#include <bs/autograd/variable.h>

#include <initializer_list>
#include <span>
#include <vector>

namespace bs {

/** @brief The parts behind each other along `axis`. Its backward is views. */
Variable concat(std::span<const Variable> parts, int axis);
inline Variable concat(std::initializer_list<Variable> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}
/** @brief The parts along a new axis. */
Variable stack(std::span<const Variable> parts, int axis);
inline Variable stack(std::initializer_list<Variable> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}
/** @brief Views of consecutive pieces of `axis`. One operation: its backward is one concat. */
std::vector<Variable> split(const Variable& x, const std::vector<int64_t>& sizes, int axis);
/** @brief Views of `count` equal pieces of `axis`. */
std::vector<Variable> chunk(const Variable& x, int64_t count, int axis);

}  // namespace bs
