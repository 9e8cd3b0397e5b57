// The transducer's loss and joint, and CTC, against the bytes that have to be moved: logits are
// read once forward, read once and written once backward; the joint's result is written once
// forward and read once backward. The rate is that of those bytes, its share that of a copy in the
// same run.
#include <bs/bench/measure.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/ctc_loss.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/file.h>
#include <bs/lib/json.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

using namespace bs;

namespace {

/// Utterances, frames, labels, and classes or columns.
struct Problem {
  int64_t batch, frames, labels, n;
};

struct Options {
  Device device;
  DType dtype = f32;
  std::vector<Problem> loss = {{8, 200, 50, 1024}, {16, 400, 100, 1024}, {32, 400, 100, 128}};
  std::vector<Problem> joint = {{16, 400, 80, 640}};
  std::vector<Problem> ctc = {{32, 1000, 150, 128}};
  double dropout = 0.1;
  bench::MeasureOptions measure;
  std::string json;
};

constexpr const char* help =
    "bench_transducer [options]\n"
    "  --device cpu|cuda[:i]   default cpu\n"
    "  --dtype f64|f32|f16|bf16\n"
    "  --loss BxTxUxV,...      default 8x200x50x1024,16x400x100x1024,32x400x100x128\n"
    "  --joint BxTxUxN,...     default 16x400x80x640\n"
    "  --ctc BxTxUxV,...       default 32x1000x150x128\n"
    "  --dropout P             of the joint's second rows, default 0.1\n"
    "  --seconds S             of measuring each cell, default 0.3\n"
    "  --json FILE             writes the table\n";

std::vector<Problem> problems(const std::string& list) {
  std::vector<Problem> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    Problem p{};
    char x = 0;
    std::stringstream sizes(item);
    sizes >> p.batch >> x >> p.frames >> x >> p.labels >> x >> p.n;
    BS_CHECK(sizes && p.batch > 0 && p.frames > 0 && p.labels >= 0 && p.n > 1,
             "bench: {} is not BxTxUxV", item);
    out.push_back(p);
  }
  return out;
}

void set(Options& o, const std::string& name, const std::string& value) {
  if (name == "--device") {
    o.device = Device::parse(value);
  } else if (name == "--dtype") {
    o.dtype = parse_dtype(value);
  } else if (name == "--loss") {
    o.loss = problems(value);
  } else if (name == "--joint") {
    o.joint = problems(value);
  } else if (name == "--ctc") {
    o.ctc = problems(value);
  } else if (name == "--dropout") {
    o.dropout = std::stod(value);
  } else if (name == "--seconds") {
    o.measure.seconds = std::stod(value);
  } else if (name == "--json") {
    o.json = value;
  } else {
    BS_THROW(Error, "bench: unknown option {}; see --help", name);
  }
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::fputs(help, stdout);
      std::exit(0);
    }
    BS_CHECK(i + 1 < argc, "bench: {} needs a value", name);
    set(o, name, argv[++i]);
  }
  return o;
}

