#include <bs/examples/image_classifier/pruning.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>

#include <algorithm>
#include <cmath>

namespace bs::example {
namespace {

constexpr int64_t block = 8;

/// Sums of squares of the blocks of a weight [K, C, R, S]: [K / 8, C / 8, R, S], f32 on the host.
Tensor block_norms(const Tensor& weight) {
  const Tensor blocks = weight.view({weight.size(0) / block, block, weight.size(1) / block, block,
                                     weight.size(2), weight.size(3)});
  const Tensor wide = cast(blocks, f32);
  return to(contiguous(sum(mul(wide, wide), Dims{1, 3})), Device::cpu());
}

/// 1 where a block's norm is at least `least`, and more than 0.
Tensor mask_of(const Tensor& weight, const Tensor& norms, double least) {
  const Tensor kept =
      cast(gt(norms, std::nextafter(static_cast<float>(least), 0.0F)), weight.dtype());
  Tensor blocks = to(kept, weight.device()).unsqueeze(1).unsqueeze(3);
  blocks = blocks.expand({weight.size(0) / block, block, weight.size(1) / block, block,
                          weight.size(2), weight.size(3)});
  return clone(blocks).view(weight.shape());
}

}  // namespace

int PruningSchedule::stage(int64_t step) const {
  if (!prune || step < steps / 2) return 0;
  const int64_t rest = std::max<int64_t>(steps - steps / 2, 1);
  return static_cast<int>(std::min<int64_t>(3, 1 + 3 * (step - steps / 2) / rest));
}

BlockPruning::BlockPruning(const ResNet& model) {
  for (const auto& b : model.blocks) {
    if (!b->conv1.dense) continue;
    weights_.push_back(b->conv1.dense->weight);
    weights_.push_back(b->conv2.dense->weight);
  }
  masks_.resize(weights_.size());
}

void BlockPruning::prune(double density) {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Tensor& weight = weights_[i].data();
    const Tensor norms = block_norms(weight);
    std::vector<double> sorted;
    const Tensor flat = norms.view({norms.numel()});
    for (int64_t b = 0; b < flat.numel(); ++b) sorted.push_back(flat.select(0, b).item());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto count = static_cast<size_t>(std::ceil(density * static_cast<double>(sorted.size())));
    masks_[i] = mask_of(weight, norms, sorted[std::max<size_t>(count, 1) - 1]);
  }
  apply();
}

void BlockPruning::find() {
  for (size_t i = 0; i < weights_.size(); ++i)
    masks_[i] = mask_of(weights_[i].data(), block_norms(weights_[i].data()), 0);
}

void BlockPruning::apply() const {
  for (size_t i = 0; i < weights_.size(); ++i)
    if (masks_[i].defined()) copy(mul(weights_[i].data(), masks_[i]), weights_[i].data());
}

double BlockPruning::density() const {
  double kept = 0, all = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto count = static_cast<double>(weights_[i].data().numel());
    all += count;
    kept += masks_[i].defined() ? sum(cast(masks_[i], f32)).item() : count;
  }
  return kept / all;
}

}  // namespace bs::example
