#pragma once
/** @file What was changed in place lately, and by what: how backward finds out that a tensor saved
 *  for it is no longer what it was. */
#include <bs/lib/tensor.h>

#include <cstdint>

namespace bs {

/** @brief Says that `operation` has changed the elements of `x`. The library's functions that work
 * in place say so themselves; call it after writing through a pointer to memory that may be saved.
 *  Thread-safe, and free where no other tensor shares the memory.
 *  @param[in] operation a string that lives as long as the program */
void note_change(const Tensor& x, const char* operation);

/** @brief A moment, for changed_since. */
uint64_t change_count();

/** @brief An operation that changed memory of `x` after the moment `count`, or null. With more than
 * 65,536 parts of memory changed, the oldest are forgotten, and count as changes of any tensor. */
const char* changed_since(const Tensor& x, uint64_t count);

}  // namespace bs
