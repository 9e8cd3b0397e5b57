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

TEST_CASE("lstm: chunks get shorter, each dividing the one before") {
  for (size_t i = 1; i < std::size(lstm_chunks); ++i) {
    CHECK(lstm_chunks[i] < lstm_chunks[i - 1]);
    CHECK(lstm_chunks[i - 1] % lstm_chunks[i] == 0);
  }
}
