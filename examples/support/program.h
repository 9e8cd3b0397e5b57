#pragma once
/** @file The outermost frame of an example. */
#include <bs/examples/support/run_options.h>

#include <cstdio>
#include <exception>

namespace bs::example {

/** @brief What `work` returns, for main to return; where it throws, says why and returns 2 for a
 *  wrong command line, 1 for all else. */
template <class Work>
int run_program(const char* name, const Work& work) {
  constexpr int failed = 1, wrong_usage = 2;
  try {
    return work();
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s (--help lists the options)\n", name, error.what());
    return wrong_usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return failed;
  }
}

}  // namespace bs::example
