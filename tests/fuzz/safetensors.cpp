#include <bs/lib/safetensors.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(safetensors) {
  const std::string path = fuzz::file_of("input", bytes);
  Safetensors first, mapped;
  const bool loads = fuzz::takes([&] { first = load_safetensors(path); });
  const bool maps = fuzz::takes([&] { mapped = map_safetensors(path); });
  fuzz::require(loads == maps, "what can be read can be mapped");
  if (!loads) return;
  fuzz::require(mapped.tensors.size() == first.tensors.size() && mapped.metadata == first.metadata,
                "all that is read is mapped");
  const std::string copy = fuzz::path_of("copy");
  save_safetensors(copy, first);
  const Safetensors again = load_safetensors(copy);
  fuzz::require(again.metadata == first.metadata, "metadata are what they were");
  fuzz::require(again.tensors.size() == first.tensors.size(), "all tensors are there");
  for (const auto& [name, tensor] : first.tensors) {
    fuzz::require(mapped.tensors.contains(name) && fuzz::same(tensor, mapped.tensors.at(name)),
                  "tensors are mapped as they are read");
    fuzz::require(again.tensors.contains(name) && fuzz::same(tensor, again.tensors.at(name)),
                  "tensors are what they were");
  }
}
