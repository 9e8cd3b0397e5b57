#include <bs/kernels/gemm_description.h>

namespace bs {

namespace {

const char* yes(bool b) { return b ? "true" : "false"; }

/// The problem as the kernel sees it, where rows lead: D, or D's transpose = B^T A^T.
struct Seen {
  const GemmDescription& d;
  bool t = d.transposed();
  const TensorDescription& a = t ? d.b : d.a;
  const TensorDescription& b = t ? d.a : d.b;
  int rows = d.tile.threadblock[t ? 1 : 0], columns = d.tile.threadblock[t ? 0 : 1];
  int warps_m = d.tile.warps[t ? 1 : 0], warps_n = d.tile.warps[t ? 0 : 1];
  Element math_a = t ? d.tile.math.b : d.tile.math.a, math_b = t ? d.tile.math.a : d.tile.math.b;
  bool a_along_k() const {
    return splits_operands(d) ||
           a.layout == (t ? MatrixLayout::column_major : MatrixLayout::row_major);
  }
  bool b_along_k() const {
    return splits_operands(d) ||
           b.layout == (t ? MatrixLayout::row_major : MatrixLayout::column_major);
  }
};

/// The name of a Multiply of device/gemm_multiply.cuh.
std::string multiply_name(const Seen& s) {
  const MathInstruction& math = s.d.tile.math;
  const bool saturate = math.operation == MathOperation::multiply_add_saturate;
  if (math.op_class == OpClass::simt) return format("MultiplySimt<{}>", device_type(math.a));
  switch (math.a) {
    case Element::f64:
      return math.shape[0] == 16 ? "MultiplyF64Hopper" : "MultiplyF64";
    case Element::f16:
      if (math.accumulator == Element::f16) return "MultiplyF16Sums";
      return "Multiply16<__half>";
    case Element::bf16:
      return "Multiply16<__nv_bfloat16>";
    case Element::i8:
      return format("MultiplyI8<{}>", yes(saturate));
    case Element::e4m3:
    case Element::e5m2:
      return format("MultiplyF8<{}, {}>", device_type(s.math_a), device_type(s.math_b));
    default:
      break;
  }
  switch (math.operation) {
    case MathOperation::fast_f16:
      return "MultiplyRounded<__half>";
    case MathOperation::fast_bf16:
      return "MultiplyRounded<__nv_bfloat16>";
    case MathOperation::fast_f32:
      return "MultiplySplitTf32";
    default:
      return "MultiplyTf32";
  }
}

/// wgmma and its sums, for each 64 rows of a warpgroup's tile. The sums are registers that ptxas
/// knows by name, and the C++ compiler only from take() on. It would need three times as long for
/// 128 variables that go round a loop. declare() stands where the kernel begins.
std::string warpgroup_multiply(const Seen& s) {
  const MathInstruction& math = s.d.tile.math;
  const int n = math.shape[1], k = math.shape[2];
  const int blocks = s.rows / (s.d.tile.warps[0] / 4) / 64;
  const bool whole = math.a == Element::i8;
  const auto ptx_type = [](Element e) {
    return e == Element::i8 ? std::string("s8") : e == Element::f32 ? "tf32" : to_string(e);
  };
  std::string modifiers = whole ? "" : ", 1, 1";
  if (size_of(math.a) == 2)
    modifiers += format(", {}, {}", s.a_along_k() ? 0 : 1, s.b_along_k() ? 0 : 1);
  const std::string instruction =
      format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}{}", n, k, whole ? "s32" : "f32",
             ptx_type(s.math_a), ptx_type(s.math_b),
             math.operation == MathOperation::multiply_add_saturate ? ".satfinite" : "");
  std::string declare, clear, run, take;
  for (int block = 0; block < blocks; ++block) {
    const std::string sum = format("sum{}_", block),
                      only = format("    if (block == {}) {\n", block);
    declare +=
        format("    asm volatile(\".reg .{} {}<{}>;\");\n", whole ? "b32" : "f32", sum, n / 2);
    std::string sums;
    clear += "    asm volatile(\"";
    take += only;
    for (int i = 0; i < n / 2; i += 4) {
      const auto at = [&](int part) { return sum + std::to_string(i + part); };
      sums += format("{}{}, {}, {}, {}", i == 0 ? "" : ", ", at(0), at(1), at(2), at(3));
      for (int part = 0; part < 4; ++part) clear += format("mov.b32 {}, 0; ", at(part));
      take += format("      asm volatile(\"mov.b32 %0, {}; mov.b32 %1, {}; mov.b32 %2, {}; ", at(0),
                     at(1), at(2)) +
              format("mov.b32 %3, {};\"\n", at(3));
      const auto out = [&](int part) {
        return format("\"={}\"(c[{}][{}])", whole ? "r" : "f", i / 4, part);
      };
      take += format("                   : {}, {}, {}, {});\n", out(0), out(1), out(2), out(3));
    }
    clear += "\");\n";
    take += "    }\n";
    run += only;
    run += "      asm volatile(\n          \"{.reg .pred p; setp.ne.b32 p, %2, 0;\"\n          \"";
    run += format("{} {{}}, %0, %1, p{}", instruction, sums, modifiers);
    run += ";}\" ::\"l\"(a), \"l\"(b), \"r\"(static_cast<int>(keep)));\n    }\n";
  }
  const std::string type = whole ? "int" : "float";
  return "struct Multiply {\n  using Sum = " + type + ";\n" +
         format("  static constexpr int columns = {}, depth = {};\n", n, k) +
         "  __device__ static __forceinline__ void declare() {\n" + declare + "  }\n" +
         "  __device__ static __forceinline__ void clear() {\n" + clear + "  }\n" +
         "  __device__ static __forceinline__ void run(int block, unsigned long long a,\n"
         "                                             unsigned long long b, bool keep) {\n" +
         run + "  }\n" +
         format("  __device__ static __forceinline__ void take(int block, Sum (&c)[{}][4]) {\n",
                n / 8) +
         take + "  }\n};\n";
}

