#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_backward.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/jit/warpgroup_mma.h>

#include <string>

namespace bs::cuda {

using Kernel = AttentionBackwardKernel;
using Pass = Kernel::Pass;

jit::Source attention_backward_source(const Kernel& k) {
  const bool keys = k.pass == Pass::key_gradient;
  const char* const header = k.paired ? "warpgroup_backward_pair"
                             : keys   ? "warpgroup_backward"
                                      : "warpgroup_query_gradient";
  const char* const type = keys ? "WarpgroupKeyGradient" : "WarpgroupQueryGradient";
  const std::string name =
      format("attention_{}_wgmma_{}_d{}{}_b{}{}_s{}{}{}{}", keys ? "dkv" : "dq", to_string(k.dtype),
             k.dim, keys && k.value_dim != k.dim ? format("v{}", k.value_dim) : "", k.block,
             k.strip > 64 ? "_wide" : "", k.stages, k.banded ? "_band" : "",
             k.rules != 0 ? format("_r{}", k.rules) : "", k.paired ? "_pair" : "");
  std::string code = format("#include <bs/kernels/cuda/device/attention/{}.cuh>\n\n", header);
  if (keys) {
    code += "namespace scores {\n" + warpgroup_mma(64, k.dtype, true, true) + "}\n";
    code += "namespace rows {\n" + warpgroup_mma_left(k.dim, k.dtype, false) + "}\n";
    code += "namespace value_rows {\n" + warpgroup_mma_left(k.value_dim, k.dtype, false) + "}\n";
  } else {
    code += warpgroup_mma(k.dim, k.dtype, true, false);
  }
  code += format("struct Config {\n  using Element = {};\n{}", device_type_name(k.dtype),
                 keys ? "  using Scores = ::scores::Mma;\n  using Rows = ::rows::Mma;\n"
                        "  using ValueRows = ::value_rows::Mma;\n"
                      : "  using Mma = ::Mma;\n");
  code += format(
      "  static constexpr int dim = {}, value_dim = {}, block = {}, strip = {}, stages = {};\n"
      "  static constexpr bool banded = {}, paired = {};\n"
      "  static constexpr unsigned rules = {};\n};\n",
      k.dim, k.value_dim, k.block, k.strip, k.stages, k.banded, k.paired, k.rules);
  code += format("using Kernel = bs::cuda::device::{}{}<Config>;\n", type, k.paired ? "Pair" : "");
  code += format("static_assert(Kernel::threads == {} && Kernel::shared_bytes <= {});\n\n",
                 attention_backward_threads, k.shared_bytes());
  code += format(
      "extern \"C\" __global__ void __launch_bounds__({}, 1)\n"
      "    {}(const __grid_constant__ bs::cuda::device::{}Params params) {\n"
      "  Kernel::run(params);\n}\n",
      attention_backward_threads, name, type);
  return {name, code, device_headers()};
}

jit::Source attention_numbers_warpgroup_source(const AttentionNumbersKernel& k) {
  const std::string name = format("attention_numbers_wgmma_{}_l{}", to_string(k.dtype), k.lanes);
  const char* const type = device_type_name(k.dtype);
  std::string code =
      "#include <bs/kernels/cuda/device/attention/warpgroup_query_gradient.cuh>\n\n"
      "using namespace bs::cuda::device;\n";
  code += format(
      "extern \"C\" __global__ void {}(\n"
      "    const __grid_constant__ AttentionBackwardArguments<{}, float> arguments,\n"
      "    AttentionPlaces places, unsigned total, unsigned numbers, float* log_sums,\n"
      "    float* means, int* odd) {\n"
      "  attention_numbers<{}, {}>(arguments, places, total, numbers, log_sums, means, odd);\n}\n",
      name, type, type, k.lanes);
  return {name, code, device_headers()};
}

std::vector<Kernel> all_attention_backward_kernels() {
  std::vector<Kernel> all;
  for (const DType dtype : {f16, bf16})
    for (const int dim : {64, 128, 192, 256})
      for (const int block : {16, 32, 64, 128})
        for (const bool banded : {false, true})
          for (const int value_dim : {64, 128, 192, 256}) {
            AttentionBackwardProblem problem{.capability = 90,
                                             .shared_bytes = 227 << 10,
                                             .block = block,
                                             .head_dim = dim,
                                             .value_dim = value_dim,
                                             .traits = {.banded = banded}};
            AttentionBackwardPlan plan = attention_backward_plan(problem);
            Kernel k{Pass::key_gradient, dtype, dim, block, plan.key_stages, value_dim, banded};
            k.paired = plan.paired;
            k.strip = plan.strip;
            all.push_back(k);
            problem.alike = true;
            plan = attention_backward_plan(problem);
            if (plan.strip != k.strip) {
              k.strip = plan.strip;
              k.stages = plan.key_stages;
              all.push_back(k);
            }
            if (value_dim != dim) continue;
            k = {Pass::query_gradient, dtype, dim, block, plan.query_stages, 0, banded};
            all.push_back(k);
          }
  return all;
}

}  // namespace bs::cuda
