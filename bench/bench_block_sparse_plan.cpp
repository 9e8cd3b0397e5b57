// What runs for every block-sparse product of some records, by the numbers of an H100, and what it
// takes to plan it: the plans of two versions of the library can be compared without a GPU.
#include <bs/bench/arguments.h>
#include <bs/bench/block_sparse_cells.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/lib/json.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr const char* help =
    "bench_block_sparse_plan [options]\n"
    "  --records A.json,B.json  records of bench_block_sparse_matmul\n"
    "  --plans 1                print every plan\n";

/// A hash of numbers in their order (FNV-1a), by which two lists are compared.
class Digest {
 public:
  void add(int64_t number) { value_ = (value_ ^ static_cast<uint64_t>(number)) * 1099511628211U; }
  template <class T>
  void add(const std::vector<T>& numbers) {
    for (const T& number : numbers) add(int64_t{number});
  }
  void add(const WorkPieces& work) {
    for (const device::WorkPiece& x : work.pieces)
      for (const int number : {x.item, x.begin, x.end, x.part, x.parts, x.slot}) add(number);
  }
  void add(const std::vector<device::SddRange>& ranges) {
    for (const device::SddRange& x : ranges)
      for (const int number : {x.strip, x.first, x.count}) add(number);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037U;
};

const char* name_of(Path path) {
  constexpr const char* names[] = {"dense", "blocks", "warpgroup", "tf32", "tiled"};
  return names[static_cast<int>(path)];
}

std::string text(const DsdPlan& plan) {
  Digest list;
  list.add(plan.split);
  return format("{}{} cols {} side {}{}{}{} order {}/{}x{} pieces {} slots {} list {}",
                name_of(plan.path), plan.turns ? " turns" : "", plan.cols, plan.strips.side,
                plan.strips.gathered ? " gathered" : "", plan.strips.pairs ? " pairs" : "",
                plan.large ? " large" : "", plan.order.first, plan.order.group, plan.order.groups,
                plan.split.pieces.size(), plan.split.slots, list.value());
}

std::string text(const SddPlan& plan) {
  Digest list;
  list.add(plan.ranges);
  list.add(plan.gathered.rows);
  list.add(plan.gathered.cols);
  list.add(plan.gathered.blocks);
  list.add(plan.split);
  return format("{}{}{}{}{}{} cols {} items {} pieces {} slots {} list {} expected {} us",
                name_of(plan.path), plan.turns_a ? " turns a" : "", plan.turns_b ? " turns b" : "",
                plan.transposed ? " transposed" : "", plan.form.narrow ? " narrow" : "",
                plan.gathered.ranges.empty() ? "" : " gathered", plan.cols, plan.items(),
                plan.split.pieces.size(), plan.split.slots, list.value(),
                std::lround(plan.time / 1000));
}

/// A plan, as text, and how long it took to make.
struct Planned {
  std::string plan;
  double seconds = std::numeric_limits<double>::infinity();
};
template <class Plan>
Planned timed(const Plan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  const auto made = plan();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {text(made), took.count()};
}

/// The plan of a product whose operands are contiguous.
Planned plan_of(const Layout& layout, const bench::Product& product, Factors factors) {
  const Gpu gpu;
  const Transpose t = product.transpose;
  const int64_t depth = product.width, heads = layout.heads();
  if (product.op == "sdd") {
    const bool a_along = !t.a, b_along = t.b;
    const SddShape shape{.factors = factors,
                         .k = depth,
                         .batch = product.batch,
                         .a_along_k = a_along,
                         .b_along_k = b_along,
                         .a_turnable = a_along ? 0 : heads * layout.height() * depth,
                         .b_turnable = b_along ? 0 : heads * layout.width() * depth};
    return timed([&] { return plan_sdd(layout, shape, gpu, {}); });
  }
  // The transpose of A S is S^T A^T.
  const bool dsd = product.op == "dsd", along_k = dsd ? t.b : !t.a;
  const DsdShape shape{.factors = factors,
                       .transposed = dsd ? t.a : !t.b,
                       .n = product.width,
                       .batch = product.batch * heads,
                       .b_along_k = along_k,
                       .c_by_columns = !dsd,
                       .turnable = along_k};
  return timed([&] { return plan_dsd(layout, planned_shape(layout, shape, gpu, {}), gpu, {}); });
}

Json read(const std::string& file) {
  std::ifstream in(file);
  BS_CHECK(in.good(), "bench: can't read {}", file);
  std::ostringstream all;
  all << in.rdbuf();
  return Json::parse(all.str());
}

/// Layouts by the cells of records, which tell a density that only comes near what was asked for.
class Layouts {
 public:
  const LayoutPtr& find(const Json& cell) {
    LayoutPtr& known = known_[cell.dump()];
    if (known) return known;
    const auto number = [&](const char* name, int64_t otherwise) {
      const Json* const found = cell.find(name);
      return found ? found->integer() : otherwise;
    };
    bench::CellOptions options{.size = number("rows", 0),
                               .width = number("width", 0),
                               .blocks = {static_cast<int>(number("block", 0))},
                               .patterns = {cell.find("pattern")->string()},
                               .heads = static_cast<int>(number("heads", 8))};
    for (const double asked : {.02, .05, .1, .15, .2, .25, .3, .4, .5, .6, .7, .8, .9, 1.}) {
      options.densities = {asked};
      for (const bench::Cell& of : bench::make_cells(cell.find("set")->string(), options)) {
        const LayoutPtr layout = bench::make_layout(of.pattern);
        for (const bench::Product& product : of.products)
          if (Json::parse(Json(of.json(*layout, product)).dump()) == cell) return known = layout;
      }
    }
    throw Error("bench: no layout is like " + cell.dump());
  }

