#pragma once
/** @file Arguments to begin a search with. */
#include <bs/tests/misuse/misuse.h>

namespace bs::test {

/** @brief Arguments that fit, of the functions for which no search finds them. */
class Starts {
 public:
  Starts();
  /** @brief Those of the function `name`, turned into the types of its arguments, which stand for
   *  what is not told; and tensors that are alike, which fit most functions. */
  std::vector<Arguments> of(const std::string& name, const Arguments& unset) const;

 private:
  std::multimap<std::string, Arguments> all_;
};

}  // namespace bs::test
