#include <bs/kernels/cuda/transducer/ctc_plan.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("ctc_loss: labels that fit the shared memory of a block") {
  constexpr int64_t hopper = 227 * 1024, ampere = 163 * 1024, small = 99 * 1024;
  for (const int64_t memory : {hopper, ampere, small}) CHECK(ctc_most_labels(4, memory) == 2047);
  CHECK(ctc_most_labels(8, hopper) == 2047);
  CHECK(ctc_most_labels(8, ampere) == 2047);
  CHECK(ctc_most_labels(8, small) == 1071);
  for (const int64_t word : {4, 8})
    for (const int64_t memory : {hopper, ampere, small})
      for (int64_t labels = 0; labels <= ctc_most_labels(word, memory); ++labels) {
        const int64_t states = 2 * labels + 1;
        const CtcPlan plan = ctc_plan(states, word, memory);
        REQUIRE(plan.shared_bytes(states, word) <= memory);
        REQUIRE(plan.each * plan.threads >= states);
        REQUIRE((plan.each == 1 || plan.each == CtcPlan::most_each));
        REQUIRE((plan.ahead == 1 || plan.ahead == CtcPlan::far_ahead(plan.each, word)));
      }
}

TEST_CASE("ctc_loss: probabilities are far ahead where memory has room for them") {
  constexpr int64_t hopper = 227 * 1024, small = 99 * 1024;
  for (const int64_t states : {1, 33, 1023, 2047, 4095})
    for (const int64_t word : {4, 8}) {
      const CtcPlan plan = ctc_plan(states, word, hopper);
      CHECK(plan.ahead == CtcPlan::far_ahead(plan.each, word));
    }
  CHECK(ctc_plan(1023, 8, small).ahead == 8);
  CHECK(ctc_plan(2 * 559 + 1, 8, small).ahead == 2);
  CHECK(ctc_plan(2 * 560 + 1, 8, small).ahead == 1);
  CHECK(ctc_plan(2 * 1119 + 1, 4, small).ahead == 4);
  CHECK(ctc_plan(2 * 1120 + 1, 4, small).ahead == 1);
}
