/** @file A byte-level language model with block-sparse attention, trained on any text: `--help`. */
#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/sparse_transformer/run.h>
#include <bs/examples/sparse_transformer/smoke.h>
#include <bs/examples/support/interrupt.h>

#include <cstdio>

int main(int argc, char** argv) {
  using namespace bs::example;
  constexpr int failed = 1, wrong_usage = 2;
  try {
    Options options;
    if (!parse_options(argc, argv, options)) return 0;
    if (options.smoke) {
      smoke(options);
      return 0;
    }
    catch_interrupts();
    return run(options, argv[0]);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "sparse_transformer: %s (--help lists the options)\n", error.what());
    return wrong_usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sparse_transformer: %s\n", error.what());
    return failed;
  }
}
