// A program may set a locale whose decimal point is a comma; what the library writes and reads has
// a point all the same.
#include <bs/kernels/fill.h>
#include <bs/lib/format_fixed.h>
#include <bs/lib/json.h>
#include <bs/lib/layout.h>
#include <bs/lib/npy.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/patterns.h>
#include <bs/lib/profiler.h>
#include <bs/lib/progress.h>
#include <bs/lib/tensor.h>
#include <bs/lib/trace.h>
#include <bs/tests/support/decimal_comma.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <sstream>

using namespace bs;

namespace {

/// What is written the same in every locale.
std::vector<std::string> texts() {
  const patterns::Size window{.rows = 4, .block = 16};
  const Tensor x = Tensor::from({1.5, -12345.678, 1e-30, 0.1}, {2, 2});
  return {format("{} {}", 1234567.5, 0.25F),
          format_fixed(1234.5678, 2),
          to_string(x),
          Json(Json::Array{1.5, -1e300, 12345678}).dump(),
          in_units(3 << 19),
          out_of_memory_text(Device::cpu(), 5000, {.total = 123456, .free = 2345}),
          format_count(12345),
          format_duration(1e6),
          progress_line({.label = "x", .done = 1234, .total = 5678, .rate = 1234.5}, 80),
          to_string(*patterns::sliding_window(window)),
          to_svg(*patterns::sliding_window(window))};
}

}  // namespace

TEST_CASE("locale: texts are the same where the decimal point is a comma") {
  const std::vector<std::string> expected = texts();
  const test::DecimalComma comma;
  std::ostringstream stream;
  stream << 12345.5;
  REQUIRE(stream.str() == "12.345,5");  // what a text would look like that obeyed
#ifdef __GLIBC__
  REQUIRE(comma.in_c());
#endif
  CHECK(texts() == expected);
  CHECK(Json::parse("[1.5, -2.5e3]").array()[1].number() == -2500);
  const test::Scratch folder;
  save_npy(folder / "x.npy", Tensor::from({1.5, 2.5}));
  CHECK(load_npy(folder / "x.npy").select(0, 1).item() == 2.5);
}

TEST_CASE("locale: a profiler's table and trace have decimal points") {
  const test::DecimalComma comma;
  Profiler profiler;
  {
    const TraceRange range("step");
    fill(Tensor::empty({1000}, f32), 1.5);
  }
  profiler.stop();
  const std::string table = profiler.table();
  CHECK_MESSAGE(table.find(',') == std::string::npos, table);
  CHECK(table.find('.') != std::string::npos);
  const test::Scratch folder;
  profiler.write_trace(folder / "trace.json");
  const Json trace = Json::parse(test::read_file(folder / "trace.json"));
  for (const Json& event : trace.find("traceEvents")->array())
    if (const Json* took = event.find("dur")) CHECK(took->number() >= 0);
}
