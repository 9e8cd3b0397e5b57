/** @file A residual network that learns letters and digits from the fonts of Debian: `--help`. */
#include <bs/examples/image_classifier/options.h>
#include <bs/examples/image_classifier/run.h>
#include <bs/examples/image_classifier/smoke.h>
#include <bs/examples/support/interrupt.h>
#include <bs/examples/support/program.h>

int main(int argc, char** argv) {
  using namespace bs::example;
  return run_program("image_classifier", [&] {
    Options options;
    if (!parse_options(argc, argv, options)) return 0;
    if (options.smoke) {
      smoke(options);
      return 0;
    }
    catch_interrupts();
    return run(options, argv[0]);
  });
}
