#include <bs/kernels/math_mode.h>

#include <utility>

namespace bs {

namespace {

bool& allowed() {
  thread_local bool value = false;
  return value;
}

}  // namespace

TF32Guard::TF32Guard(bool allow) : previous_(std::exchange(allowed(), allow)) {}
TF32Guard::~TF32Guard() { allowed() = previous_; }

bool tf32_allowed() { return allowed(); }

}  // namespace bs
