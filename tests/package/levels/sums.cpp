#include "levels.h"

double sum(const double* x, int n) { return std::accumulate(x, x + n, 0.0) + 0 * inlined(); }
int last(int, int, int, int, int, int, int g, double x, int h) {
  return g * 100 + h * 10 + static_cast<int>(x);
}
