// What becomes of a run's metrics when system calls fail: what is in the file stays readable, and
// the run can be resumed.
#include <bs/examples/support/history.h>
#include <bs/tests/faults/system_call_faults.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <string>

using namespace bs;
using namespace bs::test;
using bs::example::History;

namespace {

constexpr int64_t kept = 3, written = 5;

/// A run that went on for two steps after its last checkpoint.
void make_run(const std::string& folder) {
  History history(folder, 0);
  for (int64_t step = 1; step <= written; ++step)
    history.add({step, {{"loss", 1.0 / static_cast<double>(step)}}});
}

}  // namespace

TEST_CASE("faults: a system call of metrics that are resumed fails") {
  const Scratch scratch;
  const std::string folder = scratch / "", path = folder + "metrics.jsonl";
  make_run(folder);
  const std::string before = read_file(path);
  { const History history(folder, kept); }
  const std::string after = read_file(path);
  REQUIRE(before.starts_with(after));
  REQUIRE(before != after);
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    write_file(path, before);
    bool fails = false;
    const bool met = meets(given, fails, [&] { const History history(folder, kept); });
    const std::string now = read_file(path);
    CHECK((now == after || (fails && now == before)));
    CHECK(scratch.files() == 1);
    const History history(folder, kept);
    CHECK(history.steps().size() == kept);
    CHECK(read_file(path) == after);
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of metrics that are resumed, ", errors, " errors");
  CHECK(errors >= 10);
}

TEST_CASE("faults: a system call of a line of metrics fails") {
  const Scratch scratch;
  const std::string folder = scratch / "";
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    bool fails = false, met = false;
    {
      make_run(folder);
      History history(folder, written);
      met = meets(given, fails, [&] { history.add({written + 1, {{"loss", 2}}}); });
    }
    const History again(folder, written + 1);
    CHECK(again.steps().size() == written + (fails ? 0 : 1));
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of a line of metrics, ", errors, " errors");
  CHECK(errors >= 2);
}
