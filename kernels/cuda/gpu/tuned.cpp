#include <bs/kernels/cuda/gpu/tuned.h>
#include <bs/lib/check.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/sha256.h>

namespace bs::cuda {

namespace {

std::string identity(const TunedKey& key) {
  return format(
      "bs choice 1\nname {}\ncapability {}\nmultiprocessors {}\nclock {}\ndriver {}\n{}\n",
      key.gpu.name, key.gpu.capability, key.gpu.multiprocessors, key.gpu.clock, key.gpu.driver,
      key.problem);
}

}  // namespace

size_t soonest(std::span<const double> times) {
  size_t best = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const bool less = best == 0 ? times[i] < 0.98 * times[0] : times[i] < times[best];
    if (less || (times[best] != times[best] && times[i] == times[i])) best = i;
  }
  return best;
}

std::string choice_file(const TunedKey& key) {
  return "choice-" + sha256(identity(key)).substr(0, 32) + ".txt";
}

std::string format_choice(const TunedKey& key, std::string_view name) {
  const std::string text = identity(key) + format("choice {}\n", name);
  return text + format("sha256 {}\n", sha256(text));
}

std::optional<std::string> parse_choice(std::string_view text, const TunedKey& key) {
  const std::string known = identity(key) + "choice ";
  if (!text.starts_with(known)) return {};
  const std::string_view rest = text.substr(known.size());
  std::string name(rest.substr(0, rest.find('\n')));
  // Cut short anywhere, or changed: then writing it again gives another text.
  if (format_choice(key, name) != text) return {};
  return name;
}

std::optional<std::string> kept_choice(const TunedKey& key) {
  const std::optional<std::string> text = jit::load_text(choice_file(key));
  return text ? parse_choice(*text, key) : std::nullopt;
}

void keep_choice(const TunedKey& key, std::string_view name) {
  jit::store_text(choice_file(key), format_choice(key, name));
}

}  // namespace bs::cuda
