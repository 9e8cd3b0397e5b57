// What plans of block-sparse products promise, whatever the GPU.
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <bs/lib/integers.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/cuda/work_pieces.h>
#include <bs/tests/support/uneven_layout.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

/// GPUs of several sizes, some of which are none that there is.
std::vector<Gpu> machines() {
  std::vector<Gpu> all;
  for (const int multiprocessors : {82, 108, 132, 170})
    for (const int64_t kilobytes : {99, 163, 227})
      for (const int capability : {80, 90})
        for (const double memory : {250., 3352., 12000.})  // from slow to fast, all else with it
          all.push_back({.multiprocessors = multiprocessors,
                         .capability = capability,
                         .shared_bytes = kilobytes * 1024,
                         .memory_rate = memory,
                         .clock = memory < 1000 ? 2.6 : 1.5,
                         .copy_rate = .8 * memory,
                         .launch = memory < 1000 ? 9000. : 2000.,
                         .line_cycles = memory < 1000 ? 8. : 2.5,
                         .half_products = memory < 1000 ? 230. : 3600.,
                         .tf32_products = memory < 1000 ? 60. : 1800.});
  return all;
}

LayoutPtr random_layout(int size, int block, double density) {
  return patterns::random({.rows = size / block, .cols = size / block, .block = block},
                          {.density = density});
}

constexpr Factors all_factors[] = {Factors::half, Factors::tf32, Factors::split, Factors::f64};

bool same(const DsdPlan& a, const DsdPlan& b) {
  return a.path == b.path && a.cols == b.cols && a.turns == b.turns && a.strips == b.strips &&
         a.large == b.large && a.vectors == b.vectors &&
         a.split.pieces.size() == b.split.pieces.size();
}

}  // namespace

TEST_CASE("plan: the path follows from the GPU, the numbers, the block and what can be reached") {
  struct Row {
    int capability, block;
    Factors factors;
    bool reached;
    Path dsd, sdd;
  };
  const Row rows[] = {
      {90, 16, Factors::half, true, Path::warpgroup, Path::warpgroup},
      {90, 128, Factors::half, true, Path::warpgroup, Path::warpgroup},
      {90, 64, Factors::half, false, Path::tiled, Path::tiled},
      {90, 8, Factors::half, true, Path::tiled, Path::tiled},
      {80, 64, Factors::half, true, Path::tiled, Path::tiled},
      {100, 64, Factors::half, true, Path::tiled, Path::tiled},
      {90, 64, Factors::tf32, true, Path::tf32, Path::tf32},
      {90, 64, Factors::split, true, Path::tf32, Path::tf32},
      {90, 128, Factors::split, false, Path::tiled, Path::tiled},
      {86, 128, Factors::tf32, true, Path::tiled, Path::tiled},
      {90, 64, Factors::f64, true, Path::tiled, Path::tiled},
  };
  for (const Row& row : rows) {
    CAPTURE(row.capability);
    CAPTURE(row.block);
    const LayoutPtr layout = random_layout(4096, row.block, .1);
    const Gpu gpu{.capability = row.capability};
    const Reach reach{.copy_engine = row.reached};
    const DsdShape dsd{.factors = row.factors, .n = 192, .lying = reach};
    const SddShape sdd{
        .factors = row.factors, .k = 192, .a_along_k = true, .b_along_k = true, .lying = reach};
    CHECK(plan_dsd(*layout, dsd, gpu, {}).path == row.dsd);
    CHECK(plan_sdd(*layout, sdd, gpu, {}).path == row.sdd);
    CHECK(plan_dsd(*layout, dsd, gpu, {.portable_products = true}).path == Path::tiled);
    CHECK(plan_sdd(*layout, sdd, gpu, {.portable_products = true}).path == Path::tiled);
  }
  // A few columns of C are not for the tiles of f32 on wgmma.
  const LayoutPtr layout = random_layout(1024, 64, .1);
  const auto path = [&](int64_t n) {
    return plan_dsd(*layout, {.factors = Factors::tf32, .n = n}, {}, {}).path;
  };
  CHECK(path(191) == Path::tiled);
  CHECK(path(192) == Path::tf32);
  const LayoutPtr small = random_layout(1024, 16, .1);
  const Settings always{.gathered_products = true};
  CHECK(plan_dsd(*small, {.factors = Factors::tf32, .n = 512}, {}, always).path == Path::tiled);
  CHECK(plan_sdd(*small, {.factors = Factors::tf32, .k = 512}, {}, always).path == Path::tf32);
}

