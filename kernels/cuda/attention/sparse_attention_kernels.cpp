#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

#include <algorithm>
#include <string>

namespace bs::cuda {

namespace {

struct PassText {
  const char *name, *header, *function, *arguments, *shared, *more;
};

PassText text_of(AttentionPass pass) {
  constexpr const char* backward = "sparse_attention_backward";
  switch (pass) {
    case AttentionPass::forward:
      return {"sparse_attention", "sparse_attention", "attention_forward",
              "AttentionForward", "ForwardShared",    ""};
    case AttentionPass::query_gradient:
      return {"sparse_attention_dq", backward,      "attention_query_gradient",
              "AttentionBackward",   "QueryShared", ""};
    case AttentionPass::key_value_gradient:
      return {"sparse_attention_dkv", backward,    "attention_key_gradient",
              "AttentionBackward",    "KeyShared", ", true, true"};
    case AttentionPass::key_gradient:
      return {"sparse_attention_dk", backward,    "attention_key_gradient",
              "AttentionBackward",   "KeyShared", ", true, false"};
    case AttentionPass::value_gradient:
      break;
  }
  return {"sparse_attention_dv", backward,    "attention_key_gradient",
          "AttentionBackward",   "KeyShared", ", false, true"};
}

std::string preamble(const char* header) {
  return format(
      "#include <bs/kernels/cuda/device/attention/{}.cuh>\n"
      "#include <bs/kernels/cuda/device/ptx/launch_order.cuh>\n\n"
      "using namespace bs::cuda::device;\n",
      header);
}

// What a kernel that is `asked` has besides.
const char* asked_parameter(bool asked) { return asked ? ", const int* asked" : ""; }
const char* asked_first(bool asked) {
  return asked ? "  let_next_launch_begin();\n"
                 "  wait_for_previous_launch();\n"
                 "  if (*asked == 0) return;\n"
               : "";
}

/// A kernel whose warps have a row each.
jit::Source single_source(const std::string& name, const char* arguments, const char* function,
                          DType dtype, int dim, unsigned rules, bool asked = false) {
  std::string code = preamble("attention_single");
  code += format(
      "extern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "    {}(const __grid_constant__ {}<{}> arguments, int length{}) {\n"
      "{}  {}<{}, {}, {}>(arguments, length);\n}\n",
      sparse_attention_threads, dtype == f64 ? 2 : 4, name, arguments, device_type_name(dtype),
      asked_parameter(asked), asked_first(asked), function, device_type_name(dtype), rules,
      dim / 32);
  return {name, code, device_headers()};
}

bool is_plain_rules(unsigned rules) { return (rules & ~unsigned{device::rule_ragged}) == 0; }

}  // namespace

SparseAttentionTile tile_of(const AttentionKernel& k) {
  SparseAttentionTile tile =
      sparse_attention_tile(k.pass, static_cast<int>(size_of(k.dtype)), k.dim, k.whole,
                            is_plain_rules(k.rules), k.shared_bytes);
  if (k.rules != 0) tile.ctas = std::min(tile.ctas, 2);  // ragged ends take a few registers
  return tile;
}

jit::Source attention_source(const AttentionKernel& k) {
  const int size = static_cast<int>(size_of(k.dtype));
  const SparseAttentionTile tile = tile_of(k);
  const PassText text = text_of(k.pass);
  const std::string rules = k.rules == 0 ? "" : format("_r{}", k.rules);
  if (tile.cols == 0) {
    const char* const function = is_key_pass(k.pass) ? "attention_key_gradient_singly"
                                 : k.pass == AttentionPass::forward
                                     ? "attention_forward_singly"
                                     : "attention_query_gradient_singly";
    return single_source(format("{}_{}_d{}{}_single", text.name, to_string(k.dtype), k.dim, rules),
                         text.arguments, function, k.dtype, k.dim, k.rules);
  }
  const std::string name =
      format("{}_{}_d{}_c{}x{}{}{}{}", text.name, to_string(k.dtype), k.dim, tile.cols, tile.stages,
             k.whole ? "_whole" : "", k.asked ? "_asked" : "", rules);
  std::string code = preamble(text.header);
  code += format("using Tile = AttentionTile<{}, {}, {}, {}, {}, {}, {}, {}>;\n",
                 device_type_name(k.dtype), k.dim, tile.cols, tile.ctas, tile.unroll, k.whole,
                 tile.stages, k.rules);
  code += format("static_assert(Tile::rows == {} && Tile::threads == {});\n",
                 sparse_attention_rows(size), sparse_attention_threads);
  code += format("static_assert({}<Tile>::bytes == {});\n\n", text.shared,
                 sparse_attention_shared_bytes(k.pass, size, k.dim, tile));
  const bool few = has_few_ctas(k);
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Tile::threads, Tile::ctas)\n"
      "    {}(const __grid_constant__ {}<Tile::T> arguments{}{}) {\n"
      "{}{}  {}<Tile{}>(arguments, {});{}\n}\n",
      name, text.arguments, asked_parameter(k.asked), few ? ", unsigned all" : "",
      asked_first(k.asked),
      few ? "  for (unsigned work = blockIdx.x; work < all; work += gridDim.x) {\n" : "",
      text.function, text.more, few ? "work" : "blockIdx.x",
      few ? "\n  __syncthreads();  // shared memory is read no more\n  }" : "");
  return {name, code, device_headers()};
}

jit::Source attention_numbers_source(DType dtype) {
  const std::string name = format("sparse_attention_numbers_{}", to_string(dtype));
  const char* const type = device_type_name(dtype);
  std::string code = preamble("sparse_attention_backward");
  code += format(
      "extern \"C\" __global__ void {}(\n"
      "    const __grid_constant__ AttentionBackward<{}> arguments, long long rows) {\n"
      "  attention_row_numbers<{}>(arguments, rows);\n}\n",
      name, type, type);
  return {name, code, device_headers()};
}

jit::Source attention_score_source(const AttentionScoreKernel& k) {
  const std::string name =
      format("sparse_attention_{}_{}_d{}_r{}{}", k.diagonals ? "diagonals" : "dbias",
             to_string(k.dtype), k.dim, k.rules, k.asked ? "_asked" : "");
  return single_source(name, "AttentionBackward",
                       k.diagonals ? "attention_diagonal_gradient" : "attention_bias_gradient",
                       k.dtype, k.dim, k.rules, k.asked);
}

std::vector<AttentionKernel> all_attention_kernels(int shared_bytes) {
  std::vector<AttentionKernel> all;
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const int size = static_cast<int>(size_of(dtype));
    for (int dim = 32; dim <= 256; dim += 32) {
      if (sparse_attention_dim(size, dim) != dim) continue;
      std::vector<AttentionPass> passes = {AttentionPass::forward, AttentionPass::query_gradient};
      if (sparse_attention_splits(dim)) {
        passes.push_back(AttentionPass::key_gradient);
        passes.push_back(AttentionPass::value_gradient);
      } else {
        passes.push_back(AttentionPass::key_value_gradient);
      }
      for (const AttentionPass pass : passes) {
        AttentionKernel k{.pass = pass, .dtype = dtype, .dim = dim, .shared_bytes = shared_bytes};
        all.push_back(k);
        k.whole = sparse_attention_whole(size, 64, true);
        if (k.whole) all.push_back(k);
        if (size != 2 || shared_bytes < AttentionKernel().shared_bytes) continue;
        k.asked = true;  // what kernels on wgmma may ask for, on Hopper alone
        for (const bool whole : {false, true}) {
          k.whole = whole;
          all.push_back(k);
        }
      }
    }
  }
  return all;
}

}  // namespace bs::cuda
