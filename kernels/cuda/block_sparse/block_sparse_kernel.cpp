#include <bs/kernels/cuda/block_sparse/block_sparse_epilogue.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_kernel.h>
#include <bs/kernels/cuda/jit/device_headers.h>

namespace bs::cuda {

ProductKernel kernel_of(const DsdProblem& p, DType dtype) {
  return {.sampled = false,
          .dtype = dtype,
          .block = p.layout.block,
          .a_along_k = !p.transposed,
          .b_along_k = p.b.col != 1,
          .c_by_columns = p.c.col != 1,
          .epilogue = epilogue_key(p.epilogue)};
}

ProductKernel kernel_of(const SddProblem& p, DType dtype, bool turned) {
  const bool a_along_k = p.a.col == 1, b_along_k = p.b.col != 1;
  return {.sampled = true,
          .dtype = dtype,
          .block = p.layout.block,
          .a_along_k = turned ? b_along_k : a_along_k,
          .b_along_k = turned ? a_along_k : b_along_k,
          .c_by_columns = turned,
          .epilogue = epilogue_key(p.epilogue)};
}

jit::Source source_of(const ProductKernel& k, const KernelLaunch& launch, const KernelText& text,
                      const GemmEpilogue* epilogue) {
  const std::string name = format("{}_{}_b{}_{}{}{}{}", k.sampled ? "sdd" : "dsd", text.factors,
                                  k.block, k.a_along_k ? "k" : "m", k.b_along_k ? "k" : "n",
                                  text.variant, epilogue ? "_epilogue" : "");
  std::string code = format("#include <bs/kernels/cuda/device/block_sparse/{}>\n\n", text.header);
  code += text.ahead;
  if (epilogue) code += epilogue_text(*epilogue, k.dtype, k.c_by_columns != launch.turned);
  code += text.types;
  code += format("static_assert({}::threads == {} && {}::shared_bytes <= {});\n\n", text.type,
                 launch.threads, text.type, launch.shared_bytes);
  code += format(
      "extern \"C\" __global__ void __launch_bounds__({}::threads, {})\n"
      "    {}(const __grid_constant__ {}) {\n{}}\n",
      text.type, launch.ctas, name, text.parameter, text.body);
  return {name, code, device_headers()};
}

}  // namespace bs::cuda