TEST_CASE("plan: once dense products pay they do for all greater densities") {
  for (const Factors factors : {Factors::half, Factors::tf32, Factors::split})
    for (const int block : {8, 32, 128}) {
      bool dsd = false, sdd = false;
      for (const double density : {.02, .2, .4, .6, .8, 1.}) {
        const LayoutPtr layout = random_layout(4096, block, density);
        const bool dsd_now =
            plan_dsd(*layout, {.factors = factors, .n = 4096}, {}, {}).path == Path::dense;
        const Path path =
            plan_sdd(*layout, {.factors = factors, .k = 4096, .a_along_k = true}, {}, {}).path;
        const bool sdd_now = path == Path::dense || path == Path::blocks;
        CHECK((dsd_now || !dsd));
        CHECK((sdd_now || !sdd));
        dsd = dsd_now;
        sdd = sdd_now;
      }
    }
}

TEST_CASE("plan: dense products are weighed where they take longer than launches") {
  for (const Factors factors : {Factors::half, Factors::tf32, Factors::split})
    for (const int size : {4096, 512}) {
      const LayoutPtr layout = random_layout(size, 8, .9);
      const Path path = size == 4096 ? Path::dense : Path::tiled;
      CHECK(plan_sdd(*layout, {.factors = factors, .k = 512}, {}, {}).path == path);
      CHECK(plan_dsd(*layout, {.factors = factors, .n = 512}, {}, {}).path == path);
    }
}

TEST_CASE("plan: dense products begin to pay about where they were measured to") {
  struct Row {
    Factors factors;
    int block;
    double dsd_sparse, dsd_dense, sdd_sparse, sdd_dense;  // densities
  };
  // Both ways meet between these, random blocks of 4096^3 on an H100 or H200 (bench/notes).
  const Row rows[] = {
      {Factors::half, 8, .02, .1, .02, .1}, {Factors::half, 16, .3, .7, .3, .5},
      {Factors::half, 32, .6, 1, .5, .8},   {Factors::tf32, 8, .05, .1, .05, .1},
      {Factors::tf32, 16, .1, .2, .2, .4},  {Factors::tf32, 32, .6, .9, .5, .7},
      {Factors::tf32, 64, .5, .8, .4, .6},  {Factors::tf32, 128, .7, 1, .7, .9},
      {Factors::split, 8, .1, .2, .1, .2},  {Factors::split, 16, .3, .5, .5, .8},
      {Factors::split, 32, .7, 1, .7, .9},  {Factors::half, 64, .9, 2, .7, .9},
  };
  for (const Row& row : rows) {
    CAPTURE(static_cast<int>(row.factors));
    CAPTURE(row.block);
    const auto dense = [&](double density, bool sdd) {
      const LayoutPtr layout = random_layout(4096, row.block, density);
      const Path path = sdd ? plan_sdd(*layout,
                                       {.factors = row.factors,
                                        .k = 4096,
                                        .a_along_k = true,
                                        .b_turnable = int64_t{4096} * 4096},
                                       {}, {})
                                  .path
                            : plan_dsd(*layout, {.factors = row.factors, .n = 4096}, {}, {}).path;
      return path == Path::dense || path == Path::blocks;
    };
    CHECK(!dense(row.dsd_sparse, false));
    if (row.dsd_dense <= 1) CHECK(dense(row.dsd_dense, false));
    CHECK(!dense(row.sdd_sparse, true));
    CHECK(dense(row.sdd_dense, true));
  }
}

TEST_CASE("plan: parts have no more counters than a launch") {
  const LayoutPtr layout = random_layout(2048, 8, .3);
  for (const int64_t n : {64, 832})
    for (const Factors factors : all_factors) {
      const DsdPlan plan = plan_dsd(*layout, {.factors = factors, .n = n, .batch = 4}, {}, {});
      CHECK((plan.path == Path::tiled ? 1 : 2) * plan.split.slots + 2 <= most_counters);
    }
}

