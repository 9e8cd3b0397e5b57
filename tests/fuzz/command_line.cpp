#include <bs/examples/sparse_transformer/options.h>
#include <bs/tests/fuzz/harness.h>

#include <vector>

using namespace bs;

// One word a line.
BS_HARNESS(command_line) {
  std::vector<std::string> words{"sparse_transformer"};
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    words.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  example::Options options;
  bool goes_on = false;
  if (!fuzz::takes(
          [&] { goes_on = parse_options(static_cast<int>(words.size()), argv.data(), options); }))
    return;
  if (!goes_on) return;
  fuzz::require(options.layers >= 1 && options.heads >= 1 && options.batch >= 1, "counts");
  fuzz::require(options.width % (8 * options.heads) == 0, "a width that heads share");
  fuzz::require(options.steps >= 0 && options.learning_rate > 0, "a training");
}
