#include <bs/examples/support/step_graph.h>

#include <bs/kernels/copy.h>

#include <cstdio>
#include <utility>

namespace bs::example {

StepGraph::StepGraph(Device device, std::string_view wish, bool pays)
    : device_(device),
      wanted_(device.is_cuda() && (wish == "on" || (wish == "auto" && pays))),
      demanded_(wish == "on") {}

bool StepGraph::record(Recorded& to, const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
                       const Work& work) {
  optimizer.zero_grad();
  try {
    if (!memory_) memory_ = std::make_unique<cuda::Graph>(device_);
    Recorded made{.known = true,
                  .batch = {},
                  .results = {},
                  .graph = std::make_unique<cuda::Graph>(device_, *memory_)};
    for (const Tensor& t : batch) made.batch.push_back(clone(t));
    made.graph->capture([&] { made.results = work(made.batch); });
    to = std::move(made);
    return true;
  } catch (const Error& e) {
    if (demanded_) throw;
    std::fprintf(stderr, "steps run without a graph: %s\n", e.what());
  }
  reset();
  wanted_ = false;
  return false;
}

std::vector<Tensor> StepGraph::run(const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
                                   const Work& work, int64_t variant) {
  constexpr int before = 2;
  if (!wanted_) return work(batch);
  Key key{.shapes = {}, .variant = variant};
  for (const Tensor& t : batch) key.shapes.push_back(t.shape());
  Recorded& step = recorded_.at(key);
  const bool due = !step.graph && step.known && taken_ >= before;
  if (due && !record(step, batch, optimizer, work)) return work(batch);
  ++taken_;
  step.known = true;
  if (!step.graph) return work(batch);
  for (size_t i = 0; i < batch.size(); ++i) copy(batch[i], step.batch[i]);
  step.graph->replay();
  ++replays_;
  std::vector<Tensor> results;
  for (const Tensor& t : step.results) results.push_back(clone(t));
  return results;
}

void StepGraph::reset() {
  recorded_.clear();
  memory_.reset();
  taken_ = 0;
}

}  // namespace bs::example
