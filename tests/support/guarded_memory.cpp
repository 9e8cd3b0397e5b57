#include <bs/autograd/tape.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#if BS_SANITIZED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(pointer, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(pointer, bytes) ((void)0)
#endif

namespace bs::test {

namespace {

constexpr size_t band = 256;  // keeps the alignment; the band behind may be longer by a rest
constexpr uint8_t band_byte = 0xa5;
constexpr uint8_t poison_byte = 0xff;  // NaN in every floating type, -1 in integers

/// Bytes anywhere, seen as a tensor that owns nothing.
Tensor bytes_at(void* pointer, size_t bytes, Device device) {
  return Tensor::from_blob(pointer, {static_cast<int64_t>(bytes)}, u8, device);
}

void set_bytes(std::byte* to, size_t bytes, uint8_t value, Device device) {
  if (device.is_cpu()) {
    std::fill_n(to, bytes, std::byte{value});
    return;
  }
  std::vector<uint8_t> chunk(std::min<size_t>(bytes, 1 << 20), value);
  for (size_t at = 0; at < bytes; at += chunk.size()) {
    const size_t n = std::min(chunk.size(), bytes - at);
    copy_bytes(bytes_at(chunk.data(), n, Device::cpu()), bytes_at(to + at, n, device));
  }
}

size_t back_band(size_t bytes) { return band + (band - bytes % band) % band; }

}  // namespace

void* GuardedMemory::allocate(size_t bytes, Stream stream) {
  const StreamGuard guard(stream);
  const Device device = stream.device();
  auto* whole = static_cast<std::byte*>(inner_.allocate(band + bytes + back_band(bytes), stream));
  set_bytes(whole, band, band_byte, device);
  set_bytes(whole + band, bytes, poison_byte, device);
  set_bytes(whole + band + bytes, back_band(bytes), band_byte, device);
  if (device.is_cpu()) {
    ASAN_POISON_MEMORY_REGION(whole, band);
    ASAN_POISON_MEMORY_REGION(whole + band + bytes, back_band(bytes));
  }
  return whole + band;
}

void GuardedMemory::deallocate(void* pointer, size_t bytes, Stream stream) noexcept {
  std::byte* whole = static_cast<std::byte*>(pointer) - band;
  const size_t all = band + bytes + back_band(bytes);
  if (stream.device().is_cpu()) ASAN_UNPOISON_MEMORY_REGION(whole, all);
  try {
    check_bands(whole, bytes, stream);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    findings_.emplace_back(error.what());
  }
  inner_.deallocate(whole, all, stream);
}

void GuardedMemory::check_bands(std::byte* whole, size_t bytes, Stream stream) {
  const StreamGuard guard(stream);
  // Needs no memory on the CPU: tests of memory faults free tensors while there is none.
  const auto check = [&](std::byte* from, size_t length, const char* where) {
    std::array<std::byte, 2 * band> copied;
    const std::byte* seen = from;
    if (stream.device().is_cuda()) {
      copy_bytes(bytes_at(from, length, stream.device()),
                 bytes_at(copied.data(), length, Device::cpu()));
      seen = copied.data();
    }
    const auto* const damaged = std::find_if(
        seen, seen + length, [](std::byte b) { return b != std::byte{band_byte}; });
    if (damaged == seen + length) return;
    const std::lock_guard lock(mutex_);
    findings_.push_back(format("{} bytes on {}: written {} (byte {} of the guard band)", bytes,
                               stream.device(), where, damaged - seen));
  };
  check(whole, band, "before the begin");
  check(whole + band + bytes, back_band(bytes), "past the end");
}

std::vector<std::string> GuardedMemory::take_findings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}

namespace {

struct Guarded {
  Device device;
  GuardedMemory* memory;  // never destroyed: tensors may outlive main
  int64_t live = 0;
};
std::vector<Guarded> guarded;
bool in_order = true;

/// Hears of each test case's begin and end.
struct MemoryListener final : doctest::IReporter {
  explicit MemoryListener(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData& test) override {
    name_ = test.m_name;
    for (Guarded& g : guarded) g.live = memory_statistics(g.device).live;
  }
  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    tape().clear();  // it lets go of results nobody holds only now and then
    for (const Guarded& g : guarded) {
      const int64_t more = memory_statistics(g.device).live - g.live;
      if (more > 0) report(format("{} tensors on {} outlive the test", more, g.device));
      for (const std::string& finding : g.memory->take_findings()) report(finding);
    }
  }
  void report(const std::string& finding) {
    in_order = false;
    std::fprintf(stderr, "MEMORY: %s: %s\n", name_, finding.c_str());
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  const char* name_ = "";
};

DOCTEST_REGISTER_LISTENER("memory", 1, MemoryListener);

}  // namespace

void guard_memory() {
  guarded.push_back({Device::cpu(), new GuardedMemory(Device::cpu())});
  if (test_device().is_cuda()) guarded.push_back({test_device(), new GuardedMemory(test_device())});
  for (const Guarded& g : guarded) set_memory_resource(g.device, g.memory);
}

bool memory_in_order() { return in_order; }

}  // namespace bs::test
