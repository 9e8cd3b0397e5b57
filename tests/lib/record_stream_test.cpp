#include <bs/lib/check.h>
#include <bs/lib/record_stream.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("streams are recorded for memory until it is freed") {
  int here = 0, there = 0;
  const Stream a(Device::cpu(), &here), b(Device::cpu(), &there);
  const Tensor other = Tensor::empty({8}, u8);
  const void* memory = nullptr;
  {
    const Tensor x = Tensor::empty({1000}, u8);
    memory = x.data();
    record_stream(x, a);
    record_stream(x.slice(0, 500, 600), b);  // a view is of the same memory
    record_stream(x.slice(0, 500, 600), b);
    record_stream(x.slice(0, 700, 800), a);
    record_stream(other, a);
    CHECK(detail::take_recorded(memory, 500) == std::vector{a});
    CHECK(detail::take_recorded(memory, 1000) == std::vector{b, a});
    CHECK(detail::take_recorded(memory, 1000).empty());
    record_stream(x, a);
  }
  CHECK(detail::take_recorded(memory, 1000).empty());  // freeing took them
  CHECK(detail::take_recorded(other.data(), 8).size() == 1);
  record_stream(Tensor::empty({0}, u8), a);
  CHECK_THROWS_WITH_AS(record_stream(other, Stream(Device::cuda(0), &here)),
                       "record_stream: a tensor on cpu, a stream of cuda:0", Error);
}