TEST_CASE("plan: dsd's pieces cover its items once, on any GPU") {
  std::mt19937 random(3);
  const std::vector<Gpu> gpus = machines();
  for (int i = 0; i < 300; ++i) {
    const int block = 8 << random() % 5, heads = 1 + static_cast<int>(random() % 3);
    const LayoutPtr layout = test::uneven_layout(random, heads, 1 + static_cast<int>(random() % 60),
                                                 1 + static_cast<int>(random() % 60), block,
                                                 1 + static_cast<unsigned>(random() % 9));
    const bool sums_heads = heads > 1 && random() % 2 != 0;
    const DsdShape shape{.factors = all_factors[random() % 4],
                         .transposed = random() % 2 != 0,
                         .n = 1 + static_cast<int>(random() % 900),
                         .batch = sums_heads ? 2 : heads * (1 + static_cast<int>(random() % 2)),
                         .terms = sums_heads ? heads : 1,
                         .sums_heads = sums_heads,
                         .b_along_k = random() % 2 != 0,
                         .c_by_columns = random() % 2 != 0};
    const Gpu& gpu = gpus[random() % gpus.size()];
    const DsdPlan plan = plan_dsd(*layout, planned_shape(*layout, shape, gpu, {}), gpu, {});
    CAPTURE(i);
    CHECK(plan.cols >= 64);
    if (plan.path == Path::tiled) {
      const int size = bytes_of(shape.factors);
      const BlockSparseTile tile =
          block_sparse_tile(size, block, shape.factors == Factors::split, plan.cols);
      CHECK(tile.shared_bytes(size) <= gpu.shared_bytes);
    }
    if (plan.split.pieces.empty()) continue;
    int64_t items = shape.batch * ((shape.n + plan.cols - 1) / plan.cols);
    if (plan.path == Path::tiled) {
      const int rows = block_sparse_tile(bytes_of(shape.factors), block,
                                         shape.factors == Factors::split, plan.cols)
                           .rows;
      items *= (shape.transposed ? layout->cols() : layout->rows()) * ((block + rows - 1) / rows);
    } else {
      const Tf32Tile tile =
          tf32_tile(std::max(block, 32), shape.factors == Factors::split, plan.large);
      if (plan.path == Path::tf32) items *= std::max(1, block / tile.n);
      items *= make_strips(*layout, plan.strips).count;
    }
    std::vector<int32_t> lengths(static_cast<size_t>(items));
    for (const device::WorkPiece& piece : plan.split.pieces) {
      REQUIRE(piece.item < items);
      int32_t& length = lengths[static_cast<size_t>(piece.item)];
      length = std::max(length, piece.end);
    }
    test::check_pieces(plan.split, lengths);
  }
}

TEST_CASE("plan: sdd has every block in one item, on any GPU") {
  std::mt19937 random(5);
  const std::vector<Gpu> gpus = machines();
  int gathered = 0;
  for (int i = 0; i < 200; ++i) {
    const int block = 16 << random() % 3;
    const LayoutPtr layout = test::uneven_layout(random, 1 + static_cast<int>(random() % 2), 60, 60,
                                                 block, 1 + static_cast<unsigned>(random() % 9));
    const SddShape shape{.factors = random() % 2 != 0 ? Factors::half : Factors::tf32,
                         .k = 1 + static_cast<int>(random() % 900),
                         .batch = 1 + static_cast<int>(random() % 3),
                         .a_along_k = random() % 2 != 0,
                         .b_along_k = random() % 2 != 0};
    const SddPlan plan = plan_sdd(*layout, shape, gpus[random() % gpus.size()],
                                  {.gathered_products = random() % 2 != 0});
    if (plan.gathered.blocks.empty()) continue;
    ++gathered;
    std::vector<int> taken(static_cast<size_t>(layout->nnz()));
    for (const device::SddRange& range : plan.ranges)
      for (int at = 0; at < range.count * plan.gathered.strip_rows; ++at) {
        const int number = plan.gathered.blocks.at(
            static_cast<size_t>(range.first * plan.gathered.strip_rows + at));
        if (number >= 0) ++taken.at(static_cast<size_t>(number));
      }
    CHECK(std::all_of(taken.begin(), taken.end(), [](int times) { return times == 1; }));
  }
  CHECK(gathered > 10);
}