std::string split_name(const GemmDescription& d) {
  if (d.swizzle == Swizzle::stream_k) return "stream_k";
  return to_string(d.split_k);
}

std::string config(const Seen& s) {
  const TileDescription& t = s.d.tile;
  const bool warpgroup = t.math.op_class == OpClass::warpgroup;
  const bool several = s.d.mode == GemmMode::array || s.d.mode == GemmMode::grouped;
  const int width = s.d.swizzle == Swizzle::stream_k ? 4 : 1 << static_cast<int>(s.d.swizzle);
  std::string text = warpgroup ? warpgroup_multiply(s) : "";
  text += "struct Config {\n";
  text += format("  using ElementA = {};\n  using ElementB = {};\n  using Multiply = {};\n",
                 device_type(s.a.element), device_type(s.b.element),
                 warpgroup ? "device::Multiply" : multiply_name(s));
  text += format("  static constexpr int rows = {}, columns = {}, depth = {}, stages = {};\n",
                 s.rows, s.columns, t.threadblock[2], t.stages);
  if (warpgroup) {
    text += format("  using ElementD = {};\n  static constexpr bool boxes = {};\n",
                   device_type(s.d.d.element), yes(stores_boxes(s.d)));
    text += format("  static constexpr int parts = {};\n", splits_operands(s.d) ? 2 : 1);
    text += format("  static constexpr int groups = {}, cluster_m = {}, cluster_n = {},",
                   t.warps[0] / 4, t.cluster[s.t ? 1 : 0], t.cluster[s.t ? 0 : 1]) +
            format(" cluster_k = {};\n", t.cluster_k);
  } else {
    text += format("  static constexpr int warps_m = {}, warps_n = {}, warps_k = {};\n", s.warps_m,
                   s.warps_n, t.warps[2]);
    text += format("  static constexpr int align_a = {}, align_b = {};\n",
                   s.a.alignment * size_of(s.a.element), s.b.alignment * size_of(s.b.element));
  }
  text += format("  static constexpr bool a_k_contiguous = {}, b_k_contiguous = {};\n",
                 yes(s.a_along_k()), yes(s.b_along_k()));
  text += format("  static constexpr int swizzle = {};\n", width);
  text += format(
      "  static constexpr GemmSplit split = GemmSplit::{};\n"
      "  static constexpr GemmGroup group = GemmGroup::{};\n};\n",
      split_name(s.d), several ? "several" : "batched");
  return text;
}

/// The kernel `name` as text, which runs `body` of what `further` and the description define.
std::string source(const GemmDescription& d, const std::string& headers, const std::string& further,
                   int threads, const std::string& name, const char* params, const char* body) {
  check(d);
  const Seen s{d};
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  return headers +
         format("#include <bs/kernels/cuda/device/gemm/{}.cuh>\n\nnamespace bs::cuda::device {\n\n",
                warpgroup ? "gemm_warpgroup" : "gemm_portable") +
         to_source(d.epilogue, d.tile.math.accumulator, s.t) + "\n" + config(s) +
         format("using Kernel = {}<Config, Epilogue>;\n",
                warpgroup ? "WarpgroupGemm" : "PortableGemm") +
         further +
         format(
             "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(\n"
             "    const __grid_constant__ {} params) {\n"
             "  {}(params);\n"
             "}\n\n}  // namespace bs::cuda::device\n",
             threads, name, params, body);
}

