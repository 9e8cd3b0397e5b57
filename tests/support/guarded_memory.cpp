#include <bs/autograd/tape.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <vector>
#if BS_WITH_CUDA
#include <bs/kernels/cuda/lstm/lstm_memory.h>
#include <bs/kernels/cuda/work_counter.h>
#endif

namespace bs::test {

namespace {

struct Guarded {
  Device device;
  DebugMemory* memory;  // never destroyed: tensors may outlive main
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
#if BS_WITH_CUDA
    if (test_device().is_cuda()) {
      cuda::release_lstm_graphs(test_device());
      cuda::release_work_counters(test_device());
    }
#endif
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
  const auto guard = [](Device device) {
    auto* const memory = new DebugMemory(memory_resource(device));
    guarded.push_back({device, memory});
    set_memory_resource(device, memory);
  };
  guard(Device::cpu());
  if (test_device().is_cuda()) guard(test_device());
}

bool memory_in_order() { return in_order; }

}  // namespace bs::test
