#include <bs/lib/cuda/encoded_maps.h>

#include <cstdint>

namespace bs::cuda {

size_t EncodedMaps::place_of(const TiledTensor& tensor) {
  auto hash = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(tensor.address));
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15; };
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    add(static_cast<uint64_t>(tensor.dims[i]));
    add(static_cast<uint64_t>(tensor.strides[i]));
    add(static_cast<uint64_t>(tensor.box[i]));
  }
  constexpr int bits = 64;
  static_assert(places == 256);
  return hash >> (bits - 8);
}

}  // namespace bs::cuda
