#include <bs/lib/out_of_memory.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("out of memory says how much, who has it and what may help") {
  constexpr int64_t gib = int64_t{1} << 30;
  const std::string text = out_of_memory_text(
      Device::cuda(1), size_t{3} << 29,
      {.total = 80 * gib, .free = gib / 4, .tensors = 70 * gib, .reserved = 72 * gib});
  CHECK(text ==
        "memory: cuda:1 cannot give 1.50 GiB. Of its 80.00 GiB, 256.00 MiB are free; tensors of "
        "this process hold 70.00 GiB, its pool has 2.00 GiB cached or cut into pieces that are too "
        "small, graphs included; other programs and CUDA itself have 7.75 GiB. Smaller batches, "
        "fewer saved values (NoGrad, recompute) and other programs that end help; see "
        "memory_statistics().");
  CHECK(out_of_memory_text(Device::cuda(0), 1, {}).find("cannot give 1 bytes. Of its 0 bytes") !=
        std::string::npos);
  const std::string recorded = out_of_memory_text(
      Device::cuda(0), 1, {.total = 80 * gib, .reserved = 72 * gib, .stranded = gib});
  CHECK(
      recorded.find("graphs included, 1.00 GiB of it kept back while graphs are recorded; other") !=
      std::string::npos);
  const std::string host = out_of_memory_text(
      Device::cpu(), size_t{1} << 45,
      {.total = 16 * gib, .free = 2 * gib, .tensors = 4 * gib, .reserved = 5 * gib});
  CHECK(host.find("memory: cpu cannot give 32.00 TiB. Of its 16.00 GiB, 2.00 GiB are free") == 0);
  CHECK(host.find("too small; other programs and the system have 9.00 GiB") != std::string::npos);
}
