#include <bs/lib/graph.h>

#include <bs/lib/check.h>

// A build without CUDA has the class, so that programs need not ask; lib/cuda/graph.cpp has CUDA's.
#if !BS_WITH_CUDA

namespace bs::cuda {

struct Graph::State {};

Graph::Graph(Device) { BS_THROW(Error, "graph: this build has no CUDA"); }
Graph::Graph(Device device, const Graph&) : Graph(device) {}
Graph::~Graph() = default;
void Graph::capture(const std::function<void()>&) {}
void Graph::replay() {}
bool Graph::captured() const { return false; }
int64_t Graph::nodes() const { return 0; }
int64_t Graph::bytes() const { return 0; }

}  // namespace bs::cuda
#endif
