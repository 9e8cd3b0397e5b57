#pragma once
/** @file What a run has learnt, as pictures: grey ones in PGM, which every viewer of images opens.
 */
#include <bs/examples/image_classifier/images.h>
#include <bs/lib/tensor.h>

#include <string>

namespace bs::example {

/** @brief The confusion matrix: a square for each pair of classes, rows the true ones; the darker,
 *  the larger its share of the row. */
std::string confusion_picture(const std::vector<int64_t>& confusion, int64_t classes);

/** @brief The filters of a weight [K, C, R, S], of its first input channel, side by side and 8
 * times as large; grey is 0. */
std::string filter_picture(const Tensor& weight);

/** @brief The pairs that are confused most often, as one line of text. */
std::string worst_pairs(const std::vector<int64_t>& confusion,
                        const std::vector<std::string>& names, size_t count);

}  // namespace bs::example
