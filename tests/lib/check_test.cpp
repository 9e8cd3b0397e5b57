#include <bs/lib/check.h>
#include <bs/lib/dims.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("format puts arguments into place") {
  CHECK(format("plain") == "plain");
  CHECK(format("{} + {} = {}", 1, 2, 3) == "1 + 2 = 3");
  CHECK(format("{}{}", "a", std::string("b")) == "ab");
  CHECK(format("{}", std::string_view("view")) == "view");
  CHECK(format("{} {}", true, false) == "true false");
  CHECK(format("{} {} {}", 0.5, 1e20, 1.0F / 3) == "0.5 1e+20 0.333333");
  CHECK(format("{}", Shape{2, 3}) == "[2, 3]");
  CHECK(format("{} {}", int8_t{-5}, uint64_t{18446744073709551615U}) == "-5 18446744073709551615");
  // Braces in arguments stay, arguments too many are dropped, places too many stay.
  CHECK(format("{} {}", "{}", 1) == "{} 1");
  CHECK(format("{}", 1, 2) == "1");
  CHECK(format("{} {}", 1) == "1 {}");
  CHECK(format("{x} {", 1) == "{x} {");
}

TEST_CASE("check throws the text, and evaluates arguments only then") {
  int evaluated = 0;
  const auto count = [&] { return ++evaluated; };
  BS_CHECK(1 + 1 == 2, "never {}", count());
  CHECK(evaluated == 0);
  CHECK_THROWS_WITH_AS(BS_CHECK(1 + 1 == 3, "op: got {}", count()), "op: got 1", Error);
}

TEST_CASE("errors are of one kin") {
  const auto thrower = [](int kind) {
    if (kind == 0) BS_THROW(OutOfMemory, "memory: {}", 1);
    if (kind == 1) BS_THROW(IoError, "io");
    BS_THROW(CudaError, "cuda");
  };
  CHECK_THROWS_AS(thrower(0), OutOfMemory);
  CHECK_THROWS_AS(thrower(1), IoError);
  CHECK_THROWS_AS(thrower(2), CudaError);
  for (int kind : {0, 1, 2}) CHECK_THROWS_AS(thrower(kind), Error);
}
