// Choosing a plan by what it takes: no GPU is needed but for the last test.
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_candidates.h>
#include <bs/kernels/cuda/gpu/tuned.h>
#include <bs/kernels/settings.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

const TunedKey dsd_key{{.name = "some GPU", .capability = 90, .multiprocessors = 132},
                       "dsd of a layout"};

LayoutPtr random_layout(int size, int block, double density) {
  return patterns::random({.rows = size / block, .cols = size / block, .block = block},
                          {.density = density});
}

/// Ways by name, and how often they were timed.
struct Ways {
  std::map<std::string, double> times;
  int timed = 0;

  std::string choose() {
    struct Way {
      const char* name;
      std::string plan;
    };
    return tuned(
        dsd_key,
        [&](const std::string& name) {
          return times.contains(name) ? std::optional("kept " + name) : std::nullopt;
        },
        [&] {
          std::vector<Way> all;
          for (const auto& [name, time] : times) all.push_back({name.c_str(), name});
          return all;
        },
        [&](const std::string& plan) { return ++timed, times.at(plan); });
  }
};

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Plan>
std::set<std::string> names(const std::vector<Candidate<Plan>>& all) {
  std::set<std::string> found;
  for (const auto& each : all) found.insert(each.name);
  CHECK(found.size() == all.size());
  return found;
}

}  // namespace

TEST_CASE("tuned: the first way stays unless another is clearly sooner done") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto best = [](std::vector<double> times) { return soonest(times); };
  CHECK(best({}) == 0);
  CHECK(best({100}) == 0);
  CHECK(best({100, 99}) == 0);
  CHECK(best({100, 97}) == 1);
  CHECK(best({100, 97, 96.9}) == 2);
  CHECK(best({endless, 5, 4}) == 2);
  CHECK(best({endless, endless}) == 0);
  CHECK(best({nan, 7, nan}) == 1);
  CHECK(best({7, nan, endless}) == 0);
}

TEST_CASE("tuned: a choice reads back the same, for its key only, and never a damaged one") {
  const std::string text = format_choice(dsd_key, "gathered");
  CHECK(parse_choice(text, dsd_key) == "gathered");
  TunedKey other = dsd_key;
  other.problem += " ";
  CHECK_FALSE(parse_choice(text, other));
  CHECK(choice_file(other) != choice_file(dsd_key));
  other = dsd_key;
  other.gpu.driver = 1;
  CHECK_FALSE(parse_choice(text, other));
  CHECK(choice_file(other) != choice_file(dsd_key));
  for (size_t i = 0; i < text.size(); ++i) {
    CHECK_FALSE(parse_choice(text.substr(0, i), dsd_key));
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK_FALSE(parse_choice(changed, dsd_key));
  }
  CHECK_FALSE(parse_choice(text + "\n", dsd_key));
}

TEST_CASE("tuned: ways are timed once, and again where the choice is damaged or gone") {
  const test::Scratch scratch;
  const std::string cache = scratch / "cache";
  const test::Environment environment("BS_CACHE_DIR", cache);
  Ways ways{.times = {{"a", 9}, {"b", 5}, {"c", endless}}};
  CHECK(ways.choose() == "b");
  CHECK(ways.timed == 3);
  CHECK(ways.choose() == "kept b");
  CHECK(ways.timed == 3);
  const std::string file = cache + "/" + choice_file(dsd_key), whole = text_of(file);
  CHECK(parse_choice(whole, dsd_key) == "b");
  std::ofstream(file) << whole.substr(0, whole.size() / 2);
  CHECK(ways.choose() == "b");
  CHECK(ways.timed == 6);
  CHECK(text_of(file) == whole);
  ways.times.erase("b");  // as a dense product, which there is no memory for any more
  CHECK(ways.choose() == "a");
  CHECK(ways.timed == 8);
  Ways one{.times = {{"only", 1}}};
  CHECK(one.choose() == "only");
  CHECK(one.timed == 0);
}

TEST_CASE("tuned: candidates of products are the planner's own, and others that are as wished") {
  for (const int capability : {80, 90, 120})
    for (const int block : {8, 16, 32, 64, 128})
      for (const Factors factors : {Factors::half, Factors::tf32, Factors::split, Factors::f64})
        for (const int64_t extent : {64, 200, 4096}) {
          CAPTURE(capability);
          CAPTURE(block);
          CAPTURE(extent);
          const LayoutPtr layout = random_layout(1024, block, .2);
          const Gpu gpu{.capability = capability};
          const DsdShape dsd{.factors = factors, .n = extent, .turnable = true};
          const auto plans = dsd_candidates(*layout, dsd, gpu, {});
          const std::set<std::string> named = names(plans);
          CHECK(std::string(plans.front().name) == "planned");
          CHECK(plans.front().plan.path == plan_dsd(*layout, dsd, gpu, {}).path);
          CHECK((factors == Factors::f64 || named.contains("dense") ||
                 plans.front().plan.path == Path::dense));
          for (const auto& [name, plan] : plans) {
            CAPTURE(name);
            const auto again = dsd_candidate(name, *layout, dsd, gpu, {});
            REQUIRE(again);
            CHECK((again->path == plan.path && again->cols == plan.cols));
            CHECK((capability == 90 || plan.path == Path::tiled || plan.path == Path::dense));
          }
          const SddShape sdd{.factors = factors, .k = extent, .a_along_k = true};
          const auto samples = sdd_candidates(*layout, sdd, gpu, {});
          CHECK(std::string(samples.front().name) == "planned");
          CHECK(names(samples).size() == samples.size());
          for (const auto& [name, plan] : samples) {
            CAPTURE(name);
            REQUIRE(sdd_candidate(name, *layout, sdd, gpu, {}));
            CHECK((plan.path != Path::warpgroup || plan.items() > 0));
            CHECK((capability == 90 || plan.path == Path::tiled || plan.path == Path::dense));
          }
        }
}

