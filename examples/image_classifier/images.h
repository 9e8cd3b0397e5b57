#pragma once
/** @file Batches of labelled images, and what augments them. */
#include <bs/examples/image_classifier/labelled_images.h>
#include <bs/examples/image_classifier/options.h>
#include <bs/lib/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bs::example {

/** @brief What a run learns from, and what it is measured by. */
struct ImageData {
  Images train, held_out;
  std::vector<std::string> names;  ///< of the classes
  std::string fingerprint;

  int64_t classes() const { return static_cast<int64_t>(names.size()); }
};

/** @brief A batch on a device. */
struct ImageBatch {
  Tensor images;   ///< f32 [n, 1, size, size], of mean 0
  Tensor classes;  ///< i64 [n]
};

/** @brief Images [from, to), as they are. */
ImageBatch images_as_they_are(const Images& images, int64_t from, int64_t to, Device device);

/** @brief The batch of step `step`: images drawn at random and, where options say so, moved,
 * turned, sheared, resized and blurred by noise. The same options and step give the same batch. */
ImageBatch training_batch(const Images& images, const Options& options, int64_t step);

}  // namespace bs::example
