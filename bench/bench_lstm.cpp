// An LSTM over whole sequences, forward and backward. Work counted: 8 H (I + H) FLOP a step,
// sequence and layer forward, twice that backward; bytes: weights, x and y once, forward, and gates
// and states once more and the gradients backward. f32 on a GPU is measured in f32 and in TF32.
#include <bs/autograd/copy.h>
#include <bs/bench/record.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/random.h>
#include <bs/nn/lstm.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <sstream>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_lstm [options]\n"
    "  --cases T:B:I:H:L,...   steps, batch, features, cells, layers\n"
    "  --hard 0|1              hard activations\n"
    "  --bidirectional 0|1\n";

struct Case {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int layers = 1;
};

Case parse(const std::string& text) {
  Case c;
  char colon[4];
  std::istringstream in(text);
  in >> c.steps >> colon[0] >> c.batch >> colon[1] >> c.input >> colon[2] >> c.hidden >> colon[3] >>
      c.layers;
  BS_CHECK(!in.fail(), "bench_lstm: {} is not T:B:I:H:L", text);
  return c;
}

Tensor normal(const Shape& shape, const bench::Settings& s) {
  return cast(randn(shape, f32, s.device), s.dtype);
}

/// Any tensor on the host, in double.
Tensor doubles(const Tensor& x) { return cast(contiguous(x).to(Device::cpu()), f64); }

/// Follows single cells of single steps: from the state before, as it was computed, to the one
/// after.
void check_forward(const nn::LSTM& lstm, const Tensor& x, const nn::LSTM::Output& out) {
  const auto& w = lstm.weights[0];
  const Tensor wi = doubles(w.ih.data()), wh = doubles(w.hh.data());
  const Tensor bi = doubles(w.bias_ih.data()), bh = doubles(w.bias_hh.data());
  const Tensor h = doubles(out.states[0].y.data()), c = doubles(out.states[0].c.data());
  const Tensor in = doubles(x);
  const int64_t H = lstm.options().hidden, R = h.size(2), I = in.size(2);
  const bool hard = lstm.options().hard;
  const auto at = [](const Tensor& t, std::initializer_list<int64_t> index) {
    const double* p = t.data<double>();
    int axis = 0;
    for (const int64_t i : index) p += i * t.strides()[axis++];
    return *p;
  };
  const auto gate = [&](double z) {
    return hard ? std::clamp(0.5 + z / 8, 0.0, 1.0) : 1 / (1 + std::exp(-z));
  };
  const auto squash = [&](double z) { return hard ? std::clamp(z, -1.0, 1.0) : std::tanh(z); };
  // Sums of I + H products of sizes below one, and roundings of the results to the dtype.
  const double unit = x.dtype() == f64   ? 0x1p-52
                      : tf32_allowed()   ? 0x1p-10
                      : x.dtype() == f32 ? 0x1p-23
                      : x.dtype() == f16 ? 0x1p-10
                                         : 0x1p-7;
  std::mt19937_64 random(1);
  for (int sample = 0; sample < 64; ++sample) {
    const auto pick = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const int64_t t = pick(in.size(0)), b = pick(in.size(1)), u = pick(H);
    double z[4];
    for (int64_t g = 0; g < 4; ++g) {
      const int64_t row = g * H + u;
      z[g] = at(bi, {row}) + at(bh, {row});
      for (int64_t j = 0; j < I; ++j) z[g] += at(wi, {row, j}) * at(in, {t, b, j});
      for (int64_t j = 0; t > 0 && j < R; ++j) z[g] += at(wh, {row, j}) * at(h, {t - 1, b, j});
    }
    const double before = t > 0 ? at(c, {t - 1, b, u}) : 0;
    const double cell = gate(z[1]) * before + gate(z[0]) * squash(z[2]);
    const double hidden = gate(z[3]) * squash(cell);
    BS_CHECK(std::abs(cell - at(c, {t, b, u})) <= 16 * unit * std::max(1.0, std::abs(cell)) &&
                 std::abs(hidden - at(h, {t, b, u})) <= 16 * unit,
             "bench_lstm: step {}, sequence {}, cell {}: c {} and h {}, not {} and {}", t, b, u,
             at(c, {t, b, u}), at(h, {t, b, u}), cell, hidden);
  }
}

