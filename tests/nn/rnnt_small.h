#pragma once
/** @file A recogniser and a batch that are small enough to be checked by hand. */
#include <bs/nn/rnnt.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>

#include <cmath>
#include <initializer_list>

namespace bs::test {

/** @brief A model of a dozen cells. */
inline nn::RNNTOptions small_rnnt(DType dtype = f32) {
  return {.features = 6,
          .encoder_hidden = 11,
          .pre_layers = 1,
          .stack = 2,
          .post_layers = 2,
          .prediction_hidden = 12,
          .prediction_layers = 1,
          .joint = 13,
          .classes = 9,
          .encoder_dropout = 0,
          .prediction_dropout = 0,
          .joint_dropout = 0,
          .lstm_scale = 1,
          .dtype = dtype,
          .device = test_device()};
}

inline Tensor random_features(const Shape& shape, DType dtype, uint64_t seed = 1) {
  return random_reference(shape, seed).tensor(dtype, test_device());
}

inline Tensor host_lengths(std::initializer_list<int64_t> lengths) { return Tensor::from(lengths); }

inline Tensor random_tokens(const Shape& shape) {
  Reference r = random_reference(shape, 3, 0, 8);
  for (double& v : r.values) v = std::floor(v);
  return r.tensor(i32, test_device());
}

/** @brief Five utterances of other lengths, one of which has no labels. */
inline nn::RNNTBatch rnnt_batch(DType dtype) {
  return {.features = random_features({5, 9, 6}, dtype),
          .lengths = host_lengths({9, 4, 7, 9, 5}),
          .targets = random_tokens({5, 4}),
          .target_lengths = host_lengths({4, 0, 3, 1, 4})};
}

}  // namespace bs::test