TEST_CASE(
    "plan: sdd on mma.sync has narrow tiles where rows are short, or would end a round late") {
  const auto cols = [](Factors factors, double density) {
    const SddShape shape{.factors = factors, .k = 4096, .a_along_k = true, .b_along_k = true};
    const SddPlan plan = plan_sdd(*random_layout(4096, 8, density), shape, {}, {});
    CHECK(plan.path == Path::tiled);
    return plan.cols;
  };
  // An H200 takes 114 us for 155, 224 for 339, and 379 for 480.
  CHECK(cols(Factors::half, .02) <= 128);
  CHECK(cols(Factors::split, .02) <= 128);
  CHECK(cols(Factors::split, .05) <= 128);
}

TEST_CASE("plan: a width that varies is planned a few times, and as it would be by itself") {
  const LayoutPtr layout = random_layout(4096, 64, .1);
  for (const Factors factors : all_factors) {
    std::vector<int64_t> planned;
    for (int64_t n = 32768; n < 65536; n += 40) {
      const DsdShape shape{.factors = factors, .n = n};
      const DsdShape of = planned_shape(*layout, shape, {}, {});
      CHECK(of.n >= n);
      CHECK(8 * of.n <= 9 * n + 512);
      CHECK(planned_shape(*layout, of, {}, {}) == of);
      if (planned.empty() || planned.back() != of.n) planned.push_back(of.n);
    }
    // Tiles of mma.sync may be cut by their number.
    CHECK(planned.size() <= (factors == Factors::f64 ? 1024 : 10));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const DsdShape shape{.factors = all_factors[random() % 4],
                         .n = 1 + static_cast<int>(random() % 12000)};
    const DsdShape of = planned_shape(*layout, shape, {}, {});
    const DsdPlan plan = plan_dsd(*layout, of, {}, {}), own = plan_dsd(*layout, shape, {}, {});
    CAPTURE(shape.n);
    CHECK(same(plan, own));
  }
}

TEST_CASE("plan: a dense product takes a sixteenth of the memory, and a quarter of what is free") {
  // Of 4096 x 4096 each: S and for split factors both operands in two parts, 4 and 8 bytes.
  const LayoutPtr layout = random_layout(4096, 32, 1);
  constexpr int64_t mib = int64_t{1} << 20;
  const auto paths = [&](Factors factors, const Gpu& gpu) {
    const DsdShape dsd{.factors = factors, .n = 4096};
    const SddShape sdd{.factors = factors, .k = 4096, .a_along_k = true};
    return std::pair(plan_dsd(*layout, dsd, gpu, {}).path, plan_sdd(*layout, sdd, gpu, {}).path);
  };
  const std::pair dense(Path::dense, Path::dense), sparse(Path::tf32, Path::tf32);
  CHECK(paths(Factors::tf32, {}) == dense);
  CHECK(paths(Factors::tf32, {.memory_bytes = 64 * 16 * mib}) == dense);
  CHECK(paths(Factors::tf32, {.memory_bytes = 63 * 16 * mib}) == sparse);
  CHECK(paths(Factors::tf32, {.free_bytes = 64 * 4 * mib}) == dense);
  CHECK(paths(Factors::tf32, {.free_bytes = 63 * 4 * mib}) == sparse);
  CHECK(paths(Factors::split, {.free_bytes = (64 + 2 * 128) * 4 * mib}) == dense);
  CHECK(paths(Factors::split, {.free_bytes = (64 + 2 * 128 - 1) * 4 * mib}) == sparse);
}

