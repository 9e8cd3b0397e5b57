#include <bs/lib/json.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(json) {
  Json first;
  if (!fuzz::takes([&] { first = Json::parse(bytes); })) return;
  const std::string text = first.dump();
  fuzz::require(Json::parse(text) == first, "a value is what it was");
  fuzz::require(Json::parse(text).dump() == text, "one value has one text");
}
