// Convolutions of channels-last images, forward and both gradients. Work counted: 2 N P Q K C R S
// FLOP a pass; bytes: x, y and the weight once.
#include <bs/bench/record.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/random.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <sstream>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_conv [options]\n"
    "  --network NAME             whose layers: resnet50, or example, the image classifier's\n"
    "  --batch N                  images; 4 of resnet50, 64 on a GPU and of the example\n"
    "  --cases C:H:K:R:STRIDE[:TIMES],...\n"
    "                             channels, square images, filters, size, stride, and how often a\n"
    "                             step of training has it; the network's\n"
    "  --block B --densities .5,. block-sparse weights, of cases whose channels are multiples\n";

/// The convolutions of ResNet-50 (He et al., 2015; the 3x3 ones stride), 53 in all.
constexpr const char* resnet50[] = {
    "3:224:64:7:2:1",    "64:56:64:1:1:1",    "64:56:64:3:1:3",    "64:56:256:1:1:4",
    "256:56:64:1:1:2",   "256:56:128:1:1:1",  "128:56:128:3:2:1",  "256:56:512:1:2:1",
    "512:28:128:1:1:3",  "128:28:128:3:1:3",  "128:28:512:1:1:4",  "512:28:256:1:1:1",
    "256:28:256:3:2:1",  "512:28:1024:1:2:1", "1024:14:256:1:1:5", "256:14:256:3:1:5",
    "256:14:1024:1:1:6", "1024:14:512:1:1:1", "512:14:512:3:2:1",  "1024:14:2048:1:2:1",
    "2048:7:512:1:1:2",  "512:7:512:3:1:2",   "512:7:2048:1:1:3"};
/// Of examples/image_classifier, a ResNet-8.
constexpr const char* example[] = {"1:20:16:3:1:1",  "16:20:16:3:1:2", "16:20:32:3:2:1",
                                   "32:10:32:3:1:1", "16:20:32:1:2:1", "32:10:64:3:2:1",
                                   "64:5:64:3:1:1",  "32:10:64:1:2:1"};

struct Case {
  int64_t n = 0, c = 0, h = 0, k = 0, r = 0, stride = 0, times = 1;
  Conv2dOptions options() const {
    const int64_t pad = r / 2;
    return {.stride = {stride, stride}, .padding = {pad, pad, pad, pad}};
  }
};

Case parse(const std::string& text, int64_t batch) {
  Case c{.n = batch};
  char colon[4] = {};
  std::istringstream in(text);
  in >> c.c >> colon[0] >> c.h >> colon[1] >> c.k >> colon[2] >> c.r >> colon[3] >> c.stride;
  BS_CHECK(in && c.stride > 0, "bench_conv: {} is not C:H:K:R:STRIDE[:TIMES]", text);
  if (char more = 0; in >> more) in >> c.times;
  return c;
}

Tensor normal(const Shape& shape, double deviation, const bench::Settings& s) {
  return cast(mul(randn(shape, f32, s.device), deviation), s.dtype);
}

Tensor doubles(const Tensor& x) { return cast(contiguous(x).to(Device::cpu()), f64); }

/// One image against the CPU in f64, which the tests hold to naive loops.
void check(const char* what, const Tensor& actual, const Tensor& expected, DType dtype) {
  const Tensor a = doubles(actual);
  double error = 0, size = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    error += std::pow(a.data<double>()[i] - expected.data<double>()[i], 2);
    size += std::pow(expected.data<double>()[i], 2);
  }
  const double allowed = dtype == f64 ? 1e-13 : dtype == f32 ? 1e-5 : dtype == f16 ? .005 : .02;
  BS_CHECK(std::sqrt(error) <= allowed * std::sqrt(size), "bench_conv: {} is off by {}", what,
           std::sqrt(error / size));
}

/// A convolution's passes, and what they return.
struct Passes {
  std::function<Tensor()> forward, backward_x, backward_w;
};

Json::Object cell_of(const Case& c, const bench::Settings& s) {
  return {{"batch", c.n},  {"channels", c.c},    {"image", c.h},     {"filters", c.k},
          {"kernel", c.r}, {"stride", c.stride}, {"times", c.times}, {"dtype", to_string(s.dtype)}};
}

void measure(const Passes& passes, const Json::Object& cell, double flops, double bytes,
             const bench::Settings& s, bench::Record& record) {
  Tensor y, dx, dw;
  const auto timings =
      bench::interleave(s.device,
                        {[&] { y = passes.forward(); }, [&] { dx = passes.backward_x(); },
                         [&] { dw = passes.backward_w(); }},
                        s.measure);
  const char* names[] = {"forward", "backward_x", "backward_w"};
  for (size_t i = 0; i < 3; ++i)
    record.add(
        {.cell = cell, .what = names[i], .time = timings[i], .flops = flops, .bytes = bytes});
}

