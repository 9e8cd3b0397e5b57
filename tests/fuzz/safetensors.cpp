#include <bs/lib/safetensors.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(safetensors) {
  const std::string path = fuzz::file_of("input", bytes);
  Safetensors first;
  if (!fuzz::takes([&] { first = load_safetensors(path); })) return;
  const std::string copy = fuzz::path_of("copy");
  save_safetensors(copy, first);
  const Safetensors again = load_safetensors(copy);
  fuzz::require(again.metadata == first.metadata, "metadata are what they were");
  fuzz::require(again.tensors.size() == first.tensors.size(), "all tensors are there");
  for (const auto& [name, tensor] : first.tensors)
    fuzz::require(again.tensors.contains(name) && fuzz::same(tensor, again.tensors.at(name)),
                  "tensors are what they were");
}
