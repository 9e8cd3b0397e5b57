#include <bs/tests/fuzz/words.h>

#include <map>

using namespace bs;

// What a checkpoint says of the options of the run that made it: a name and a value, a line each.
BS_HARNESS(kept_options) {
  const std::vector<std::string> lines = fuzz::lines_of(bytes);
  std::map<std::string, std::string> kept;
  for (size_t i = 0; i + 1 < lines.size(); i += 2) kept[lines[i]] = lines[i + 1];
  const std::string path = fuzz::path_of("kept/checkpoint.safetensors");
  const std::string folder = path.substr(0, path.rfind('/'));
  fuzz::make_folder(folder);
  if (!fuzz::takes([&] { nn::save_checkpoint(path, {.step = 1, .metadata = kept}); })) return;

  const fuzz::Parsed run = fuzz::parsed({"--device", "cpu", "--resume", path});
  if (!run.taken) return;
  fuzz::require(run.goes_on, "a checkpoint asks for no help");
  const example::Options& options = run.options;
  fuzz::require(options.out == folder && options.device.is_cpu() && options.profile.empty() &&
                    options.graph == "auto" && !options.smoke,
                "a checkpoint does not say where a run computes or writes");
  fuzz::require(options.layers >= 1 && options.width % (8 * options.heads) == 0, "a model");
}