TEST_CASE("plan: an operand is turned where a copy of it fits the same share of the memory") {
  constexpr int64_t mib = int64_t{1} << 20;
  for (const auto& [factors, block, size] :
       {std::tuple(Factors::half, 8, 2), std::tuple(Factors::half, 16, 2),
        std::tuple(Factors::split, 8, 4)}) {
    const int side = block, bytes = size;
    CAPTURE(side);
    CAPTURE(bytes);
    const LayoutPtr layout = random_layout(4096, block, .02);
    const int64_t copy = 2 * size * 16 * mib;  // of two B of 4096 x 4096
    const DsdShape dsd{
        .factors = factors, .n = 4096, .batch = 2, .b_along_k = true, .turnable = true};
    const SddShape sdd{
        .factors = factors, .k = 4096, .batch = 2, .b_turnable = int64_t{2} * 4096 * 4096};
    const auto turns = [&](const Gpu& gpu) {
      return std::pair(plan_dsd(*layout, dsd, gpu, {}).turns,
                       plan_sdd(*layout, sdd, gpu, {}).turns_b);
    };
    const std::pair both(true, true), neither(false, false);
    CHECK(turns({}) == both);
    CHECK(turns({.memory_bytes = 16 * copy}) == both);
    CHECK(turns({.memory_bytes = 16 * copy - 16}) == neither);
    CHECK(turns({.free_bytes = 4 * copy}) == both);
    CHECK(turns({.free_bytes = 4 * copy - 4}) == neither);
  }
}

TEST_CASE("plan: a depth that varies is planned a few times, and cut as it would be by itself") {
  const LayoutPtr small = random_layout(2048, 32, .1), large = random_layout(16384, 64, .3);
  for (const Factors factors : all_factors) {
    const int64_t depth = factors == Factors::half ? 64 : 32;
    std::vector<int64_t> planned;
    for (int64_t k = 32768; k < 65536; k += 40) {
      const SddShape shape{.factors = factors, .k = k, .a_turnable = 128 * k};
      for (const LayoutPtr& layout : {small, large}) {
        const SddShape of = planned_shape(*layout, shape, {});
        CHECK(of.k >= k);
        CHECK(8 * of.k <= 9 * k + 512);
        CHECK(of.a_turnable == 128 * of.k);
        CHECK(planned_shape(*layout, of, {}) == of);
      }
      CHECK(ceil_div(planned_shape(*small, shape, {}).k, depth) == ceil_div(k, depth));
      const int64_t of = planned_shape(*large, shape, {}).k;
      if (planned.empty() || planned.back() != of) planned.push_back(of);
    }
    CHECK(planned.size() <= 9);
  }
  std::mt19937 random(11);
  int cut = 0;
  for (int i = 0; i < 60; ++i) {
    const SddShape shape{.factors = all_factors[random() % 4],
                         .k = 1 + static_cast<int>(random() % 12000),
                         .a_along_k = random() % 2 != 0,
                         .b_along_k = random() % 2 != 0};
    const SddPlan plan = plan_sdd(*small, planned_shape(*small, shape, {}), {}, {});
    const SddPlan own = plan_sdd(*small, shape, {}, {});
    CAPTURE(shape.k);
    CHECK(plan.path == own.path);
    CHECK(plan.form == own.form);
    CHECK(plan.ranges.size() == own.ranges.size());
    CHECK(plan.split.pieces.size() == own.split.pieces.size());
    cut += plan.split.pieces.empty() ? 0 : 1;
  }
  CHECK(cut > 5);
}

TEST_CASE("plan: an order for more columns serves fewer") {
  std::mt19937 random(9);
  for (int i = 0; i < 300; ++i) {
    const int64_t planned = 1 + static_cast<int>(random() % 60);
    const int group = 1 + static_cast<int>(random() % static_cast<unsigned>(planned));
    const int groups = 1 + static_cast<int>(random() % static_cast<unsigned>(planned / group));
    const device::WorkOrder order{2, groups == 1 ? static_cast<int>(planned) : group, groups};
    for (int64_t columns = 1; columns <= planned; ++columns) {
      const device::WorkOrder own = order_of_columns(order, planned, columns);
      CHECK(own.first == order.first);
      CHECK(own.groups >= 1);
      // Every column is in a group, and the last group has some.
      CHECK((own.groups - 1) * own.group < columns);
      if (columns == planned) CHECK(own.groups == order.groups);
    }
  }
}
