// Prints the level whose functions it got; fails where they are not of one level, or headers mix.
#include "levels.h"

#include <cstdio>
#include <stdexcept>
#include <string>

int main() {
  const double x[] = {1, 2, 4};
  bool right = level_of_header() == level() && plain_level_of_header() == 2 && inlined() == 2;
  right = right && sum(x, 3) == 7 && last(1, 2, 3, 4, 5, 6, 7, 9, 8) == 789;
  try {
    refuse(12);
    right = false;
  } catch (const std::invalid_argument& error) {
    right = right && std::string(error.what()) == "12";
  }
  std::printf("level %d\n", level());
  return right ? 0 : 1;
}
