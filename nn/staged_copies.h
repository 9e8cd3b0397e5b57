#pragma once
/** @file Copies into many tensors that happen all or not at all. */
#include <bs/lib/tensor.h>

#include <vector>

namespace bs::nn {

/** @brief Copies to be made together. What can fail, above all memory, is done by stage(); apply()
 *  then only moves values. Tensors that are read may be those that are written: each gets what
 *  its source was before. */
class StagedCopies {
 public:
  /** @brief Plans a copy, which converts dtype and device; any strides.
   *  @throws Error when shapes differ, or `to` names an element twice. */
  void add(const Tensor& from, const Tensor& to);
  /** @brief Makes all that the copies need. @throws OutOfMemory. */
  void stage();
  /** @brief Copies; to be called after stage(). */
  void apply() const;

 private:
  struct Copy {
    Tensor from, to;
  };
  std::vector<Copy> copies_;
};

}  // namespace bs::nn
