#include <bs/kernels/adam_step.h>
#include <bs/kernels/adamw_step.h>
#include <bs/kernels/axpby_step.h>
#include <bs/kernels/cuda/optim/table_capacity.h>
#include <bs/kernels/lion_step.h>
#include <bs/kernels/rmsprop_step.h>
#include <bs/kernels/sgd_step.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

namespace {

template <template <class> class Step>
constexpr int64_t launches(int64_t tensors) {
  return table_launches(tensors, table_depth(static_cast<int>(Step<float>::states)));
}

}  // namespace

TEST_CASE("optimisers take at most three launches for 500 tensors of one dtype") {
  CHECK(launches<SgdStep>(500) == 1);
  CHECK(launches<AdamStep>(500) == 1);
  CHECK(launches<AdamWStep>(500) == 1);
  CHECK(launches<LionStep>(500) == 1);
  CHECK(launches<RMSpropStep>(500) == 1);
  CHECK(launches<AxpbyStep>(500) == 1);
  constexpr int lamb_kernels = 3, lamb_states = 2;  // moments, lengths, weights
  CHECK(lamb_kernels * table_launches(500, table_depth(lamb_states)) == 3);
  CHECK(table_launches(500, 2) == 1);      // a moving average: its value and the parameter's
  CHECK(table_launches(500, 1) + 1 == 2);  // the norm of all gradients: squares, and their root
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
