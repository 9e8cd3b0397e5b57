#include <bs/lib/environment.h>
#include <bs/tests/support/environment.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("environment: a variable that is 0 or empty wishes for nothing") {
  const char* const name = "BS_TEST_WISH";
  CHECK(!is_wished(name));
  test::Environment environment(name, "0");
  CHECK(!is_wished(name));
  environment.set(name, "");
  CHECK(!is_wished(name));
  for (const char* const yes : {"1", "on", "00", " "}) {
    environment.set(name, yes);
    CHECK(is_wished(name));
  }
}
