// Graphs that work on one memory: how much they hold, what they leave, and in what order they run.
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/graph.h>
#include <bs/lib/record_stream.h>
#include <bs/lib/stream_pool.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/streams.h>
#include <doctest/doctest.h>

#include <memory>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t count = int64_t{8} << 20, bytes = 4 * count;

Tensor whole(double value) { return full({count}, value, f32, test_device()); }

/// The mean of factor * (x + x), by way of two tensors of the graph's.
Tensor mean_of(const Tensor& x, double factor) { return mean(mul(add(x, x), factor)); }

}  // namespace

TEST_CASE("graphs beside each other hold one memory, counted once" *
          doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  const auto reserved = [] { return memory_statistics(test_device()).reserved; };
  const Tensor x = whole(3);
  Tensor a, b, c;
  mean_of(x, 1);  // kernels are loaded
  cuda::Graph first(test_device()), second(test_device(), first), third(test_device());
  first.capture([&] { a = mean_of(x, 1); });
  const int64_t one = reserved();
  CHECK(first.bytes() >= bytes);
  second.capture([&] { b = mean_of(x, 10); });
  CHECK(second.bytes() == first.bytes());
  CHECK(reserved() < one + bytes);
  third.capture([&] { c = mean_of(x, 1); });
  CHECK(reserved() >= one + bytes);
  for (int i = 1; i < 4; ++i) {
    copy(whole(i), x);
    first.replay();
    CHECK(a.item() == 2 * i);
    second.replay();
    CHECK(b.item() == 20 * i);
  }
  // Either may go, and come anew.
  first.capture([&] { a = mean_of(x, 100); });
  CHECK(first.bytes() == second.bytes());
  first.replay();
  CHECK(a.item() == 600);
  second.replay();
  CHECK(b.item() == 60);
  { const cuda::Graph gone(test_device(), second); }
  second.replay();
  CHECK(b.item() == 60);
}

TEST_CASE("a replay leaves nothing of what a graph beside it made" *
          doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  const Tensor x = whole(3);
  cuda::Graph first(test_device()), second(test_device(), first);
  Tensor a, b;
  first.capture([&] { a = mean_of(x, 1); });
  second.capture([&] { b = mul(x, 10); });
  second.replay();
  const Tensor kept = clone(b);
  CHECK(b.select(0, 0).item() == 30);
  first.replay();
  CHECK(a.item() == 6);
  CHECK(b.select(0, 0).item() != 30);
  CHECK(kept.select(0, 0).item() == 30);
}

TEST_CASE("a replay follows the last one of any graph beside it, whatever their streams" *
          doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  const Tensor x = whole(3);
  const Stream one = next_stream(test_device()), other = next_stream(test_device());
  cuda::Graph first(test_device()), second(test_device(), first);
  Tensor a, b;
  mean_of(x, 1);
  first.capture([&] { a = mean_of(x, 1); });
  {
    const StreamGuard on(other);
    second.capture([&] { b = mean_of(x, 10); });
  }
  synchronize(test_device());
  HeldStream held(one);
  {
    const StreamGuard on(one);
    first.replay();
  }
  const StreamGuard on(other);
  second.replay();
  CHECK(cudaStreamQuery(cuda::native(other)) == cudaErrorNotReady);
  CHECK(held.release());
  CHECK(b.item() == 60);
  CHECK(a.item() == 6);
}

TEST_CASE(
    "a result recorded for another stream stays until that has used it, also without its graph" *
    doctest::skip(!test_device().is_cuda())) {
  const Unguarded memory(test_device());
  const Stream other = next_stream(test_device());
  const Tensor x = whole(3), y = whole(0);
  mul(x, 10);  // kernels are loaded
  for (const bool graph_first : {false, true}) {
    CAPTURE(graph_first);
    auto graph = std::make_unique<cuda::Graph>(test_device());
    Tensor result;
    graph->capture([&] { result = mul(x, 10); });
    graph->replay();
    synchronize(test_device());
    {
      HeldStream held(other);
      BS_CUDA_CHECK(cudaMemcpyAsync(y.data(), result.data(), bytes, cudaMemcpyDeviceToDevice,
                                    cuda::native(other)));
      record_stream(result, other);
      if (graph_first) graph.reset();
      result = Tensor();
      graph.reset();
      const Tensor next = whole(7);  // has the memory
      CHECK(held.release());
    }
    synchronize(test_device());
    CHECK(mean(y).item() == 30);
  }
}

TEST_CASE("a graph is refused the memory of another device" *
          doctest::skip(!test_device().is_cuda())) {
  const cuda::Graph graph(test_device());
  CHECK_THROWS_WITH_AS(cuda::Graph(Device::cpu(), graph),
                       "graph: of cpu, on memory of one of cuda:0", Error);
}
