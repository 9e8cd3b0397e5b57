#pragma once

// Which items of work there are, in which order they are taken, and how they are cut into parts
// that several CTAs have: plain data, and the same to the host's compiler, which fills it, as to
// the device's.

namespace bs::cuda::device {

/// Steps [begin, end) of the depth of one item of work. The parts of an item are numbered in the
/// order in which the list has them, which is the order in which their sums are added.
struct WorkPiece {
  int item;
  int begin, end;
  int part, parts;
  int slot;  ///< of the item's first part among the partial sums; the last part needs none
};
/// In which order the items of dsd are taken, a column being a tile of columns of one C: the
/// longest strips over all columns, then the others over a group of columns after the other.
struct WorkOrder {
  int first;   ///< strips that come first
  int group;   ///< columns of a group; the last one has what remains besides
  int groups;  ///< at least 1
};
/// What one CTA does of an item of sdd: `count` columns of a strip, from place `first` among the
/// columns of all strips on.
struct SddRange {
  int strip;  ///< over all heads
  int first, count;
};
/// A list of pieces, where items are not taken whole.
struct WorkSplit {
  const WorkPiece* pieces;  ///< null: items are taken whole
  void* partials;           ///< [slots, warpgroups, sums of one]
  int* arrived;             ///< [slots, warpgroups], zeros before and after a launch
};

}  // namespace bs::cuda::device
