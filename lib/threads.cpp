#include <bs/lib/threads.h>

#include <bs/lib/check.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace bs {

namespace {

/// OMP_NUM_THREADS, of which a list's first number counts, or the cores.
int first_count() {
  if (const char* const text = std::getenv("OMP_NUM_THREADS")) {
    const std::string_view wish(text);
    int count = 0;
    std::from_chars(wish.data(), wish.data() + wish.size(), count);
    if (count > 0) return count;
  }
  return cores();
}

int& count() {
  static const int first = first_count();
  thread_local int count = first;
  return count;
}

}  // namespace

int cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

int threads() { return count(); }

void set_threads(int wanted) {
  BS_CHECK(wanted > 0, "set_threads: {} threads", wanted);
  count() = wanted;
}

}  // namespace bs
