// The rate of gemm_operation's kernels beside cuBLASLt's, on the same GPU in the same run.
#include <bs/bench/arguments.h>
#include <bs/bench/gemm_peer.h>
#include <bs/bench/record.h>
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/random.h>
#include <bs/lib/random.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_gemm [options]\n"
    "  --shapes MxNxK,...   default 512x512x512\n"
    "  --layouts nn,nt,...  t: A or B is the transpose of a row-major matrix; default nn\n"
    "  --kernels SUBSTRING  only kernels whose name contains it\n"
    "  --ours 0|1           1: without peers\n";

struct Kernel {
  std::string name;
  GemmDescription description;
  int slices = 1;
};

MathInstruction instruction(OpClass op_class, Element e, Element sum, int n,
                            MathOperation operation) {
  for (const MathInstruction& row : math_instructions())
    if (row.op_class == op_class && row.a == e && row.b == e && row.accumulator == sum &&
        row.operation == operation && (n == 0 || row.shape[1] == n))
      return row;
  BS_THROW(Error, "bench: no such instruction");
}

/// The kernels worth measuring for a dtype. Layouts are filled in later.
std::vector<Kernel> kernels_for(DType dtype) {
  std::vector<Kernel> out;
  const Element e = element_of(dtype);
  const Element sum = dtype == f64 ? Element::f64 : Element::f32;
  const auto add = [&](const std::string& name, const MathInstruction& math,
                       std::array<int, 3> tile, int stages, std::array<int, 3> warps,
                       Swizzle swizzle, std::array<int, 2> cluster = {1, 1}, bool boxes = true) {
    const int align = 16 / size_of(e);
    GemmDescription d{.tile = {tile, stages, warps, math, cluster},
                      .a = {e, MatrixLayout::row_major, align},
                      .b = {e, MatrixLayout::row_major, align},
                      .d = {e, MatrixLayout::row_major, boxes ? align : 1},
                      .epilogue = GemmEpilogue(),
                      .swizzle = swizzle};
    out.push_back({name, d});
  };
  const auto split = [&](int slices) {
    out.back().description.split_k = SplitK::parallel;
    out.back().slices = slices;
  };
  const auto plain = MathOperation::multiply_add;
  if (size_of(e) == 2) {
    const auto wide = [&](int n) { return instruction(OpClass::warpgroup, e, sum, n, plain); };
    using enum Swizzle;
    add("wgmma 128x256 c2x1", wide(256), {128, 256, 64}, 4, {8, 1, 1}, identity8, {2, 1});
    add("wgmma 128x256 c1 nobox", wide(256), {128, 256, 64}, 4, {8, 1, 1}, identity8, {1, 1},
        false);
    add("wgmma 128x256 c1x2", wide(256), {128, 256, 64}, 4, {8, 1, 1}, identity8, {1, 2});
    add("wgmma 128x256 c1", wide(256), {128, 256, 64}, 4, {8, 1, 1}, identity8);
    add("wgmma 256x128 c2x1", wide(128), {256, 128, 64}, 4, {8, 1, 1}, identity8, {2, 1});
    add("wgmma 128x128 c1", wide(128), {128, 128, 64}, 5, {8, 1, 1}, identity8);
    add("wgmma 128x256 stream_k", wide(256), {128, 256, 64}, 4, {8, 1, 1}, stream_k);
    for (const int n : {64, 128, 256}) {
      const int stages = n == 256 ? 4 : n == 128 ? 5 : 8;
      const std::string tile = format("wgmma 128x{}", n);
      if (n == 64) add(tile, wide(n), {128, n, 64}, stages, {8, 1, 1}, identity8);
      for (const int slices : {2, 4, 8}) {
        add(format("{} / {}", tile, slices), wide(n), {128, n, 64}, stages, {8, 1, 1}, identity8);
        split(slices);
      }
    }
    add("wgmma 64x128", wide(128), {64, 128, 64}, 8, {4, 1, 1}, identity8);
    add("wgmma 64x128 / 4", wide(128), {64, 128, 64}, 8, {4, 1, 1}, identity8);
    split(4);
    add("wgmma 64x256", wide(256), {64, 256, 64}, 5, {4, 1, 1}, identity8);
    add("wgmma 64x256 / 4", wide(256), {64, 256, 64}, 5, {4, 1, 1}, identity8);
    split(4);
    const auto warp = instruction(OpClass::tensor_op, e, sum, 0, plain);
    add("mma 128x256x32", warp, {128, 256, 32}, 4, {2, 4, 1}, identity8);
    add("mma 128x256x64", warp, {128, 256, 64}, 3, {2, 4, 1}, identity8);
    add("mma 256x128x32", warp, {256, 128, 32}, 4, {4, 2, 1}, identity8);
    add("mma 128x128x32", warp, {128, 128, 32}, 4, {2, 2, 1}, identity8);
    add("mma 128x128x64 8w", warp, {128, 128, 64}, 3, {2, 4, 1}, identity8);
  } else if (dtype == f32) {
    const auto small = instruction(OpClass::tensor_op, e, sum, 0, MathOperation::fast_f32);
    add("3xtf32 64x64x32", small, {64, 64, 32}, 3, {2, 2, 1}, Swizzle::identity8);
    add("3xtf32 128x128x16", small, {128, 128, 16}, 4, {4, 2, 1}, Swizzle::identity8);
    const auto parts = [&](int n) {
      return instruction(OpClass::warpgroup, e, sum, n, MathOperation::fast_f32);
    };
    using enum Swizzle;
    add("wgmma 3xtf32 128x128 c2x1", parts(128), {128, 128, 32}, 3, {8, 1, 1}, identity8, {2, 1});
    add("wgmma 3xtf32 128x128", parts(128), {128, 128, 32}, 3, {8, 1, 1}, identity8);
    add("wgmma tf32 128x256 c2x1", instruction(OpClass::warpgroup, e, sum, 256, plain),
        {128, 256, 32}, 4, {8, 1, 1}, identity8, {2, 1});
    const auto rounded = instruction(OpClass::tensor_op, e, sum, 0, plain);
    add("tf32 128x128x32", rounded, {128, 128, 32}, 3, {2, 4, 1}, Swizzle::identity8);
    const auto wide = instruction(OpClass::warpgroup, e, sum, 256, plain);
    add("wgmma tf32 128x256", wide, {128, 256, 32}, 4, {8, 1, 1}, Swizzle::identity8);
    const auto simt = instruction(OpClass::simt, e, sum, 0, plain);
    add("simt 128x128x8", simt, {128, 128, 8}, 4, {4, 2, 1}, Swizzle::identity8);
  } else {
    add("f64 64x64x16", instruction(OpClass::tensor_op, e, sum, 8, plain), {64, 64, 16}, 4,
        {2, 2, 1}, Swizzle::identity8);
    MathInstruction hopper = instruction(OpClass::tensor_op, e, sum, 8, plain);
    hopper.shape = {16, 8, 16};
    add("f64 hopper 128x64x16", hopper, {128, 64, 16}, 4, {4, 2, 1}, Swizzle::identity8);
  }
  return out;
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

struct Problem {
  int64_t m, n, k;
  std::string layouts;  // "nn", "nt", ...
  Tensor a_stored, b_stored, a, b, d;

  Problem(const std::string& shape, const std::string& l, DType dtype, Device device) : layouts(l) {
    BS_CHECK(std::sscanf(shape.c_str(), "%ldx%ldx%ld", &m, &n, &k) == 3, "bench: shape {}", shape);
    Generator generator(1);
    a_stored = randn(l[0] == 't' ? Shape{k, m} : Shape{m, k}, dtype, device, generator);
    b_stored = randn(l[1] == 't' ? Shape{n, k} : Shape{k, n}, dtype, device, generator);
    a = l[0] == 't' ? a_stored.transpose(0, 1) : a_stored;
    b = l[1] == 't' ? b_stored.transpose(0, 1) : b_stored;
    d = Tensor::empty({m, n}, dtype, device);
  }

  /// Compares entries of d with sums in double; the relative error, of the size of the terms.
  double error(const std::vector<double>& x, const std::vector<double>& y) const {
    const std::vector<double> z = host(d);
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    double worst = 0;
    for (int64_t sample = 0; sample < 300; ++sample) {
      const int64_t i = sample * 7919 % m, j = sample * 104729 % n;
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double term = x[at(layouts[0] == 't' ? l * m + i : i * k + l)] *
                            y[at(layouts[1] == 't' ? j * k + l : l * n + j)];
        sum += term;
        size += term * term;
      }
      worst = std::max(worst, std::abs(z[at(i * n + j)] - sum) / std::sqrt(size));
    }
    return worst;
  }
};

