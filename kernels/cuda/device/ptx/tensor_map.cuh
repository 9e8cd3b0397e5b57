#pragma once
// What the driver encodes of a tensor for the copy engine: plain data, which host code fills too.

namespace bs::cuda::device {

/// See lib/cuda/tensor_map.h.
struct alignas(64) TensorMapWords {
  unsigned long long words[16];
};

}  // namespace bs::cuda::device