std::vector<double> host(const Tensor& x) {
  const Tensor t = x.to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  visit_floating("bench", t.dtype(), [&]<class T>(Type<T>) {
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
void check_loss(const Options& o, Problem p) {
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
           "bench: the loss is {}, not {}", loss, -beta[0]);
  for (size_t c = 0; c < cells; ++c)
    for (size_t k = 0; k < n; k += k + 7 < n - 1 ? 7 : 1) {
      const bool last = c % columns + 1 == columns;
      double expected = std::exp(alpha[c] + beta[c] - beta[0] + log_p(c, k));
      if (k == n - 1) expected -= std::exp(alpha[c] + log_p(c, k) + beta[c + columns] - beta[0]);
      if (!last && k == label(c))
        expected -= std::exp(alpha[c] + log_p(c, k) + beta[c + 1] - beta[0]);
      BS_CHECK(std::abs(gradient[c * n + k] - expected) <= epsilon,
               "bench: the gradient of class {} of cell {} is {}, not {}", k, c,
               gradient[c * n + k], expected);
    }
}

class Table {
 public:
  explicit Table(const Options& o) : options_(o) {
    const Tensor from = randn({int64_t{1} << (o.device.is_cpu() ? 24 : 27)}, f32, o.device);
    const Tensor to = Tensor::empty_like(from);
    const auto bytes = 2 * static_cast<double>(from.bytes());
    copy_rate_ = bytes / bench::measure(
                             o.device, [&] { copy(from, to); }, o.measure)
                             .median;
    std::printf("%s on %s, a copy moves %.1f GB/s\n\n", to_string(o.dtype).c_str(),
                to_string(o.device).c_str(), 1e-9 * copy_rate_);
    std::puts(
        "work                  BxTxUxN            us (quartiles)           GB/s  floor us  x "
        "floor");
  }

  void loss(const Problem& p) {
    check_loss(options_, p);
    const Inputs in(p, options_.dtype, options_.device);
    const auto bytes = static_cast<double>(in.logits.bytes());
    const auto forward = [&] {
      return transducer_loss(in.logits, in.targets, in.frames, in.labels);
    };
    const TransducerLossResult result = forward();
    const Tensor one = full({}, 1, result.loss.dtype(), options_.device);
    add("loss forward", p, bytes, forward);
    add("loss backward", p, 2 * bytes,
        [&] { transducer_loss_backward(in.logits, in.targets, result, one); });
    add("loss both", p, 3 * bytes,
        [&] { transducer_loss_backward(in.logits, in.targets, forward(), one); });
  }

  void joint(const Problem& p, double dropout) {
    const auto random = [&](int64_t rows) {
      return randn({p.batch, rows, p.n}, options_.dtype, options_.device);
    };
    const Tensor f = random(p.frames);
    const Tensor g = random(p.labels + 1);
    const TransducerJointOptions joint = {.dropout = dropout};
    const auto forward = [&] { return transducer_joint(f, g, {}, {}, joint, {1, 2}); };
    const Tensor h = forward();
    const auto bytes = static_cast<double>(h.bytes() + f.bytes() + g.bytes());
    const std::string kind = dropout > 0 ? " + dropout" : "";
    add("joint forward" + kind, p, bytes, forward);
    add("joint backward" + kind, p, bytes + static_cast<double>(f.bytes() + g.bytes()), [&] {
      transducer_joint_backward(f, g, h, {}, {}, joint, {1, 2});
    });
  }

  void ctc(const Problem& p) {
    const Tensor x = randn({p.frames, p.batch, p.n}, options_.dtype, options_.device);
    const Tensor targets = randint(1, p.n, {p.batch, p.labels}, i32, options_.device);
    const Tensor inputs = full({p.batch}, static_cast<double>(p.frames), i32, options_.device);
    const Tensor lengths = full({p.batch}, static_cast<double>(p.labels), i32, options_.device);
    const CtcLossOptions fused = {.logits = true};
    const auto forward = [&] { return ctc_loss(x, targets, inputs, lengths, fused); };
    const CtcLossResult result = forward();
    const Tensor one = full({}, 1, result.loss.dtype(), options_.device);
    const auto bytes = static_cast<double>(x.bytes());
    add("ctc forward", p, bytes, forward);
    add("ctc backward", p, 2 * bytes,
        [&] { ctc_loss_backward(x, inputs, lengths, result, one, fused); });
  }

  void write() const {
    if (options_.json.empty()) return;
    const Json all(Json::Object{{"benchmark", "transducer"},
                                {"device", to_string(options_.device)},
                                {"dtype", to_string(options_.dtype)},
                                {"copy_bytes_per_second", copy_rate_},
                                {"rows", rows_}});
    const std::string text = all.dump() + "\n";
    AtomicFile file(options_.json);
    file.write(text.data(), text.size());
    file.commit();
  }

 private:
  template <class Work>
  void add(const std::string& name, const Problem& p, double bytes, Work work) {
    const bench::Timing time = bench::measure(
        options_.device, [&] { work(); }, options_.measure);
    const std::string size = format("{}x{}x{}x{}", p.batch, p.frames, p.labels, p.n);
    const double floor = bytes / copy_rate_;
    std::printf("%-24s %-17s %9.1f (%.1f .. %.1f) %10.1f %9.1f %8.2f\n", name.c_str(), size.c_str(),
                1e6 * time.median, 1e6 * time.low, 1e6 * time.high, 1e-9 * bytes / time.median,
                1e6 * floor, time.median / floor);
    std::fflush(stdout);
    rows_.push_back(Json::Object{{"work", name},
                                 {"size", size},
                                 {"seconds", time.median},
                                 {"low", time.low},
                                 {"high", time.high},
                                 {"floor_seconds", floor}});
  }

  const Options& options_;
  double copy_rate_ = 0;
  Json::Array rows_;
};

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  Table table(o);
  for (const Problem& p : o.loss) table.loss(p);
  for (const Problem& p : o.joint) table.joint(p, 0);
  for (const Problem& p : o.joint) table.joint(p, o.dropout);
  for (const Problem& p : o.ctc) table.ctc(p);
  table.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