TEST_CASE("tuned: Hopper has several plans, products with an epilogue have one") {
  const LayoutPtr layout = random_layout(4096, 32, .1);
  const auto dsd = names(dsd_candidates(*layout, {.n = 4096}, {}, {}));
  CHECK(dsd.size() >= 5);
  for (const char* name : {"planned", "dense", "mma", "columns-128", "columns-64"})
    CHECK(dsd.contains(name));
  const auto sdd = names(sdd_candidates(*layout, {.k = 4096, .a_along_k = true}, {}, {}));
  CHECK(sdd.size() >= 5);  // one of the forms is the planner's
  CHECK(sdd.contains("dense"));
  CHECK(dsd_candidates(*layout, {.n = 4096, .epilogue = true}, {}, {}).size() == 1);
  CHECK(sdd_candidates(*layout, {.k = 4096, .epilogue = true}, {}, {}).size() == 1);
  CHECK_FALSE(dsd_candidate("gathered", *layout, {.n = 4096}, {}, {}));
  CHECK_FALSE(dsd_candidate("no such", *layout, {.n = 4096}, {}, {}));
  CHECK_FALSE(dsd_candidate("dense", *layout, {.n = 4096}, {.free_bytes = 1 << 20}, {}));
}

TEST_CASE("tuned: every candidate of sdd has each block once") {
  for (const int block : {16, 32, 64, 128}) {
    const LayoutPtr layout = random_layout(2048, block, .1);
    for (const auto& [name, plan] : sdd_candidates(*layout, {.k = 512}, {}, {})) {
      CAPTURE(name);
      CAPTURE(block);
      if (plan.path != Path::warpgroup || !plan.form.gathered) continue;
      std::vector<int> times(static_cast<size_t>(layout->nnz()));
      for (const int32_t b : plan.gathered.blocks)
        if (b >= 0) ++times[static_cast<size_t>(b)];
      CHECK(std::ranges::all_of(times, [](int count) { return count == 1; }));
    }
  }
}

TEST_CASE("tuned: lines of products differ where their plans may") {
  const LayoutPtr a = random_layout(512, 32, .1), b = random_layout(512, 32, .2);
  std::set<std::string> lines{line_of(*a, DsdShape{.n = 64}, {}),
                              line_of(*b, DsdShape{.n = 64}, {}),
                              line_of(*a, DsdShape{.n = 65}, {}),
                              line_of(*a, DsdShape{.transposed = true, .n = 64}, {}),
                              line_of(*a, DsdShape{.factors = Factors::tf32, .n = 64}, {}),
                              line_of(*a, DsdShape{.n = 64}, {.finite_operands = true}),
                              line_of(*a, SddShape{.k = 64}, {}),
                              line_of(*a, SddShape{.k = 64, .a_along_k = true}, {})};
  CHECK(lines.size() == 8);
  CHECK(line_of(*a, DsdShape{.n = 64}, {.tune = true}) == line_of(*a, DsdShape{.n = 64}, {}));
}

TEST_CASE("tuned: products by the plans a GPU chose are the same, and their choices are kept" *
          doctest::skip(!test::test_device().is_cuda())) {
  namespace fs = std::filesystem;
  const test::Unguarded memory(test::test_device());
  const test::Scratch scratch;
  const std::string cache = scratch / "cache";
  const test::Environment environment("BS_CACHE_DIR", cache);
  const auto choices = [&] {
    return std::count_if(
        fs::directory_iterator(cache), fs::directory_iterator(),
        [](const auto& e) { return e.path().filename().string().starts_with("choice-"); });
  };
  constexpr int size = 1024;
  int64_t made = 0;
  for (const auto& [dtype, block] : {std::pair{bf16, 16}, {bf16, 64}, {f32, 32}, {f16, 8}}) {
    CAPTURE(block);
    const test::Mask mask = test::Mask::random(1, size / block, size / block, block, 0.3, 3);
    const Tensor a = test::whole({size, size}, 1, dtype), b = test::whole({size, size}, 2, dtype);
    const Tensor values = test::whole(mask.values(), 4, dtype);
    const auto products = [&](const LayoutPtr& layout) {
      return std::vector{sdd(a, b, layout).values, dsd({layout, values}, b),
                         dds(a, {layout, values})};
    };
    const std::vector<Tensor> planned = products(mask.layout());
    const SettingsGuard guard({.tune = true});
    for (int i = 0; i < 2; ++i) {  // another layout of the same blocks takes what was kept
      const std::vector<Tensor> got = products(mask.layout());
      for (size_t k = 0; k < got.size(); ++k)
        CHECK(test::Reference::of(got[k]).values == test::Reference::of(planned[k]).values);
      if (i == 0) CHECK(choices() > made);
      if (i == 1) CHECK(choices() == made);
      made = choices();
    }
  }
}