char letter(const TensorDescription& t) { return t.layout == MatrixLayout::row_major ? 'r' : 'c'; }

}  // namespace

std::string kernel_name(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  const auto [m, n, k] = t.threadblock;
  return format("gemm_{}_{}_{}_{}_{}x{}x{}_{}{}{}", t.math.op_class, d.a.element,
                t.math.accumulator, d.d.element, m, n, k, std::string(1, letter(d.a)),
                std::string(1, letter(d.b)), std::string(1, letter(d.d)));
}

std::string join_name(const GemmDescription& d) { return kernel_name(d) + "_join"; }

std::string to_source(const GemmDescription& d) {
  const std::string sizes = format(
      "static_assert(Kernel::shared_bytes == {} && Kernel::threads == {} &&\n"
      "              Kernel::Slab::chunk == {});\n\n",
      shared_bytes(d), d.tile.threads(), reduction_chunk(d));
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  return source(d, "", sizes, d.tile.threads(), kernel_name(d),
                warpgroup ? "WarpgroupGemmParams" : "GemmParams",
                warpgroup ? "Multiply::declare();\n  Kernel::run" : "Kernel::run");
}

std::string to_join_source(const GemmDescription& d) {
  const std::string sizes = format(
      "using Join = GemmJoin<Kernel, Epilogue>;\n"
      "static_assert(Join::threads == {} && Join::alone == {} && Join::jobs == {});\n\n",
      join_threads, join_alone, join_jobs(d));
  return source(d, "#include <bs/kernels/cuda/device/gemm/gemm_join.cuh>\n", sizes, join_threads,
                join_name(d), "GemmParams", "Join::run");
}

namespace {

std::string loader_kernel(const GemmDescription& d, const GemmLoaderText& loader) {
  return format("using LoaderKernel = {}, {}<Config>>;\n",
                d.tile.math.op_class == OpClass::warpgroup ? "WarpgroupGemm<Config, Epilogue, 0"
                                                           : "PortableGemm<Config, Epilogue",
                loader.loader);
}

std::string loader_header(const GemmLoaderText& loader) {
  return format("#include <bs/kernels/cuda/device/{}.cuh>\n", loader.header);
}

}  // namespace

std::string to_loader_source(const GemmDescription& d, const std::string& name,
                             const GemmLoaderText& loader) {
  const std::string further =
      loader_kernel(d, loader) +
      format("static_assert(LoaderKernel::shared_bytes == {});\n\n", shared_bytes(d));
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  return source(d, loader_header(loader), further, d.tile.threads(), name, loader.params.c_str(),
                warpgroup ? "Multiply::declare();\n  LoaderKernel::run" : "LoaderKernel::run");
}

std::string to_loader_join_source(const GemmDescription& d, const std::string& name,
                                  const GemmLoaderText& loader) {
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  const std::string further =
      loader_kernel(d, loader) + format(
                                     "using Join = GemmJoin<Kernel, Epilogue>;\n"
                                     "static_assert(Join::threads == {} && Join::alone == {} && "
                                     "Join::jobs == {});\n"
                                     "__device__ void join(const {}& params) {\n"
                                     "  Join::run(params{}, {}<Config>::places(params));\n}\n\n",
                                     join_threads, join_alone, join_jobs(d), loader.params,
                                     warpgroup ? ".gemm" : "", loader.loader);
  return source(d, "#include <bs/kernels/cuda/device/gemm/gemm_join.cuh>\n" + loader_header(loader),
                further, join_threads, name, loader.params.c_str(), "join");
}

std::string blocks_name(const GemmDescription& d, int block) {
  return kernel_name(d) + format("_b{}", block);
}

std::string to_blocks_source(const GemmDescription& d, int block) {
  BS_CHECK(stores_boxes(d) && size_of(d.d.element) == 2 && !d.transposed() &&
               d.split_k == SplitK::none && d.swizzle != Swizzle::stream_k,
           "gemm: d {} does not leave the kernel in blocks of {}", d.d, block);
  const std::string further = format(
      "using BlocksKernel = WarpgroupGemm<Config, Epilogue, {}>;\n"
      "static_assert(BlocksKernel::shared_bytes == {});\n\n",
      block, shared_bytes(d));
  return source(d, "", further, d.tile.threads(), blocks_name(d, block), "WarpgroupGemmParams",
                "Multiply::declare();\n  BlocksKernel::run");
}

}  // namespace bs