/// Of one sum against the root of the sum of squares of its terms.
double bound(DType dtype, const Kernel& kernel) {
  const bool exact = kernel.description.tile.math.op_class == OpClass::simt ||
                     kernel.description.tile.math.operation == MathOperation::fast_f32;
  if (dtype == f32) return exact ? 1e-5 : 4e-3;
  return dtype == f64 ? 1e-13 : dtype == f16 ? 4e-3 : 3e-2;
}

void run(const std::string& shape, const std::string& layouts, const bench::Settings& settings,
         const std::string& filter, bool alone, bench::Record& record) {
  Problem p(shape, layouts, settings.dtype, settings.device);
  const std::vector<double> x = host(p.a_stored), y = host(p.b_stored);
  std::vector<std::string> names;
  std::vector<double> errors;
  std::vector<bench::Work> works;
  std::vector<std::unique_ptr<GemmOperation>> operations;
  for (Kernel& kernel : kernels_for(settings.dtype)) {
    if (kernel.name.find(filter) == std::string::npos) continue;
    GemmDescription& d = kernel.description;
    if (layouts[0] == 't') d.a.layout = MatrixLayout::column_major;
    if (layouts[1] == 't') d.b.layout = MatrixLayout::column_major;
    try {
      operations.push_back(std::make_unique<GemmOperation>(d));
      const GemmOperation& operation = *operations.back();
      const auto work = [&p, &operation, slices = kernel.slices] {
        operation.run(
            {.a = p.a, .b = p.b, .d = p.d, .scalars = {{"alpha", 1.0}}, .slices = slices});
      };
      work();
      errors.push_back(p.error(x, y));
      BS_CHECK(errors.back() <= bound(settings.dtype, kernel), "bench: {} is off by {}",
               kernel.name, errors.back());
      names.push_back(kernel.name);
      works.push_back(work);
    } catch (const Error& e) {
      std::printf("%s: %s\n", kernel.name.c_str(), e.what());
    }
  }
  if (!alone) {
    works.push_back(bench::gemm_peer(p.a, p.b, p.d));
    names.emplace_back("cublaslt");
    works.back()();
    errors.push_back(p.error(x, y));
  }
  const std::vector<bench::Timing> times =
      bench::interleave(settings.device, works, settings.measure);
  for (size_t i = 0; i < times.size(); ++i) {
    const double size = static_cast<double>(size_of(settings.dtype));
    record.add({.cell = {{"shape", shape}, {"layouts", layouts}},
                .what = names[i],
                .by = names[i] == "cublaslt" ? "cublaslt" : "bs",
                .time = times[i],
                .flops = 2.0 * static_cast<double>(p.m * p.n * p.k),
                .bytes = size * static_cast<double>(p.m * p.k + p.k * p.n + p.m * p.n),
                .further = {{"relative_error", errors[i]}}});
  }
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> shapes = {"512x512x512"}, layouts = {"nn"};
  std::string filter;
  int alone = 0;
  arguments.read("--shapes", shapes);
  arguments.read("--layouts", layouts);
  arguments.read("--kernels", filter);
  arguments.read("--ours", alone);
  arguments.finish();
  bench::Record record("gemm", settings);
  for (const std::string& shape : shapes)
    for (const std::string& l : layouts) run(shape, l, settings, filter, alone != 0, record);
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
