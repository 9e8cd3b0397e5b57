#include <bs/kernels/moments.h>

namespace bs {

void check_moments(const char* op, int64_t step, double beta1, double beta2) {
  BS_CHECK(step >= 1, "{}: step {} comes before the first", op, step);
  BS_CHECK(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1,
           "{}: betas {} and {} are not within [0, 1)", op, beta1, beta2);
}

void check_rates(const char* op, double rate, double eps, double decay) {
  BS_CHECK(rate >= 0 && eps >= 0 && decay >= 0,
           "{}: a rate of {}, an eps of {}, a decay of {}: none may be negative", op, rate, eps,
           decay);
}

}  // namespace bs
