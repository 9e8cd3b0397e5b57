#include <bs/kernels/adam_step.h>
#include <bs/kernels/adamw_step.h>
#include <bs/kernels/axpby_step.h>
#include <bs/kernels/cuda/optim/table_capacity.h>
#include <bs/kernels/ema.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/grad_norm.h>
#include <bs/kernels/lamb.h>
#include <bs/kernels/lion_step.h>
#include <bs/kernels/rmsprop_step.h>
#include <bs/kernels/sgd_step.h>
#include <bs/lib/graph.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <functional>
#include <vector>

using namespace bs;
using namespace bs::cuda;
using test::test_device;

namespace {

template <template <class> class Step>
constexpr int64_t launches(int64_t tensors) {
  return table_launches(tensors, table_depth(static_cast<int>(Step<float>::states)));
}

/// Launches of what `work` queues: a graph's nodes.
int64_t launched(const std::function<void()>& work) {
  work();  // kernels are loaded
  Graph graph(test_device());
  graph.capture(work);
  return graph.nodes();
}

}  // namespace

TEST_CASE("optimisers of one kernel launch it once for 500 tensors of one dtype") {
  CHECK(launches<SgdStep>(500) == 1);
  CHECK(launches<AdamStep>(500) == 1);
  CHECK(launches<AdamWStep>(500) == 1);
  CHECK(launches<LionStep>(500) == 1);
  CHECK(launches<RMSpropStep>(500) == 1);
  CHECK(launches<AxpbyStep>(500) == 1);
}

TEST_CASE("steps of several kernels take at most three launches for 500 tensors of one dtype" *
          doctest::skip(!test_device().is_cuda())) {
  const Device device = test_device();
  const auto tensors = [&] {
    std::vector<Tensor> all;
    for (int i = 0; i < 500; ++i) all.push_back(full({3}, .5, f32, device));
    return all;
  };
  const std::vector<Tensor> values = tensors(), gradients = tensors(), first = tensors(),
                            second = tensors();
  std::vector<LambParameter> moved;
  std::vector<EmaParameter> averaged;
  for (size_t i = 0; i < values.size(); ++i) {
    moved.push_back({values[i], gradients[i], first[i], second[i], {}});
    averaged.push_back({values[i], first[i]});
  }
  CHECK(launched([&] { lamb(moved, 1, {}); }) <= 3);
  CHECK(launched([&] { ema(averaged, .9); }) == 1);
  CHECK(launched([&] { grad_norm(gradients); }) == 2);
  CHECK(launched([&] {
          clip_gradients(gradients, {.norm = grad_norm(gradients), .max_norm = 1});
        }) == 3);
}

TEST_CASE("a table of tensors is an argument that a kernel can take") {
  constexpr int most = 32764;  // bytes of all arguments since CUDA 12.1
  constexpr int others = 256;  // the step's numbers, the clip's and pointers
  for (int depth = 1; depth <= 8; ++depth) {
    const int capacity = table_capacity(depth);
    CHECK(capacity * (8 * depth + 12) + 8 + others <= most);
    CHECK(table_launches(0, depth) == 0);
    CHECK(table_launches(capacity, depth) == 1);
    CHECK(table_launches(capacity + 1, depth) == 2);
  }
}
