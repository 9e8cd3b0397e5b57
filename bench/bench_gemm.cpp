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
    "  --kernels SUBSTRING,...  only kernels whose names contain one of them\n"
    "  --operands TYPE      e4m3, e5m2 or i8: a dtype then is the result's, but i8 gives i32;\n"
    "                       layouts must be nt\n"
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

/// Kernels worth measuring. Layouts are filled in later.
class Kernels {
 public:
  Kernels(Element operands, Element result) : e_(operands), d_(result) {}

  Kernel& add(const std::string& name, const MathInstruction& math, std::array<int, 3> tile,
              int stages, std::array<int, 3> warps, Swizzle swizzle = Swizzle::identity8) {
    const auto aligned = [](Element e) {
      return TensorDescription{e, MatrixLayout::row_major, 16 / size_of(e)};
    };
    GemmDescription d{.tile = {tile, stages, warps, math, {1, 1}},
                      .a = aligned(e_),
                      .b = aligned(e_),
                      .d = aligned(d_),
                      .epilogue = GemmEpilogue(),
                      .swizzle = swizzle};
    list.push_back({name, d});
    return list.back();
  }
  /// Warpgroups that multiply 16 or 8 bits.
  Kernel& add_wide(const std::string& name, int m, int n, int stages,
                   Swizzle swizzle = Swizzle::identity8) {
    const Element sum = e_ == Element::i8 ? Element::i32 : Element::f32;
    const auto math = instruction(OpClass::warpgroup, e_, sum, n, MathOperation::multiply_add);
    return add(name, math, {m, n, 128 / size_of(e_)}, stages, {m == 64 ? 4 : 8, 1, 1}, swizzle);
  }
  void add_slices(const std::string& name, int m, int n, int stages, int slices) {
    Kernel& kernel = add_wide(format("{} / {}", name, slices), m, n, stages);
    kernel.description.split_k = SplitK::parallel;
    kernel.slices = slices;
  }

  std::vector<Kernel> list;

 private:
  Element e_, d_;
};

void add_16_bits(Kernels& kernels, Element e) {
  const auto cluster = [&](const char* name, int m, int n, std::array<int, 2> ctas) {
    kernels.add_wide(name, m, n, 4).description.tile.cluster = ctas;
  };
  kernels.add_wide("wgmma 128x256", 128, 256, 4);
  kernels.add_wide("wgmma 128x256 rows", 128, 256, 4).description.d.alignment = 1;
  cluster("wgmma 128x256 c2x1", 128, 256, {2, 1});
  cluster("wgmma 128x256 c1x2", 128, 256, {1, 2});
  cluster("wgmma 256x128 c2x1", 256, 128, {2, 1});
  const auto deep = [&](int m, int n, int stages, std::initializer_list<int> depths) {
    for (const int ctas : depths)
      kernels.add_wide(format("wgmma {}x{} k{}", m, n, ctas), m, n, stages)
          .description.tile.cluster_k = ctas;
  };
  deep(128, 128, 4, {2, 4});
  deep(128, 64, 7, {2, 3});
  deep(64, 128, 7, {2, 3});
  deep(64, 64, 10, {2});
  kernels.add_wide("wgmma 128x256 stream_k", 128, 256, 4, Swizzle::stream_k);
  kernels.add_wide("wgmma 128x128", 128, 128, 5);
  for (const int slices : {4, 8}) kernels.add_slices("wgmma 128x128", 128, 128, 5, slices);
  kernels.add_wide("wgmma 128x64", 128, 64, 8);
  for (const int slices : {2, 4}) kernels.add_slices("wgmma 128x64", 128, 64, 8, slices);
  kernels.add_wide("wgmma 64x128", 64, 128, 8);
  kernels.add_slices("wgmma 64x128", 64, 128, 8, 2);
  kernels.add_wide("wgmma 64x256", 64, 256, 5);
  kernels.add_wide("wgmma 64x64", 64, 64, 12);
  for (const int slices : {2, 4}) kernels.add_slices("wgmma 64x64", 64, 64, 12, slices);
  const auto warp =
      instruction(OpClass::tensor_op, e, Element::f32, 0, MathOperation::multiply_add);
  for (const int stages : {3, 4})
    kernels.add(format("mma 128x256x64 {} stages", stages), warp, {128, 256, 64}, stages,
                {2, 4, 1});
  kernels.add("mma 128x256x32", warp, {128, 256, 32}, 6, {2, 4, 1});
  kernels.add("mma 256x128x64", warp, {256, 128, 64}, 3, {4, 2, 1});
}

