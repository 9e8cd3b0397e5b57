#include <bs/kernels/cuda/lstm_config.h>
#include <doctest/doctest.h>

#include <iterator>

using namespace bs::cuda;

TEST_CASE("lstm: graphs run shapes that come again, of a chunk of steps and more") {
  LstmQuery q{.steps = 512, .known = true};
  CHECK(lstm_algorithm(q) == LstmAlgorithm::graph);
  q.steps = 7;
  CHECK(lstm_algorithm(q) == LstmAlgorithm::steps);
  q.steps = 8;
  CHECK(lstm_algorithm(q) == LstmAlgorithm::graph);
  q.known = false;
  CHECK(lstm_algorithm(q) == LstmAlgorithm::steps);
  q = {.steps = 512, .sparse = true, .known = true};
  CHECK(lstm_algorithm(q) == LstmAlgorithm::steps);
  q = {.steps = 512, .capturing = true, .known = true};
  CHECK(lstm_algorithm(q) == LstmAlgorithm::steps);
}

TEST_CASE("lstm: the persistent kernel takes what fits registers") {
  const LstmQuery fits{.dtype = bs::bf16, .steps = 100, .batch = 32, .cells = 1024};
  CHECK(lstm_algorithm(fits) == LstmAlgorithm::persistent);
  const auto changed = [&](auto change) {
    LstmQuery q = fits;
    change(q);
    return lstm_algorithm(q);
  };
  CHECK(changed([](LstmQuery& q) { q.cells = 512; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.dtype = bs::f16; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.capturing = true; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.cells = 1152; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.cells = 1000; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.batch = 65; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.dtype = bs::f32; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.variants = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.projects = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.sparse = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.backward = true; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) {
          q.backward = true;
          q.batch = 33;
        }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) {
          q.backward = true;
          q.capability = 80;
        }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.aligned = false; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.multiprocessors = 108; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.steps = 1; }) == LstmAlgorithm::steps);
}

TEST_CASE("lstm: directions share a GPU while each CTA gets an SM") {
  CHECK(lstm_persistent_directions(512, 132) == 2);
  CHECK(lstm_persistent_directions(768, 132) == 1);
  CHECK(lstm_persistent_directions(128, 132) == 2);
  CHECK(lstm_persistent_directions(1024, 132) == 1);
}

TEST_CASE("lstm: chunks get shorter, each dividing the one before") {
  for (size_t i = 1; i < std::size(lstm_chunks); ++i) {
    CHECK(lstm_chunks[i] < lstm_chunks[i - 1]);
    CHECK(lstm_chunks[i - 1] % lstm_chunks[i] == 0);
  }
}
