#include <bs/examples/support/chart.h>
#include <bs/examples/support/history.h>
#include <bs/lib/check.h>
#include <doctest/doctest.h>

#include <filesystem>

using namespace bs;
using namespace bs::example;

TEST_CASE("history: goes on after a step and drops what came later") {
  const std::string path = std::filesystem::temp_directory_path() / "bs_history_test.jsonl";
  {
    History history(path, 0);
    for (int64_t step = 1; step <= 4; ++step)
      history.add({step, {{"loss", 5.0 / static_cast<double>(step)}, {"rate", 1e-3}}});
    history.add({2, {{"held_out_loss", 3.5}}});
    history.add({4, {{"held_out_loss", 1.5}}});
  }
  {
    const History history(path, 3);
    REQUIRE(history.steps().size() == 3);
    CHECK(history.steps()[2].at("loss") == 5.0 / 3);
    REQUIRE(history.evaluations().size() == 1);
    CHECK(history.evaluations()[0].at("held_out_loss") == 3.5);
    CHECK_THROWS_WITH_AS(history.steps()[0].at("none"), "no member 'none'", IoError);
  }
  CHECK(History(path, 5).steps().size() == 3);
  CHECK(History(path, 0).steps().empty());
  CHECK_THROWS_WITH_AS(History("/no/such/folder/metrics.jsonl", 0),
                       "/no/such/folder/metrics.jsonl: cannot be written", IoError);
  std::filesystem::remove(path);
}

TEST_CASE("chart: names its curves, and draws nothing at all too") {
  const std::string svg =
      chart("bits per byte", {{.name = "training", .colour = "red", .points = {{1, 2}, {2, 1}}}},
            {{"bigram", "green", 1.5}});
  for (const char* part : {"<svg", "bits per byte", "training", "bigram", "</svg>"})
    CHECK(svg.find(part) != std::string::npos);
  CHECK(chart("nothing", {}).starts_with("<svg"));
}
