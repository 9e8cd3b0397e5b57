/** @file Products with Kronecker products checked, profiled and timed: `--help`. */
#include <bs/examples/kronecker/options.h>
#include <bs/examples/kronecker/run.h>
#include <bs/examples/kronecker/terrain.h>
#include <bs/examples/kronecker/text.h>
#include <bs/examples/support/program.h>

int main(int argc, char** argv) {
  using namespace bs::example;
  return run_program("kronecker", [&] {
    KroneckerOptions options;
    if (!parse_options(argc, argv, options)) return 0;
    if (options.smoke) {
      smoke_products(options);
      smoke_terrain(options);
      smoke_text(options);
    } else if (options.mode == "terrain") {
      fit_terrain(options);
    } else if (options.mode == "text") {
      compress_text(options);
    } else if (options.mode == "check") {
      check_products(options);
    } else if (options.mode == "profile") {
      profile_products(options);
    } else {
      bench_products(options);
    }
    return 0;
  });
}