void add_32_bits(Kernels& kernels) {
  const auto math = [](OpClass op_class, int n, MathOperation operation) {
    return instruction(op_class, Element::f32, Element::f32, n, operation);
  };
  const auto plain = MathOperation::multiply_add;
  const auto parts = [&](const std::string& tile, int m, int n, int stages,
                         Swizzle swizzle = Swizzle::identity8) -> Kernel& {
    return kernels.add("wgmma 3xtf32 " + tile, math(OpClass::warpgroup, n, MathOperation::fast_f32),
                       {m, n, 32}, stages, {m / 16, 1, 1}, swizzle);
  };
  parts("128x128", 128, 128, 3);
  parts("128x128 c2x1", 128, 128, 3).description.tile.cluster = {2, 1};
  parts("128x128 k2", 128, 128, 2).description.tile.cluster_k = 2;
  parts("128x128 stream_k", 128, 128, 3, Swizzle::stream_k);
  parts("192x128", 192, 128, 2);
  parts("128x192", 128, 192, 2);
  parts("128x64", 128, 64, 4);
  parts("128x64 k2", 128, 64, 3).description.tile.cluster_k = 2;
  for (const int slices : {2, 4, 8}) {
    Kernel& kernel = parts(format("128x64 / {}", slices), 128, 64, 4);
    kernel.description.split_k = SplitK::parallel;
    kernel.slices = slices;
  }
  parts("64x128", 64, 128, 4);
  const auto small = math(OpClass::tensor_op, 0, MathOperation::fast_f32);
  kernels.add("mma 3xtf32 64x64x32", small, {64, 64, 32}, 3, {2, 2, 1});
  kernels.add("mma 3xtf32 128x128x16", small, {128, 128, 16}, 4, {4, 2, 1});
  kernels.add("wgmma tf32 128x256", math(OpClass::warpgroup, 256, plain), {128, 256, 32}, 4,
              {8, 1, 1});
  kernels.add("mma tf32 128x128x32", math(OpClass::tensor_op, 0, plain), {128, 128, 32}, 3,
              {2, 4, 1});
  kernels.add("simt 128x128x8", math(OpClass::simt, 0, plain), {128, 128, 8}, 4, {4, 2, 1});
}

void add_8_bits(Kernels& kernels, Element e) {
  kernels.add_wide("wgmma 128x256", 128, 256, 4);
  kernels.add_wide("wgmma 128x256 c2x1", 128, 256, 4).description.tile.cluster = {2, 1};
  kernels.add_wide("wgmma 128x128", 128, 128, 5);
  if (e != Element::i8) return;  // Hopper has mma.sync for 8-bit floats in name only
  const auto warp =
      instruction(OpClass::tensor_op, e, Element::i32, 0, MathOperation::multiply_add);
  kernels.add("mma 128x256x128", warp, {128, 256, 128}, 3, {2, 4, 1});
}

std::vector<Kernel> kernels_for(Element e, DType dtype) {
  Kernels kernels(e, element_of(dtype));
  if (size_of(e) == 1) {
    add_8_bits(kernels, e);
  } else if (size_of(e) == 2) {
    add_16_bits(kernels, e);
  } else if (dtype == f32) {
    add_32_bits(kernels);
  } else {
    MathInstruction math = instruction(OpClass::tensor_op, e, e, 8, MathOperation::multiply_add);
    kernels.add("f64 64x64x16", math, {64, 64, 16}, 4, {2, 2, 1});
    math.shape = {16, 8, 16};
    kernels.add("f64 hopper 128x64x16", math, {128, 64, 16}, 4, {4, 2, 1});
  }
  return kernels.list;
}

/// Elements as numbers.
std::vector<double> host(const Tensor& x, Element e) {
  const Tensor t = x.to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  if (size_of(e) == 1) {
    const uint8_t* from = t.data<uint8_t>();
    for (double& v : out) {
      const uint8_t bits = *from++;
      v = e == Element::i8 ? static_cast<int8_t>(bits) : static_cast<double>(decode_fp8(bits, e));
    }
    return out;
  }
  if (e == Element::i32) {
    std::copy_n(t.data<int32_t>(), out.size(), out.begin());
    return out;
  }
  visit_floating("bench", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (double& v : out) v = static_cast<double>(*from++);
  });
  return out;
}

/// Normal numbers of an element type; whole ones of i8 up to some 100. Those of 8 bits come from
/// the host, and come again after a prime number of elements.
Tensor normal(const Shape& shape, Element e, Device device, Generator& generator) {
  if (size_of(e) > 1) return randn(shape, storage_dtype(e), device, generator);
  constexpr size_t period = 1000003;
  const Tensor numbers = randn({static_cast<int64_t>(period)}, f32, Device::cpu(), generator);
  std::vector<uint8_t> bits(period);
  const float* from = numbers.data<float>();
  for (uint8_t& b : bits) {
    const float x = *from++;
    b = e == Element::i8
            ? static_cast<uint8_t>(static_cast<int8_t>(std::clamp(30 * x, -127.F, 127.F)))
            : encode_fp8(x, e);
  }
  const Tensor out = Tensor::empty(shape, u8, Device::cpu());
  uint8_t* to = out.data<uint8_t>();
  const auto size = static_cast<size_t>(out.numel());
  for (size_t at = 0; at < size; at += period)
    std::copy_n(bits.begin(), std::min(period, size - at), to + at);
  return out.to(device);
}

struct Problem {
  int64_t m, n, k;
  std::string layouts;  // "nn", "nt", ...
  Tensor a_stored, b_stored, a, b, d;

