#pragma once
/** @file Descriptions for the copy engine that were encoded lately. */
#include <bs/lib/cuda/tensor_map.h>

#include <cstddef>
#include <vector>

namespace bs::cuda {

/** @brief The maps that were made last, each in a place that its tensor tells: operations ask for
 *  the same ones step after step, and to find one takes a tenth of what the driver takes. For one
 *  thread. */
class EncodedMaps {
 public:
  static constexpr size_t places = 256;

  /** @brief The map of `tensor`; `encode()` makes it where it is not at hand. */
  template <class Encode>
  const TensorMap& get(const TiledTensor& tensor, const Encode& encode) {
    if (entries_.empty()) entries_.resize(places);
    Entry& entry = entries_[place_of(tensor)];
    if (!entry.tensor.address || entry.tensor != tensor) {
      entry.tensor.address = nullptr;  // of nothing while encode() may throw
      entry.map = encode();
      entry.tensor = tensor;
    }
    return entry.map;
  }

  /** @brief A number below `places`. */
  static size_t place_of(const TiledTensor& tensor);

 private:
  struct Entry {
    TiledTensor tensor;
    TensorMap map;
  };
  std::vector<Entry> entries_;  ///< none before the first is asked for
};

}  // namespace bs::cuda
