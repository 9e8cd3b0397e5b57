#include <bs/lib/npy.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(npy) {
  const std::string path = fuzz::file_of("input", bytes);
  Tensor first;
  if (!fuzz::takes([&] { first = load_npy(path); })) return;
  fuzz::require(!to_string(first).empty(), "what is read can be printed");
  const std::string copy = fuzz::path_of("copy");
  save_npy(copy, first);
  fuzz::require(fuzz::same(first, load_npy(copy)), "a tensor is what it was");
}
