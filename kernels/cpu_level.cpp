#include <bs/kernels/cpu_level.h>

#if BS_CPU_LEVELS
extern "C" {
[[gnu::visibility("hidden")]] extern int bs_cpu_level;
[[gnu::visibility("hidden")]] extern const char* const bs_cpu_level_names[];
}
#endif

namespace bs {

const char* cpu_level() {
#if BS_CPU_LEVELS
  return bs_cpu_level_names[bs_cpu_level];
#else
  return BS_CPU_ARCH;
#endif
}

}  // namespace bs
