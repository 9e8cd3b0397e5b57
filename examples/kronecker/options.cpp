#include <bs/examples/kronecker/options.h>

#include <bs/examples/support/command_line.h>

#include <CLI/CLI.hpp>

#include <cstdio>

namespace bs::example {

namespace {

void add_timing(CLI::App& app, KroneckerOptions& o) {
  app.add_option("--trace", o.trace, "file of profile's trace")->capture_default_str();
  app.add_option("--wait", o.wait, "profile: runs that are not looked at")
      ->check(CLI::Range(0, 1000).description(""))
      ->capture_default_str();
  app.add_option("--warmup", o.warm_up, "profile: runs to warm up")
      ->check(CLI::Range(0, 1000).description(""))
      ->capture_default_str();
  app.add_option("--active", o.active, "profile: runs that are timed")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
  app.add_option("--runs", o.runs, "bench: runs, of which the median is shown")
      ->check(CLI::Range(1, 10000).description(""))
      ->capture_default_str();
}

void add_uses(CLI::App& app, KroneckerOptions& o) {
  app.add_option("--data", o.data, "terrain: heights, a matrix in an .npy file; text: a file");
  app.add_option("--out", o.out, "terrain: .npy file for the heights that are predicted");
  app.add_option("--spacing", o.spacing, "terrain: every such row and column is known")
      ->check(CLI::Range(2, 1000).description(""))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "steps of the optimiser; 60 of terrain, 2000 of text")
      ->check(CLI::Range(1, 100000).description(""));
  app.add_option("--profile", o.profile,
                 "text: file for a trace of ten steps of the products; prints where time goes");
  app.add_option("--graph", o.graph, "text: a step on a GPU as one launch; auto, on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}).description(""))
      ->capture_default_str();
  app.add_option("--dense", o.dense, "terrain: points of the dense process")
      ->check(CLI::Range(1, 20000).description(""))
      ->capture_default_str();
}

}  // namespace

bool parse_options(int argc, char** argv, KroneckerOptions& o) {
  CLI::App app(
      "Products with Kronecker products of square factors, in three ways: `steps` multiplies\n"
      "by one factor and moves its axis, for each factor; `flat` multiplies the whole batch\n"
      "as one matrix for each factor; `fused` is kron_matmul.\n\n"
      "  kronecker check 32 128 128     norms, and differences between the ways\n"
      "  kronecker profile 32 128 128   where time goes, and a trace for chrome://tracing\n"
      "  kronecker bench 32 128 128     work, and times forward and backward\n\n"
      "  kronecker terrain --data heights.npy   fills in a map by a Gaussian process on its grid\n"
      "  kronecker text --data FILE             language models with dense layers and with "
      "products");
  std::string dtype = "f32", device = "auto";
  app.add_option("mode", o.mode, "check, profile, bench, terrain or text")
      ->check(CLI::IsMember({"check", "profile", "bench", "terrain", "text"}).description(""))
      ->capture_default_str();
  app.add_option("extents", o.extents, "rows, then the extent of each factor");
  app.add_option("--dtype", dtype, "f64, f32, bf16 or f16")->capture_default_str();
  app.add_option("--device", device, "cpu, cuda or auto")->capture_default_str();
  add_timing(app, o);
  add_uses(app, o);
  app.add_flag("--smoke", o.smoke, "test itself and exit");
  try {
    app.parse(argc, argv);
    o.dtype = parse_dtype(dtype);
    o.device = device == "auto" ? (cuda_available() ? Device::cuda(0) : Device::cpu())
                                : Device::parse(device);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    BS_THROW(UsageError, "{}", error.what());
  } catch (const Error& error) {
    BS_THROW(UsageError, "{}", error.what());
  }
  check_graph(o.device, o.graph);
  if (!is_floating(o.dtype)) BS_THROW(UsageError, "--dtype {}: f64, f32, bf16 or f16", o.dtype);
  if (o.steps == 0) o.steps = o.mode == "text" ? 2000 : 60;
  if (o.extents.empty()) o.extents = {32, 128, 128};
  if (o.extents.size() < 2) BS_THROW(UsageError, "no factors behind {} rows", o.rows());
  for (const int64_t n : o.extents)
    if (n < 1) BS_THROW(UsageError, "an extent of {}", n);
  return true;
}

}  // namespace bs::example