/// Gradients of a short piece against those of the CPU in f64, which the tests hold to naive loops.
void check_backward(const nn::LSTM& lstm, const bench::Settings& s) {
  const nn::LSTM::Options& o = lstm.options();
  nn::LSTM exact({.input = o.input,
                  .hidden = o.hidden,
                  .layers = o.layers,
                  .bidirectional = o.bidirectional,
                  .hard = o.hard,
                  .dtype = f64});
  const auto from = lstm.parameters(), to = exact.parameters();
  for (size_t i = 0; i < from.size(); ++i) to[i].set_data(doubles(from[i].data()));
  const Tensor x = normal({3, 2, o.input}, s);
  const Tensor dy = normal({3, 2, lstm.directions() * o.hidden}, s);
  const Variable in(x, true), in_f64(doubles(x), true);
  lstm.forward(in).y.backward(dy);
  exact.forward(in_f64).y.backward(doubles(dy));
  const auto compare = [&](const Tensor& actual, const Tensor& expected) {
    const Tensor a = doubles(actual);
    double error = 0, size = 0;
    for (int64_t i = 0; i < a.numel(); ++i) {
      const double e = expected.data<double>()[i];
      error += std::pow(a.data<double>()[i] - e, 2);
      size += e * e;
    }
    const double allowed = is_low_precision(s.dtype) ? 0.03 : tf32_allowed() ? 3e-3 : 1e-5;
    BS_CHECK(std::sqrt(error) <= allowed * std::sqrt(size), "bench_lstm: a gradient is off by {}",
             std::sqrt(error / size));
  };
  compare(in.grad(), in_f64.grad());
  for (size_t i = 0; i < from.size(); ++i) compare(from[i].grad(), to[i].grad());
  lstm.zero_grad();
}

void run(const Case& c, bool hard, bool bidirectional, const bench::Settings& s,
         bench::Record& record) {
  const nn::LSTM lstm({.input = c.input,
                       .hidden = c.hidden,
                       .layers = c.layers,
                       .bidirectional = bidirectional,
                       .hard = hard,
                       .dtype = s.dtype,
                       .device = s.device});
  const Variable x(normal({c.steps, c.batch, c.input}, s), true);
  nn::LSTM::Output out = lstm.forward(x);
  check_forward(lstm, x.data(), out);
  check_backward(lstm, s);
  const Tensor dy = normal(out.y.shape(), s);
  const auto timings = bench::interleave(
      s.device,
      {[&] { out = lstm.forward(x); }, [&] { out.y.backward(dy, {.retain_graph = true}); }},
      s.measure);
  const auto directions = static_cast<double>(lstm.directions());
  const auto rows = static_cast<double>(c.steps * c.batch);
  const auto H = static_cast<double>(c.hidden);
  double flops = 0, bytes = 0, values = 0;
  for (int l = 0; l < c.layers; ++l) {
    const double in = l == 0 ? static_cast<double>(c.input) : directions * H;
    flops += directions * rows * 8 * H * (in + H);
    bytes += directions * (4 * H * (in + H) + rows * H) + rows * in;
    values += directions * rows * 6 * H;
  }
  const auto element = static_cast<double>(size_of(s.dtype));
  const std::string dtype(tf32_allowed() ? "tf32" : to_string(s.dtype));
  const Json::Object cell = {{"steps", c.steps},   {"batch", c.batch},
                             {"input", c.input},   {"hidden", c.hidden},
                             {"layers", c.layers}, {"directions", lstm.directions()},
                             {"dtype", dtype}};
  const auto step_us = [&](const bench::Timing& t) {
    return Json::Object{{"us_per_step", t.median * 1e6 / static_cast<double>(c.steps * c.layers)}};
  };
  record.add({.cell = cell,
              .what = "forward",
              .time = timings[0],
              .flops = flops,
              .bytes = element * bytes,
              .further = step_us(timings[0])});
  record.add({.cell = cell,
              .what = "backward",
              .time = timings[1],
              .flops = 2 * flops,
              .bytes = element * (2 * bytes + values),
              .further = step_us(timings[1])});
  std::printf("  a step: %.2f us forward, %.2f us backward\n",
              timings[0].median * 1e6 / static_cast<double>(c.steps * c.layers),
              timings[1].median * 1e6 / static_cast<double>(c.steps * c.layers));
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> cases = {
      "512:32:1024:1024:1", "512:64:512:512:1",   "1000:16:768:768:1", "256:128:2048:2048:1",
      "512:8:1024:1024:1",  "512:32:1536:1536:2", "512:32:1024:1024:2"};
  if (settings.device.is_cpu()) cases = {"64:16:256:256:1", "32:32:512:512:2"};
  int hard = 0, bidirectional = 0;
  arguments.read("--cases", cases);
  arguments.read("--hard", hard);
  arguments.read("--bidirectional", bidirectional);
  arguments.finish();
  bench::Record record("lstm", settings);
  for (const std::string& text : cases) {
    run(parse(text), hard != 0, bidirectional != 0, settings, record);
    if (settings.dtype != f32 || settings.device.is_cpu()) continue;
    const TF32Guard guard;
    run(parse(text), hard != 0, bidirectional != 0, settings, record);
  }
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
