#include <bs/tests/fuzz/words.h>

using namespace bs;

// One word a line.
BS_HARNESS(command_line) {
  const fuzz::Parsed run = fuzz::parsed(fuzz::lines_of(bytes));
  if (!run.taken || !run.goes_on) return;
  const example::Options& options = run.options;
  fuzz::require(options.layers >= 1 && options.heads >= 1 && options.batch >= 1, "counts");
  fuzz::require(options.width % (8 * options.heads) == 0, "a width that heads share");
  fuzz::require(options.steps >= 0 && options.learning_rate > 0, "a training");
}
