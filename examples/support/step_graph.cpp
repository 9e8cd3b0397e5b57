#include <bs/examples/support/step_graph.h>

#include <bs/kernels/copy.h>

#include <cstdio>

namespace bs::example {

StepGraph::StepGraph(Device device, std::string_view wish, bool pays)
    : device_(device),
      wanted_(device.is_cuda() && (wish == "on" || (wish == "auto" && pays))),
      demanded_(wish == "on") {}

bool StepGraph::fits(const std::vector<Tensor>& batch) const {
  if (!graph_ || batch.size() != recorded_.size()) return false;
  for (size_t i = 0; i < batch.size(); ++i)
    if (batch[i].shape() != recorded_[i].shape()) return false;
  return true;
}

void StepGraph::record(const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
                       const Work& work) {
  for (const Tensor& t : batch) recorded_.push_back(clone(t));
  optimizer.zero_grad();
  graph_ = std::make_unique<cuda::Graph>(device_);
  try {
    graph_->capture([&] { work(recorded_); });
  } catch (const Error& e) {
    if (demanded_) throw;
    std::fprintf(stderr, "steps run without a graph: %s\n", e.what());
    reset();
    wanted_ = false;
  }
}

void StepGraph::run(const std::vector<Tensor>& batch, optim::Optimizer& optimizer,
                    const Work& work) {
  constexpr int before = 2;
  if (wanted_ && !graph_ && taken_ >= before) record(batch, optimizer, work);
  ++taken_;
  replayed_ = fits(batch);
  if (!replayed_) return work(batch);
  for (size_t i = 0; i < batch.size(); ++i) copy(batch[i], recorded_[i]);
  graph_->replay();
}

void StepGraph::reset() {
  graph_.reset();
  recorded_.clear();
  taken_ = 0;
}

}  // namespace bs::example
