// From where plans have the numbers of a GPU.
#include <bs/kernels/cuda/gpu/gpu_measure.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/tests/support/decimal_comma.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/kernel_sweep.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <set>

using namespace bs;
using namespace bs::cuda;

namespace {

const GpuKey ada{.name = "NVIDIA GeForce RTX 4090",
                 .capability = 89,
                 .multiprocessors = 128,
                 .clock = 2520000,
                 .driver = 13000};
constexpr Measured some{2.4, 910, 2500, 4.5, 470, 235};

Gpu asked() {
  return {.multiprocessors = 128, .capability = 89, .shared_bytes = 99 << 10, .memory_rate = 1008};
}

/// Whether the table has figures of this GPU to compare with.
bool is_known(Device device) {
  return device.is_cuda() && cuda_available() && is_in_table(gpu_key(device));
}

}  // namespace

TEST_CASE("gpu model: H100 and H200 are in the table, and keep its numbers") {
  const auto known = [](const char* name, int capability) {
    return is_in_table({.name = name, .capability = capability});
  };
  for (const char* name : {"NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200"})
    CHECK(known(name, 90));
  CHECK_FALSE(known("NVIDIA H20", 90));
  CHECK_FALSE(known("NVIDIA H100 80GB HBM3", 100));
  CHECK_FALSE(known("NVIDIA A100-SXM4-80GB", 80));
  const Gpu h200{.memory_bytes = int64_t{141} << 30, .memory_rate = 4800};
  CHECK(table_model(h200).gpu == h200);
  CHECK(stand_in_model().gpu == Gpu{});
  // What plans were made by before any GPU was measured.
  CHECK(Gpu{}.half_rate() == doctest::Approx(395e3).epsilon(1e-12));
  CHECK(Gpu{}.tf32_rate() == doctest::Approx(208e3).epsilon(1e-12));
  CHECK(Gpu{}.split_rate() == doctest::Approx(62e3).epsilon(1e-12));
  CHECK(Gpu{}.line() == 3.2 / 1.7);
}

TEST_CASE("gpu model: what is kept reads back the same, and only for the same GPU") {
  const std::string text = format_measured(ada, some);
  CAPTURE(text);
  CHECK(parse_measured(text, ada) == some);
  std::set<std::string> files{measured_file(ada)};
  for (int i = 0; i < 5; ++i) {
    GpuKey other = ada;
    if (i == 0) other.name += " D";
    if (i == 1) other.capability = 90;
    if (i == 2) other.multiprocessors = 114;
    if (i == 3) other.clock += 1000;
    if (i == 4) other.driver += 10;
    CHECK_FALSE(parse_measured(text, other));
    files.insert(measured_file(other));
  }
  CHECK(files.size() == 6);
  const test::DecimalComma comma;
  CHECK(format_measured(ada, some) == text);
  CHECK(parse_measured(text, ada) == some);
}

TEST_CASE("gpu model: a damaged file is no measurement") {
  const std::string text = format_measured(ada, some);
  for (size_t i = 0; i < text.size(); ++i) {
    CHECK_FALSE(parse_measured(text.substr(0, i), ada));
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK_FALSE(parse_measured(changed, ada));
  }
  CHECK_FALSE(parse_measured(text + "\n", ada));
  // Whole, but no GPU's.
  for (const double wrong : {0., -1., 1e9, std::numeric_limits<double>::quiet_NaN()})
    for (size_t i = 0; i < measured_count; ++i) {
      Measured measured = some;
      measured[i] = wrong;
      CHECK_FALSE(parse_measured(format_measured(ada, measured), ada));
    }
}

