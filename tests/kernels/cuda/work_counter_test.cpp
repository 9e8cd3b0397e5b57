#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/memory.h>
#include <bs/lib/stream_pool.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("work counters of any size lie side by side, and come round again" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const Stream stream = current_stream(device);
  CHECK_THROWS_WITH_AS(WorkCounter(stream, 4000), "work counter: 4000 words are more than 2048",
                       Error);
  const int* const first = WorkCounter(stream).get();
  const int* end = first + 2;
  bool round = false;
  for (int i = 0; i < 3000; ++i) {
    const int words = i % 3 == 0 ? 2048 : 2 + i % 500;
    const int* const at = WorkCounter(stream, words).get();
    if (at != end) round = true;
    CHECK((at == end || (at <= first && at + words <= end)));
    end = at + words;
  }
  CHECK(round);
}

TEST_CASE("rings of work counters are counted, and go back" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const MemoryStatistics before = memory_statistics(device);
  const WorkCounter first(current_stream(device));
  const MemoryStatistics taken = memory_statistics(device);
  CHECK(taken.live == before.live + 1);
  CHECK(taken.in_use >= before.in_use + static_cast<int64_t>(WorkCounter::most * sizeof(int)));
  const WorkCounter second(current_stream(device), WorkCounter::most);
  CHECK(memory_statistics(device).in_use == taken.in_use);
  const WorkCounter beside(next_stream(device));
  CHECK(memory_statistics(device).live == taken.live + 1);
  release_work_counters(device);
  CHECK(memory_statistics(device).live == before.live);
  CHECK(memory_statistics(device).in_use == before.in_use);
}