 private:
  std::map<std::string, LayoutPtr> known_;
};

/// The product that a figure of a record is of.
bench::Product product_of(const Json& figure) {
  const std::string& what = figure.find("what")->string();  // "dsd tn"
  const Json* const batch = figure.find("cell")->find("batch");
  return {.op = what.substr(0, 3),
          .transpose = {what[4] == 't', what[5] == 't'},
          .batch = batch ? batch->integer() : 1,
          .width = figure.find("cell")->find("width")->integer()};
}

/// The first plan of a product on a new layout: the soonest of three.
Planned plan_anew(const Layout& known, const bench::Product& product, Factors factors) {
  Planned best;
  for (int i = 0; i < 3; ++i) {
    Planned now = plan_of(*Layout::from_mask(known.mask(), known.block()), product, factors);
    if (now.seconds < best.seconds) best = std::move(now);
  }
  return best;
}

/// Planning over the product, by blocks: how many plans, and how long they take.
struct Ratios {
  std::vector<double> all;
  double at(double share) const {
    return all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
  }
};

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  std::vector<std::string> records;
  int plans = 0;
  arguments.read("--records", records);
  arguments.read("--plans", plans);
  arguments.finish();
  Layouts layouts;
  std::map<std::string, Ratios> ratios;
  for (const std::string& file : records) {
    const Json record = read(file);
    const std::string& dtype = record.find("dtype")->string();
    const bool tf32 = record.find("command")->string().find("--tf32 1") != std::string::npos;
    const Factors factors =
        dtype == "f32" ? (tf32 ? Factors::tf32 : Factors::split) : Factors::half;
    for (const Json& figure : record.find("figures")->array()) {
      if (figure.find("by")->string() != "bs") continue;
      const Json& cell = *figure.find("cell");
      const LayoutPtr& known = layouts.find(cell);
      const bench::Product product = product_of(figure);
      const Planned planned = plan_anew(*known, product, factors);
      const double took = figure.find("seconds")->number();
      if (plans != 0)
        std::printf("%s %s%s %s: %s\tplanned in %.0f us, takes %.0f us\n", cell.dump().c_str(),
                    dtype.c_str(), tf32 ? " as TF32" : "", figure.find("what")->string().c_str(),
                    planned.plan.c_str(), 1e6 * planned.seconds, 1e6 * took);
      ratios[format("{}{} blocks of {}", dtype, tf32 ? " as TF32" : "",
                    cell.find("block")->integer())]
          .all.push_back(planned.seconds / took);
    }
  }
  for (auto& [name, of] : ratios) {
    std::sort(of.all.begin(), of.all.end());
    std::fprintf(stderr,
                 "%-24s %4zu plans, over the product's time: median %.2f, 90 %% %.2f, most %.2f\n",
                 name.c_str(), of.all.size(), of.at(.5), of.at(.9), of.at(1));
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
