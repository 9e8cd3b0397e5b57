#include <bs/lib/check.h>
#include <bs/nn/optim/lr_schedule.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using optim::Decay;
using optim::LearningRateSchedule;

TEST_CASE("schedule: warm-up, then half a cosine") {
  const LearningRateSchedule s{.highest = 1, .lowest = 0.1, .warmup = 4, .steps = 14};
  CHECK(s.at(0) == doctest::Approx(0.25));
  CHECK(s.at(3) == doctest::Approx(1));
  CHECK(s.at(4) == doctest::Approx(1));
  CHECK(s.at(9) == doctest::Approx(0.55));
  CHECK(s.at(14) == doctest::Approx(0.1));
  CHECK(s.at(1000) == doctest::Approx(0.1));
  for (int step = 4; step < 14; ++step) CHECK(s.at(step + 1) < s.at(step));
}

TEST_CASE("schedule: linear and constant") {
  const LearningRateSchedule linear{
      .highest = 1, .lowest = 0.5, .warmup = 2, .steps = 12, .decay = Decay::linear};
  CHECK(linear.at(2) == doctest::Approx(1));
  CHECK(linear.at(7) == doctest::Approx(0.75));
  CHECK(linear.at(12) == doctest::Approx(0.5));
  const LearningRateSchedule constant{
      .highest = 3, .lowest = 1, .warmup = 2, .steps = 12, .decay = Decay::constant};
  CHECK(constant.at(0) == doctest::Approx(1.5));
  CHECK(constant.at(2) == 3);
  CHECK(constant.at(1000) == 3);
}

TEST_CASE("schedule: no warm-up, and nothing but warm-up") {
  CHECK(LearningRateSchedule{.highest = 2, .steps = 10}.at(0) == 2);
  const LearningRateSchedule only{.highest = 2, .lowest = 1, .warmup = 3, .steps = 3};
  CHECK(only.at(2) == 2);
  CHECK(only.at(3) == 1);
}

TEST_CASE("schedule: warm-up, hold, decay by half-lives") {
  const LearningRateSchedule s{.highest = 4,
                               .lowest = 0.4,
                               .warmup = 2,
                               .steps = 2,
                               .decay = Decay::exponential,
                               .hold = 3,
                               .half_life = 5};
  CHECK(s.at(0) == 2);
  CHECK(s.at(1) == 4);
  CHECK(s.at(5) == 4);
  CHECK(s.at(10) == doctest::Approx(2));
  CHECK(s.at(15) == doctest::Approx(1));
  CHECK(s.at(1000) == 0.4);
  const LearningRateSchedule held{.highest = 1, .warmup = 2, .steps = 12, .hold = 4};
  CHECK(held.at(5) == 1);
  CHECK(held.at(6) == 1);
  CHECK(held.at(9) == doctest::Approx(0.5));
  CHECK(held.at(12) == doctest::Approx(0));
  CHECK_THROWS_WITH_AS((LearningRateSchedule{.warmup = 5, .steps = 8, .hold = 4}.at(0)),
                       "schedule: a warm-up of 5 and 4 steps held out of 8", Error);
  CHECK_THROWS_WITH_AS((LearningRateSchedule{.decay = Decay::exponential}.at(0)),
                       "schedule: a half-life of 0 steps", Error);
}

TEST_CASE("schedule: contradictions and names") {
  CHECK_THROWS_WITH_AS(LearningRateSchedule{}.at(-1), "schedule: step -1 is negative", Error);
  CHECK_THROWS_WITH_AS((LearningRateSchedule{.warmup = 5, .steps = 4}.at(0)),
                       "schedule: a warm-up of 5 steps out of 4", Error);
  for (Decay decay : {Decay::cosine, Decay::linear, Decay::constant, Decay::exponential})
    CHECK(optim::parse_decay(to_string(decay)) == decay);
  CHECK_THROWS_WITH_AS(optim::parse_decay("step"),
                       "schedule: \"step\" is none of cosine, linear, constant and exponential",
                       Error);
}

TEST_CASE("schedule: extents as large as numbers get") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  CHECK_THROWS_AS((LearningRateSchedule{.warmup = 10, .steps = 100, .hold = most}.at(50)), Error);
  const LearningRateSchedule held{.highest = 3,
                                  .warmup = 10,
                                  .steps = 100,
                                  .decay = Decay::exponential,
                                  .hold = most,
                                  .half_life = 1};
  CHECK(held.at(50) == 3);
  CHECK(held.at(most) == 3);
  const LearningRateSchedule last{.highest = 3, .lowest = 1, .steps = most, .hold = most - 2};
  CHECK(last.at(most - 2) == 3);
  CHECK(last.at(most - 1) == doctest::Approx(2));
  CHECK(last.at(most) == 1);
}
