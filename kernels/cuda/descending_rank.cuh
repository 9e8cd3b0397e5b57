#pragma once
// The order of few numbers, each compared with all.

namespace bs::cuda {

/// How many of `count` numbers come before number `i` where the greatest come first, and of equals
/// the first.
__device__ inline int descending_rank(const int* numbers, int count, int i) {
  const int own = numbers[i];
  int before = 0;
  for (int other = 0; other < count; ++other)
    before += numbers[other] > own || (numbers[other] == own && other < i);
  return before;
}

}  // namespace bs::cuda
