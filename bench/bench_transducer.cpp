// The transducer's loss and joint, and CTC, against the bytes that have to be moved: logits are
// read once forward, read once and written once backward; the joint's result is written once
// forward and read once backward. The rate is that of those bytes, its share that of a copy in the
// same run.
#include <bs/bench/record.h>
#include <bs/kernels/ctc_loss.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/kernels/transducer_joint.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_transducer [options]\n"
    "  --loss BxTxUxV,...      utterances, frames, labels, classes\n"
    "  --joint BxTxUxN,...     utterances, frames, labels, columns\n"
    "  --ctc BxTxUxV,...       utterances, frames, labels, classes\n"
    "  --dropout P             of the joint once more, default 0.1\n";

/// Utterances, frames, labels, and classes or columns.
struct Problem {
  int64_t batch, frames, labels, n;

  Json::Object cell(const char* work, DType dtype, double dropout = 0) const {
    return {{"work", work}, {"batch", batch},     {"frames", frames},         {"labels", labels},
            {"n", n},       {"dropout", dropout}, {"dtype", to_string(dtype)}};
  }
};

Problem problem(const std::string& text) {
  Problem p{};
  char x = 0;
  std::istringstream in(text);
  in >> p.batch >> x >> p.frames >> x >> p.labels >> x >> p.n;
  BS_CHECK(!in.fail() && p.batch > 0 && p.frames > 0 && p.labels >= 0 && p.n > 1,
           "bench_transducer: {} is not BxTxUxV", text);
  return p;
}

std::vector<double> host(const Tensor& x) {
  const Tensor t = x.to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  visit_floating("bench_transducer", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (double& v : out) v = static_cast<double>(*from++);
  });
  return out;
}

double log_add(double a, double b) {
  const double top = std::max(a, b);
  return std::isinf(top) ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
}

/// A transducer's batch with all lengths full.
struct Inputs {
  Tensor logits, targets, frames, labels;

  Inputs(const Problem& p, DType dtype, Device device)
      : logits(randn({p.batch, p.frames, p.labels + 1, p.n}, dtype, device)),
        targets(randint(0, p.n - 1, {p.batch, p.labels}, i32, device)),
        frames(full({p.batch}, static_cast<double>(p.frames), i32, device)),
        labels(full({p.batch}, static_cast<double>(p.labels), i32, device)) {}
};

/// Loss and gradient of one utterance against sums over paths in double, of logarithms.
void check_loss(const bench::Settings& o, Problem p) {
  p = {1, std::min<int64_t>(p.frames, 24), std::min<int64_t>(p.labels, 12), p.n};
  const Inputs in(p, o.dtype, o.device);
  const TransducerLossResult result = transducer_loss(in.logits, in.targets, in.frames, in.labels);
  const Tensor one = full({}, 1, result.loss.dtype(), o.device);
  const auto gradient = host(transducer_loss_backward(in.logits, in.targets, result, one));
  const auto x = host(in.logits);
  std::vector<int64_t> targets;
  const Tensor on_host = in.targets.to(Device::cpu());
  for (int64_t u = 0; u < p.labels; ++u) targets.push_back(on_host.data<int32_t>()[u]);
  const auto columns = static_cast<size_t>(p.labels + 1);
  const auto n = static_cast<size_t>(p.n);
  const size_t cells = static_cast<size_t>(p.frames) * columns;
  const double never = -std::numeric_limits<double>::infinity();
  std::vector<double> lse(cells), alpha(cells, never), beta(cells + columns, never);
  const auto log_p = [&](size_t c, size_t k) { return x[c * n + k] - lse[c]; };
  const auto label = [&](size_t c) { return static_cast<size_t>(targets[c % columns]); };
  for (size_t c = 0; c < cells; ++c) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) sum += std::exp(x[c * n + k]);
    lse[c] = std::log(sum);
    if (c == 0) alpha[c] = 0;
    if (c >= columns) alpha[c] = alpha[c - columns] + log_p(c - columns, n - 1);
    if (c % columns > 0) alpha[c] = log_add(alpha[c], alpha[c - 1] + log_p(c - 1, label(c - 1)));
  }
  beta[cells + columns - 1] = 0;
  for (size_t c = cells; c-- > 0;) {
    beta[c] = beta[c + columns] + log_p(c, n - 1);
    if (c % columns + 1 < columns) beta[c] = log_add(beta[c], beta[c + 1] + log_p(c, label(c)));
  }
  const double epsilon = o.dtype == f64   ? 1e-13
                         : o.dtype == f32 ? 2e-6
                         : o.dtype == f16 ? 1e-3
                                          : 8e-3;
  const double loss = result.loss.item();
  BS_CHECK(std::abs(loss + beta[0]) <= std::max(epsilon * 1e-2, 2e-6) * -beta[0],
           "bench_transducer: the loss is {}, not {}", loss, -beta[0]);
  for (size_t c = 0; c < cells; ++c)
    for (size_t k = 0; k < n; k += k + 7 < n - 1 ? 7 : 1) {
      const bool last = c % columns + 1 == columns;
      double expected = std::exp(alpha[c] + beta[c] - beta[0] + log_p(c, k));
      if (k == n - 1) expected -= std::exp(alpha[c] + log_p(c, k) + beta[c + columns] - beta[0]);
      if (!last && k == label(c))
        expected -= std::exp(alpha[c] + log_p(c, k) + beta[c + 1] - beta[0]);
      BS_CHECK(std::abs(gradient[c * n + k] - expected) <= epsilon,
               "bench_transducer: the gradient of class {} of cell {} is {}, not {}", k, c,
               gradient[c * n + k], expected);
    }
}

