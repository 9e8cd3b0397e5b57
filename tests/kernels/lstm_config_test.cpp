#include <bs/kernels/cuda/lstm/lstm_config.h>
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

TEST_CASE("lstm: the persistent kernels take what fits on chip") {
  const LstmQuery fits{.dtype = bs::bf16, .steps = 100, .batch = 32, .cells = 1024};
  CHECK(lstm_algorithm(fits) == LstmAlgorithm::persistent);
  const auto changed = [&](auto change) {
    LstmQuery q = fits;
    change(q);
    return lstm_algorithm(q);
  };
  for (const int64_t cells : {128, 256, 512, 768, 1536, 2048})
    CHECK(changed([&](LstmQuery& q) { q.cells = cells; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.dtype = bs::f16; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.capturing = true; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.directions = 2; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.batch = 128; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.batch = 129; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.cells = 1152; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.cells = 1000; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.dtype = bs::f32; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.zoneout = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.projects = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.sparse = true; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.aligned = false; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.steps = 1; }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) { q.backward = true; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.capability = 80; }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) {
          q.backward = true;
          q.capability = 80;
        }) == LstmAlgorithm::steps);
  CHECK(changed([](LstmQuery& q) {
          q.cells = 2048;
          q.multiprocessors = 108;
        }) == LstmAlgorithm::steps);
}

TEST_CASE("lstm: directions and groups of sequences share a GPU while each CTA gets an SM") {
  const auto division = [](int64_t cells, int64_t batch, int directions = 1, int sms = 132,
                           bool backward = false) {
    return lstm_division({.dtype = bs::bf16,
                          .steps = 100,
                          .batch = batch,
                          .cells = cells,
                          .directions = directions,
                          .backward = backward,
                          .multiprocessors = sms});
  };
  for (const int64_t cells : {128, 256, 512, 768, 1024, 1536, 2048})
    for (const int64_t batch : {1, 16, 17, 32, 33, 64, 100, 128})
      for (const int directions : {1, 2})
        for (const int sms : {84, 108, 132, 144}) {
          const LstmDivision d = division(cells, batch, directions, sms);
          if (d.blocks == 0) continue;
          CHECK(d.ctas * 8 * d.blocks == cells);
          CHECK(d.ctas * d.directions * d.splits <= sms);
          CHECK(int64_t{d.rows} * d.splits * d.groups >= batch);
          CHECK(int64_t{d.rows} * d.splits * (d.groups - 1) < batch);
        }
  CHECK(division(512, 64).splits == 2);
  CHECK(division(512, 32).rows == 16);
  CHECK(division(1024, 64).splits == 2);
  CHECK(division(1024, 128).groups == 2);
  CHECK(division(1024, 32).blocks == 1);
  CHECK(division(1024, 32, 1, 108).blocks == 2);
  for (const int64_t cells : {128, 512, 768, 1024}) CHECK(division(cells, 8, 2).directions == 2);
  CHECK(division(2048, 8, 2).directions == 1);
  CHECK(division(2048, 32, 1, 132, true).rows == 16);
}

TEST_CASE("lstm: a plan asks for no more than the machine has") {
  int persistent = 0;
  for (const int64_t cells : {128, 256, 512, 768, 1024, 1536, 2048})
    for (const int64_t batch : {1, 16, 17, 32, 64, 128})
      for (const int directions : {1, 2})
        for (int sms = 82; sms <= 170; ++sms)
          for (const int64_t kib : {99, 163, 227})
            for (const bool backward : {false, true}) {
              const LstmQuery q{.dtype = bs::bf16,
                                .steps = 100,
                                .batch = batch,
                                .cells = cells,
                                .directions = directions,
                                .backward = backward,
                                .known = true,
                                .multiprocessors = sms,
                                .shared_bytes = kib * 1024,
                                .pairs = sms / 2 - 1};
              if (lstm_algorithm(q) != LstmAlgorithm::persistent) {
                CHECK(lstm_algorithm(q) == LstmAlgorithm::graph);
                continue;
              }
              ++persistent;
              const LstmDivision d = lstm_division(q);
              CAPTURE(cells);
              CAPTURE(sms);
              CHECK(lstm_shared_bytes(backward, cells, d.blocks, d.rows) <= kib * 1024);
              CHECK(d.ctas * d.directions * d.splits <= (backward ? sms / 2 * 2 - 2 : sms));
              CHECK(d.ctas * 8 * d.blocks == cells);
              CHECK(int64_t{d.rows} * d.splits * d.groups >= batch);
            }
  CHECK(persistent > 0);
}

TEST_CASE("lstm: what a machine lacks leaves the steps to graphs") {
  const LstmQuery hopper{.dtype = bs::f16, .steps = 100, .batch = 32, .cells = 1024, .known = true};
  const auto changed = [&](auto change) {
    LstmQuery q = hopper;
    change(q);
    return lstm_algorithm(q);
  };
  const auto small = [](LstmQuery& q) {
    q.multiprocessors = 84;
    q.shared_bytes = 99 * 1024;
  };
  CHECK(changed([](LstmQuery&) {}) == LstmAlgorithm::persistent);
  CHECK(changed(small) == LstmAlgorithm::graph);
  CHECK(changed([&](LstmQuery& q) {
          small(q);
          q.cells = 768;
        }) == LstmAlgorithm::persistent);
  CHECK(changed([&](LstmQuery& q) {
          small(q);
          q.multiprocessors = 128;  // one block of cells a CTA: registers hold its weights
        }) == LstmAlgorithm::persistent);
  CHECK(changed([](LstmQuery& q) { q.cooperative = false; }) == LstmAlgorithm::graph);
  CHECK(changed([](LstmQuery& q) { q.capability = 75; }) == LstmAlgorithm::graph);
  const auto backward = [](LstmQuery& q) { q.backward = true; };
  CHECK(changed(backward) == LstmAlgorithm::persistent);
  CHECK(changed([&](LstmQuery& q) {
          backward(q);
          q.pairs = 0;
        }) == LstmAlgorithm::graph);
  // A GPU without clusters of its own code: the driver brought it code for sm_80.
  CHECK(changed([&](LstmQuery& q) {
          backward(q);
          q.capability = 80;
        }) == LstmAlgorithm::graph);
}

TEST_CASE("lstm: layers run as a wavefront where two fit side by side and pieces are long") {
  const auto wavefront = [](int64_t cells, int64_t batch, int64_t steps,
                            bs::DType dtype = bs::bf16) {
    return lstm_wavefront({.dtype = dtype, .steps = steps, .batch = batch, .cells = cells});
  };
  CHECK(wavefront(1024, 32, 512) == 64);
  CHECK(wavefront(512, 8, 2000) == 250);
  CHECK(wavefront(1024, 32, 192) == 64);
  CHECK(wavefront(1024, 32, 191) == 191);
  CHECK(wavefront(1024, 33, 512) == 512);
  CHECK(wavefront(1536, 8, 512) == 512);
  CHECK(wavefront(1024, 32, 512, bs::f32) == 512);
}

TEST_CASE("lstm: chunks get shorter, each dividing the one before") {
  for (size_t i = 1; i < std::size(lstm_chunks); ++i) {
    CHECK(lstm_chunks[i] < lstm_chunks[i - 1]);
    CHECK(lstm_chunks[i - 1] % lstm_chunks[i] == 0);
  }
}
