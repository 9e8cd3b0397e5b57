#include <bs/kernels/cuda/gpu/gpu_model.h>
#include <bs/kernels/cuda/gpu/tuned.h>
#include <bs/lib/sha256.h>
#include <bs/tests/fuzz/harness.h>

#include <cmath>

using namespace bs;
using namespace bs::cuda;

// What was measured of a GPU, or chosen for it, kept beside its kernels. '@' stands for the digest
// of what precedes.
BS_HARNESS(gpu_model) {
  const GpuKey key{.name = "G", .capability = 90, .multiprocessors = 132, .clock = 1, .driver = 1};
  std::string text(bytes);
  if (const size_t at = text.find('@'); at != std::string::npos)
    text.replace(at, 1, sha256(std::string_view(text).substr(0, text.rfind('\n', at) + 1)));
  if (const auto choice = parse_choice(text, {key, "p"}))
    fuzz::require(format_choice({key, "p"}, *choice) == text, "a text is its choice");
  const auto measured = parse_measured(text, key);
  if (!measured) return;
  for (size_t i = 0; i < measured_count; ++i)
    fuzz::require(std::isfinite((*measured)[i]) && (*measured)[i] > 0, "numbers that a GPU has");
  fuzz::require(format_measured(key, *measured) == text, "a text is its numbers");
}
