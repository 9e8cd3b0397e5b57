// The one harness of this program, for libFuzzer.
#include <bs/tests/fuzz/harness.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bs::fuzz::harnesses()->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
