/** @file A byte-level language model with block-sparse attention, trained on any text: `--help`. */
#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/sparse_transformer/run.h>
#include <bs/examples/sparse_transformer/smoke.h>
#include <bs/examples/support/interrupt.h>
#include <bs/examples/support/program.h>

int main(int argc, char** argv) {
  using namespace bs::example;
  return run_program("sparse_transformer", [&] {
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
