#pragma once

// How items of work are cut into parts that several CTAs have: plain data, and the same to the
// host's compiler, which fills it, as to the device's.

namespace bs::cuda::device {

/// Steps [begin, end) of the depth of one item of work. The parts of an item are numbered in the
/// order in which the list has them, which is the order in which their sums are added.
struct WorkPiece {
  int item;
  int begin, end;
  int part, parts;
  int slot;  ///< of the item's first part among the partial sums; the last part needs none
};
/// A list of pieces, where items are not taken whole.
struct WorkSplit {
  const WorkPiece* pieces;  ///< null: items are taken whole
  void* partials;           ///< [slots, groups of four warps, sums of one]
  int* arrived;             ///< [slots, groups], zeros before and after a launch
};

}  // namespace bs::cuda::device