  Problem(const std::string& shape, const std::string& l, Element e, DType dtype, Device device)
      : layouts(l) {
    BS_CHECK(std::sscanf(shape.c_str(), "%ldx%ldx%ld", &m, &n, &k) == 3, "bench: shape {}", shape);
    Generator generator(1);
    a_stored = normal(l[0] == 't' ? Shape{k, m} : Shape{m, k}, e, device, generator);
    b_stored = normal(l[1] == 't' ? Shape{n, k} : Shape{k, n}, e, device, generator);
    a = l[0] == 't' ? a_stored.transpose(0, 1) : a_stored;
    b = l[1] == 't' ? b_stored.transpose(0, 1) : b_stored;
    d = Tensor::empty({m, n}, dtype, device);
  }

  /// Compares entries of d with sums in double; the relative error, of the size of the terms.
  double error(const std::vector<double>& x, const std::vector<double>& y) const {
    const std::vector<double> z = host(d, element_of(d.dtype()));
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
double bound(DType dtype, const Kernel& kernel, int64_t k) {
  const GemmDescription& d = kernel.description;
  if (d.a.element == Element::i8) return 0;
  // The tensor cores cut sums of 8-bit floats off at 13 bits, each 32 of the depth; sums are up to
  // some four times the root.
  if (size_of(d.a.element) == 1) return 3e-2 + 4 * std::ldexp(static_cast<double>(k) / 32, -13);
  const bool exact = kernel.description.tile.math.op_class == OpClass::simt ||
                     kernel.description.tile.math.operation == MathOperation::fast_f32;
  if (dtype == f32) return exact ? 1e-5 : 4e-3;
  return dtype == f64 ? 1e-13 : dtype == f16 ? 4e-3 : 3e-2;
}

Element eight_bits(const std::string& name) {
  for (const Element e : {Element::e4m3, Element::e5m2, Element::i8})
    if (to_string(e) == name) return e;
  BS_THROW(Error, "bench: operands '{}'; expected e4m3, e5m2 or i8", name);
}

/// What is measured of every shape.
struct Plan {
  Element operands;
  DType result;
  std::vector<std::string> filter;
  bool alone;
};

void run(const std::string& shape, const std::string& layouts, const bench::Settings& settings,
         const Plan& plan, bench::Record& record) {
  Problem p(shape, layouts, plan.operands, plan.result, settings.device);
  const std::vector<double> x = host(p.a_stored, plan.operands),
                            y = host(p.b_stored, plan.operands);
  std::vector<std::string> names;
  std::vector<double> errors;
  std::vector<bench::Work> works;
  std::vector<std::unique_ptr<GemmOperation>> operations;
  for (Kernel& kernel : kernels_for(plan.operands, plan.result)) {
    if (std::ranges::none_of(plan.filter, [&](const std::string& part) {
          return kernel.name.find(part) != std::string::npos;
        }))
      continue;
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
      BS_CHECK(errors.back() <= bound(plan.result, kernel, p.k), "bench: {} is off by {}",
               kernel.name, errors.back());
      names.push_back(kernel.name);
      works.push_back(work);
    } catch (const Error& e) {
      std::printf("%s: %s\n", kernel.name.c_str(), e.what());
    }
  }
  if (!plan.alone) {
    works.push_back(bench::gemm_peer(p.a, p.b, p.d, plan.operands));
    names.emplace_back("cublaslt");
    works.back()();
    errors.push_back(p.error(x, y));
  }
  const std::vector<bench::Timing> times =
      bench::interleave(settings.device, works, settings.measure);
  for (size_t i = 0; i < times.size(); ++i) {
    const double size = static_cast<double>(size_of(plan.operands));
    record.add({.cell = {{"shape", shape}, {"layouts", layouts}},
                .what = names[i],
                .by = names[i] == "cublaslt" ? "cublaslt" : "bs",
                .time = times[i],
                .flops = 2.0 * static_cast<double>(p.m * p.n * p.k),
                .bytes = size * static_cast<double>(p.m * p.k + p.k * p.n) +
                         static_cast<double>(p.d.bytes()),
                .rate = size == 1 ? 2.0 : 1.0,
                .further = {{"relative_error", errors[i]}}});
  }
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> shapes = {"512x512x512"}, layouts = {"nn"};
  std::vector<std::string> filter = {""};
  std::string operands;
  int alone = 0;
  arguments.read("--shapes", shapes);
  arguments.read("--layouts", layouts);
  arguments.read("--kernels", filter);
  arguments.read("--operands", operands);
  arguments.read("--ours", alone);
  arguments.finish();
  const Element element = operands.empty() ? element_of(settings.dtype) : eight_bits(operands);
  const Plan plan{element, element == Element::i8 ? i32 : settings.dtype, filter, alone != 0};
  bench::Record record(operands.empty() ? "gemm" : "gemm " + operands, settings);
  for (const std::string& shape : shapes)
    for (const std::string& l : layouts) run(shape, l, settings, plan, record);
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
