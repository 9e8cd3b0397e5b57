#include <bs/lib/threads.h>

#include <bs/lib/check.h>
#include <omp.h>

namespace bs {

int threads() { return omp_get_max_threads(); }

void set_threads(int count) {
  BS_CHECK(count > 0, "set_threads: {} threads", count);
  omp_set_num_threads(count);
}

}  // namespace bs
