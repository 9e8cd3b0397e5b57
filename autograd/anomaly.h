#pragma once
/** @file Finding the operation that makes the first NaN. */
#include <bs/autograd/variable.h>

#include <span>

namespace bs {

/** @brief While it lives, every differentiable operation of this thread, and every step of its
 *  backwards, looks for NaN in what it made. The first one throws an Error that tells which
 * operation, which result or gradient, how many elements and where. It also tells whether an input
 * held one. For the search only: each look reads the whole tensor and waits for the device. */
class DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool previous_;
};

/** @brief Whether this thread looks for NaN. */
bool detecting_anomaly();

namespace detail {
/// Throws where `outputs` of the operation `name` hold NaN.
void check_results(const char* name, std::span<const Variable> inputs,
                   std::span<const Tensor> outputs);
/// Throws where the gradients that the backward of `name` made of `dys` hold NaN.
void check_gradients(const char* name, std::span<const Tensor> dys,
                     std::span<const Tensor> gradients);
}  // namespace detail

}  // namespace bs