void run(const Case& c, const bench::Settings& s, bench::Record& record) {
  const Conv2dOptions o = c.options();
  const double scale = 1 / std::sqrt(static_cast<double>(c.c * c.r * c.r));
  const Tensor x = channels_last(normal({c.n, c.c, c.h, c.h}, 1, s));
  const Tensor w = normal({c.k, c.c, c.r, c.r}, scale, s);
  const Tensor y = conv2d(x, w, o);
  const Tensor dy = channels_last(normal(y.shape(), 1, s));
  const Tensor one = x.slice(0, 0, 1), done = dy.slice(0, 0, 1);
  const Tensor in = doubles(one), din = doubles(done), weight = doubles(w);
  check("y", conv2d(one, w, o), contiguous(conv2d(in, weight, o)), s.dtype);
  check("dx", conv2d_backward_x(done, w, one.shape(), o),
        contiguous(conv2d_backward_x(din, weight, in.shape(), o)), s.dtype);
  check("dw", conv2d_backward_w(one, done, w.shape(), o), conv2d_backward_w(in, din, w.shape(), o),
        s.dtype);
  const double flops = 2 * static_cast<double>(y.numel()) * static_cast<double>(c.c * c.r * c.r);
  const double bytes = static_cast<double>(x.bytes() + y.bytes() + w.bytes());
  measure({[&] { return conv2d(x, w, o); }, [&] { return conv2d_backward_x(dy, w, x.shape(), o); },
           [&] { return conv2d_backward_w(x, dy, w.shape(), o); }},
          cell_of(c, s), flops, bytes, s, record);
}

/// Blocks at random places.
void run_blocks(const Case& c, int block, double density, const bench::Settings& s,
                bench::Record& record) {
  const Conv2dOptions o = c.options();
  const Extent2 kernel{c.r, c.r};
  const Tensor kept = lt(rand({c.k / block, c.c / block, c.r, c.r}, f32, Device::cpu()), density);
  const LayoutPtr layout = conv2d_layout(kept, block);
  if (layout->nnz() == 0) return;
  const double scale = 1 / std::sqrt(static_cast<double>(c.c * c.r * c.r) * density);
  const SparseTensor w{layout, normal({layout->nnz(), block, block}, scale, s)};
  const Tensor x = channels_last(normal({c.n, c.c, c.h, c.h}, 1, s));
  const Tensor y = block_sparse_conv2d(x, w, kernel, o);
  const Tensor dy = channels_last(normal(y.shape(), 1, s));
  const Tensor one = x.slice(0, 0, 1), done = dy.slice(0, 0, 1);
  const Tensor in = doubles(one), din = doubles(done);
  const SparseTensor weight{layout, doubles(w.values)};
  check("y", block_sparse_conv2d(one, w, kernel, o),
        contiguous(block_sparse_conv2d(in, weight, kernel, o)), s.dtype);
  check("dx", block_sparse_conv2d_backward_x(done, w, kernel, one.shape(), o),
        contiguous(block_sparse_conv2d_backward_x(din, weight, kernel, in.shape(), o)), s.dtype);
  check("dw", block_sparse_conv2d_backward_w(one, done, layout, kernel, o),
        block_sparse_conv2d_backward_w(in, din, layout, kernel, o), s.dtype);
  Json::Object cell = cell_of(c, s);
  cell.push_back({"block", block});
  cell.push_back({"density", layout->density()});
  const double pixels = static_cast<double>(y.numel()) / static_cast<double>(c.k);
  const double bytes = static_cast<double>(x.bytes() + y.bytes() + w.values.bytes());
  measure({[&] { return block_sparse_conv2d(x, w, kernel, o); },
           [&] { return block_sparse_conv2d_backward_x(dy, w, kernel, x.shape(), o); },
           [&] { return block_sparse_conv2d_backward_w(x, dy, layout, kernel, o); }},
          cell, 2 * pixels * static_cast<double>(w.values.numel()), bytes, s, record);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::string network = "resnet50";
  arguments.read("--network", network);
  BS_CHECK(network == "resnet50" || network == "example", "bench_conv: no network {}", network);
  int batch = settings.device.is_cuda() || network == "example" ? 64 : 4;
  std::vector<std::string> cases(std::begin(resnet50), std::end(resnet50));
  if (network == "example") cases.assign(std::begin(example), std::end(example));
  arguments.read("--batch", batch);
  arguments.read("--cases", cases);
  int block = 0;
  std::vector<double> densities = {1, .5, .25, .1};
  arguments.read("--block", block);
  arguments.read("--densities", densities);
  arguments.finish();
  bench::Record record("conv", settings);
  for (const std::string& text : cases) {
    const Case c = parse(text, batch);
    if (block == 0) run(c, settings, record);
    if (block == 0 || c.c % block != 0 || c.k % block != 0) continue;
    for (const double density : densities) run_blocks(c, block, density, settings, record);
  }
  record.write();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
