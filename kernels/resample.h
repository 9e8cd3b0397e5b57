#pragma once
/** @file Linear maps of the rows and of the columns of images, each output from a few inputs.
 *  Average pooling, interpolation and padding are such maps, and their gradients too. */
#include <bs/kernels/dispatch.h>

#include <vector>

namespace bs {

/** @brief y_o = sum over i of weights[i] x[from[i]], for i in [offsets[o], offsets[o + 1]). */
class AxisMap {
 public:
  /** @brief A map from an axis of `inputs`; outputs are appended one after the other. */
  explicit AxisMap(int64_t inputs) : inputs_(inputs) {}
  /** @brief Adds an input to the output under way. Weights of 0 are left out, so that what is not
   *  finite and has no part in an output does not reach it. */
  void add(int64_t from, double weight);
  /** @brief Ends the output under way. */
  void end() { offsets_.push_back(static_cast<int32_t>(from_.size())); }
  /** @brief The map of gradients: from outputs to inputs. */
  AxisMap transposed() const;

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  const std::vector<int32_t>& offsets() const { return offsets_; }
  const std::vector<int32_t>& from() const { return from_; }
  const std::vector<double>& weights() const { return weights_; }

 private:
  int64_t inputs_;
  std::vector<int32_t> offsets_ = {0};
  std::vector<int32_t> from_;
  std::vector<double> weights_;
};

/** @brief Both axes of an image. */
struct ImageMap {
  AxisMap rows, columns;
  ImageMap transposed() const { return {rows.transposed(), columns.transposed()}; }
};

/** @brief Throws an Error naming `op` where a map of `outputs`, each of so many inputs, has more
 *  entries than 32 bits count. Asked before the map takes memory. */
void check_map_size(const char* op, int64_t outputs, int64_t inputs);
/** @brief Throws an Error naming `op` unless dy has the images and channels of x, [N, C, H, W]. */
void check_same_images(const char* op, const Tensor& dy, const Shape& x);

/** @brief The map applied to x [N, C, H, W], floating, any strides.
 *  @param[in] outside value of outputs that no input has a part in
 *  @return y [N, C, rows.outputs(), columns.outputs()] in x's format, dense. Sums are kept in f32,
 *  f64 for f64. */
Tensor resample(const char* op, const ImageMap& map, const Tensor& x, double outside = 0);

/// x [images, H, W, C] and y [images, P, Q, C], contiguous and not empty; planes have C = 1.
BS_BACKENDS(void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y,
                          Stream stream))

}  // namespace bs
