#pragma once
// Functions of a level, and one that a header defines for all.
#include <numeric>
#include <vector>

#ifdef __AVX512F__
#define LEVEL 4
#elif defined(__AVX2__)
#define LEVEL 3
#else
#define LEVEL 2
#endif

/// As every header's function, one that the linker would take from any object.
inline int inlined() {
  static const std::vector<int> once(1, LEVEL);
  return once[0];
}

int level();
int level_of_header();
int plain_level_of_header();
double sum(const double* x, int n);
/// Throws its argument.
void refuse(int what);
/// More arguments than registers pass.
int last(int a, int b, int c, int d, int e, int f, int g, double x, int h);