TEST_CASE("gpu model: numbers that no GPU has are dropped one by one") {
  for (size_t i = 0; i < measured_count; ++i) {
    CAPTURE(measured_numbers[i].name);
    for (const double wrong :
         {measured_numbers[i].least / 2, 2 * measured_numbers[i].most,
          std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      Measured measured = some, wanted = some;
      measured[i] = wrong;
      wanted[i] = 0;
      CHECK(plausible(measured) == wanted);
      CHECK_FALSE(is_complete(plausible(measured)));
    }
    const double known = Gpu{}.*measured_numbers[i].field;
    CHECK((known >= measured_numbers[i].least && known <= measured_numbers[i].most));
  }
  CHECK(is_complete(plausible(some)));
  CHECK(plausible({2.41234, 910, 2500, 4.5, 470, 235})[0] == 2.41);
}

TEST_CASE("gpu model: what was not measured is assumed, and says so") {
  const GpuModel measured = measured_model(asked(), some);
  CHECK(measured.gpu.copy_rate == 910);
  CHECK(measured.gpu.half_rate() == doctest::Approx(470 * 2.4 * 128));
  CHECK(describe(measured).find("clock: 2.4 cycles a ns (measured)\n") != std::string::npos);
  const GpuModel assumed = measured_model(asked(), {});
  CHECK(assumed.gpu.copy_rate == doctest::Approx(1008 * 2800. / 3352));
  CHECK(assumed.gpu.line_cycles == Gpu{}.line_cycles);
  CHECK(describe(assumed).find("copy_rate: 842 bytes a ns, read and written (assumed)\n") !=
        std::string::npos);
  CHECK(describe(assumed).find("multiprocessors: 128 (asked)\n") != std::string::npos);
  CHECK(describe(stand_in_model()).find("multiprocessors: 132 (table)\n") != std::string::npos);
  Gpu silent = asked();  // a driver that does not tell the memory's clock
  silent.memory_rate = 0;
  CHECK(measured_model(silent, some).gpu.memory_rate == doctest::Approx(910 * 3352. / 2800));
  CHECK(measured_model(silent, {}).gpu.memory_rate > 0);
}

TEST_CASE("gpu model: measurements are kept as compiled kernels are") {
  namespace fs = std::filesystem;
  const test::Scratch scratch;
  const std::string cache = scratch / "cache", name = measured_file(ada);
  const test::Environment environment("BS_CACHE_DIR", cache);
  CHECK_FALSE(jit::load_text(name));
  jit::store_text(name, "first");
  jit::store_text(name, "second");
  CHECK(jit::load_text(name) == "second");
  CHECK((fs::status(cache).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK(std::distance(fs::directory_iterator(cache), fs::directory_iterator()) == 1);
  for (const std::string& path : {cache, cache + "/" + name}) {
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::group_write, fs::perm_options::add);
    CHECK_FALSE(jit::load_text(name));
    fs::permissions(path, before);
    CHECK(jit::load_text(name) == "second");
  }
  fs::rename(cache + "/" + name, cache + "/elsewhere");  // a link may lead to anybody's
  fs::create_symlink(cache + "/elsewhere", cache + "/" + name);
  CHECK_FALSE(jit::load_text(name));
}

TEST_CASE("gpu model: the kernels that measure compile without spills") {
  test::check_kernels(
      measuring_sources(), [](const jit::Source& source) { return source; }, 1);
}

TEST_CASE("gpu model: a GPU is measured in a few seconds" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const auto begin = std::chrono::steady_clock::now();
  const Measured measured = measure_gpu(device);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  MESSAGE(describe(measured_model(asked_gpu(device), measured)), took.count(), " s");
  CHECK(is_complete(measured));
  CHECK(took.count() < 5);
}

TEST_CASE("gpu model: what is measured is near what the table says" *
          doctest::skip(!is_known(test::test_device()))) {
  const Device device = test::test_device();
  const Measured measured = measure_gpu(device);
  const Gpu known = table_model(asked_gpu(device)).gpu;
  for (size_t i = 0; i < measured_count; ++i) {
    CAPTURE(measured_numbers[i].name);
    const double ratio = measured[i] / (known.*measured_numbers[i].field);
    CHECK((ratio > .5 && ratio < 2));
  }
}
