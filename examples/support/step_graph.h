#pragma once
/** @file Steps of training as one launch of a GPU each. */
#include <bs/examples/support/recent.h>
#include <bs/lib/graph.h>
#include <bs/lib/tensor.h>
#include <bs/nn/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace bs::example {

/** @brief Runs steps as they come, or records and replays them, with the same bits. Steps of other
 *  shapes are graphs of their own. All work on one memory. */
class StepGraph {
 public:
  static constexpr size_t most_graphs = 64;

  /** @brief What a step does with the tensors of a batch. What it returns, such as a loss, is all
   *  that is left of a replay when others follow. */
  using Work = std::function<std::vector<Tensor>(const std::vector<Tensor>& batch)>;

  /** @param[in] wish of `--graph`: auto, on or off
   *  @param[in] pays whether `auto` records steps on a GPU */
  StepGraph(Device device, std::string_view wish, bool pays = true);

  /** @brief One step. The first two run as they are, and the first of each shape, for tables and
   *  kernels are made then. The next of a shape is recorded, on tensors of its own that every batch
   *  of this shape is copied into. The graph that was not used for longest makes room for another.
   *  @param[in] variant a number of the host that the step depends on besides the shapes
   *  @return what `work` returned, of a replay as copies
   *  @throws Error with `--graph on` where a step cannot be recorded; else a line says why, and
   *  steps run as they are. */
  std::vector<Tensor> run(const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
                          const Work& work, int64_t variant = 0);
  /** @brief Whether steps are to be recorded, so that few shapes are better. */
  bool wanted() const { return wanted_; }
  /** @brief Steps that were replays. */
  int64_t replays() const { return replays_; }
  /** @brief Forgets the recorded steps, before what they work on changes place. */
  void reset();

 private:
  struct Key {
    std::vector<Shape> shapes;
    int64_t variant;
    bool operator==(const Key&) const = default;
  };
  struct Recorded {
    bool known = false;  ///< whether a step ran as it is
    std::vector<Tensor> batch, results;
    std::unique_ptr<cuda::Graph> graph;
  };
  /// Whether it could be.
  bool record(Recorded& to, const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
              const Work& work);

  Device device_;
  bool wanted_, demanded_;
  int taken_ = 0;  ///< steps since the last reset
  int64_t replays_ = 0;
  std::unique_ptr<cuda::Graph> memory_;  ///< of all graphs; records nothing itself
  Recent<Key, Recorded> recorded_{most_graphs};
};

}  // namespace bs::example