/// Times the works of one cell in turns and puts them down; `bytes` of each.
void add(bench::Record& record, const bench::Settings& s, const Json::Object& cell,
         const std::vector<std::string>& whats, const std::vector<bench::Work>& works,
         const std::vector<double>& bytes) {
  const auto timings = bench::interleave(s.device, works, s.measure);
  for (size_t i = 0; i < works.size(); ++i)
    record.add({.cell = cell, .what = whats[i], .time = timings[i], .bytes = bytes[i]});
}

void loss(const Problem& p, const bench::Settings& s, bench::Record& record) {
  check_loss(s, p);
  const Inputs in(p, s.dtype, s.device);
  const auto bytes = static_cast<double>(in.logits.bytes());
  const auto forward = [&] { return transducer_loss(in.logits, in.targets, in.frames, in.labels); };
  const TransducerLossResult result = forward();
  const Tensor one = full({}, 1, result.loss.dtype(), s.device);
  const auto backward = [&](const TransducerLossResult& of) {
    transducer_loss_backward(in.logits, in.targets, of, one);
  };
  add(record, s, p.cell("loss", s.dtype), {"forward", "backward", "both"},
      {[&] { forward(); }, [&] { backward(result); }, [&] { backward(forward()); }},
      {bytes, 2 * bytes, 3 * bytes});
}

void joint(const Problem& p, double dropout, const bench::Settings& s, bench::Record& record) {
  const auto random = [&](int64_t rows) { return randn({p.batch, rows, p.n}, s.dtype, s.device); };
  const Tensor f = random(p.frames);
  const Tensor g = random(p.labels + 1);
  const TransducerJointOptions options = {.dropout = dropout};
  Tensor kept;
  const auto forward = [&] { return transducer_joint(f, g, {}, {}, options, {1, 2}, &kept); };
  const Tensor h = forward();
  const auto ends = static_cast<double>(f.bytes() + g.bytes());
  const auto bytes = static_cast<double>(h.bytes());
  add(record, s, p.cell("joint", s.dtype, dropout), {"forward", "backward"},
      {[&] { forward(); }, [&] { transducer_joint_backward(f, g, h, {}, {}, options, kept); }},
      {bytes + ends, bytes + 2 * ends});
}

void ctc(const Problem& p, const bench::Settings& s, bench::Record& record) {
  const Tensor x = randn({p.frames, p.batch, p.n}, s.dtype, s.device);
  const Tensor targets = randint(1, p.n, {p.batch, p.labels}, i32, s.device);
  const Tensor inputs = full({p.batch}, static_cast<double>(p.frames), i32, s.device);
  const Tensor lengths = full({p.batch}, static_cast<double>(p.labels), i32, s.device);
  const CtcLossOptions fused = {.logits = true};
  const auto forward = [&] { return ctc_loss(x, targets, inputs, lengths, fused); };
  const CtcLossResult result = forward();
  const Tensor one = full({}, 1, result.loss.dtype(), s.device);
  const auto backward = [&](const CtcLossResult& of) {
    ctc_loss_backward(x, inputs, lengths, of, one, fused);
  };
  const auto bytes = static_cast<double>(x.bytes());
  add(record, s, p.cell("ctc", s.dtype), {"forward", "backward", "both"},
      {[&] { forward(); }, [&] { backward(result); }, [&] { backward(forward()); }},
      {bytes, 2 * bytes, 3 * bytes});
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> losses = {"8x200x50x1024", "16x400x100x1024", "32x400x100x128"};
  std::vector<std::string> joints = {"16x400x80x640"};
  std::vector<std::string> ctcs = {"32x1000x150x128"};
  double dropout = 0.1;
  arguments.read("--loss", losses);
  arguments.read("--joint", joints);
  arguments.read("--ctc", ctcs);
  arguments.read("--dropout", dropout);
  arguments.finish();
  bench::Record record("transducer", settings);
  for (const std::string& text : losses) loss(problem(text), settings, record);
  for (const std::string& text : joints)
    for (const double p : {0.0, dropout}) joint(problem(text), p, settings, record);
  for (const std::string& text : ctcs) ctc(problem(text), settings, record);
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
