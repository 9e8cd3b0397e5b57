#pragma once
/** @file A locale whose decimal point is a comma, as a program that uses the library may set it. */
#include <bs/tests/support/environment.h>
#include <bs/tests/support/scratch.h>

#include <locale>
#include <string>

namespace bs::test {

/** @brief Numbers of C and C++ have a decimal comma, and dots between thousands, while it lives.
 * The locale is made here: a machine need not have any. */
class DecimalComma {
 public:
  DecimalComma();
  ~DecimalComma();
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;
  /** @brief Whether printf obeys. It does with glibc; elsewhere only streams of C++ do. */
  bool in_c() const { return in_c_; }

 private:
  Scratch folder_;
  Environment path_;
  std::string before_;
  std::locale streams_;
  bool in_c_ = false;
};

}  // namespace bs::test
