#pragma once
/** @file Steps of training as one launch of a GPU each. */
#include <bs/lib/graph.h>
#include <bs/lib/tensor.h>
#include <bs/nn/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace bs::example {

/** @brief Runs steps as they come, or records one and replays it, with the same bits. */
class StepGraph {
 public:
  /** @brief What a step does with the tensors of a batch. */
  using Work = std::function<void(const std::vector<Tensor>& batch)>;

  /** @param[in] wish of `--graph`: auto, on or off
   *  @param[in] pays whether `auto` records steps on a GPU */
  StepGraph(Device device, std::string_view wish, bool pays = true);

  /** @brief One step. The first two run as they are, for tables and kernels are made then. The next
   *  is recorded, on tensors of its own that every batch of its shapes is copied into. What `work`
   *  makes is the graph's from then on: a loss must be cloned to be kept.
   *  @throws Error with `--graph on` where a step cannot be recorded; else a line says why, and
   * steps run as they are. */
  void run(const std::vector<Tensor>& batch, optim::Optimizer& optimizer, const Work& work);
  /** @brief Whether the last step was a replay. */
  bool replayed() const { return replayed_; }
  /** @brief Forgets the recorded step, before what it works on changes place. */
  void reset();

 private:
  bool fits(const std::vector<Tensor>& batch) const;
  void record(const std::vector<Tensor>& batch, optim::Optimizer& optimizer, const Work& work);

  Device device_;
  bool wanted_, demanded_;
  bool replayed_ = false;
  int taken_ = 0;                 ///< steps since the last reset
  std::vector<Tensor> recorded_;  ///< what the graph reads
  std::unique_ptr<cuda::Graph> graph_;
};

}  // namespace bs::example
