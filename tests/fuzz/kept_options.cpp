#include <bs/examples/sparse_transformer/options.h>
#include <bs/tests/fuzz/harness.h>

#include <map>
#include <vector>

using namespace bs;

// What a checkpoint says of the options of the run that made it: a name and a value, a line each.
BS_HARNESS(kept_options) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    lines.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  std::map<std::string, std::string> kept;
  for (size_t i = 0; i + 1 < lines.size(); i += 2) kept[lines[i]] = lines[i + 1];
  const std::string path = fuzz::path_of("kept/checkpoint.safetensors");
  const std::string folder = path.substr(0, path.rfind('/'));
  fuzz::make_folder(folder);
  if (!fuzz::takes([&] { nn::save_checkpoint(path, {.step = 1, .metadata = kept}); })) return;

  std::vector<std::string> words{"sparse_transformer", "--device", "cpu", "--resume", path};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  example::Options options;
  bool goes_on = false;
  if (!fuzz::takes(
          [&] { goes_on = parse_options(static_cast<int>(words.size()), argv.data(), options); }))
    return;
  fuzz::require(goes_on, "a checkpoint asks for no help");
  fuzz::require(options.out == folder && options.device.is_cpu() && options.profile.empty() &&
                    options.graph == "auto" && !options.smoke,
                "a checkpoint does not say where a run computes or writes");
  fuzz::require(options.layers >= 1 && options.width % (8 * options.heads) == 0, "a model");
}
