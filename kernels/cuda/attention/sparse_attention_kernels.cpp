#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>

#include <string>

namespace bs::cuda {

namespace {

struct PassText {
  const char *name, *header, *function, *arguments, *shared;
};

PassText text_of(AttentionPass pass) {
  switch (pass) {
    case AttentionPass::forward:
      return {"sparse_attention", "sparse_attention", "attention_forward", "AttentionForward",
              "ForwardShared"};
    case AttentionPass::query_gradient:
      return {"sparse_attention_dq", "sparse_attention_backward", "attention_query_gradient",
              "AttentionBackward", "QueryShared"};
    case AttentionPass::key_gradient:
      break;
  }
  return {"sparse_attention_dkv", "sparse_attention_backward", "attention_key_gradient",
          "AttentionBackward", "KeyShared"};
}

std::string preamble(const char* header) {
  return format(
      "#include <bs/kernels/cuda/device/attention/{}.cuh>\n\nusing namespace bs::cuda::device;\n",
      header);
}

}  // namespace

SparseAttentionTile tile_of(const AttentionKernel& k) {
  return sparse_attention_tile(k.pass, static_cast<int>(size_of(k.dtype)), k.dim, k.whole);
}

jit::Source attention_source(const AttentionKernel& k) {
  const int size = static_cast<int>(size_of(k.dtype));
  const SparseAttentionTile tile = tile_of(k);
  const PassText text = text_of(k.pass);
  const std::string name = format("{}_{}_d{}{}{}", text.name, to_string(k.dtype), k.dim,
                                  k.whole ? "_whole" : "", k.asked ? "_asked" : "");
  std::string code = preamble(text.header);
  code += format("using Tile = AttentionTile<{}, {}, {}, {}, {}, {}>;\n", device_type_name(k.dtype),
                 k.dim, tile.cols, tile.ctas, tile.unroll, k.whole);
  code += format("static_assert(Tile::rows == {} && Tile::threads == {});\n",
                 sparse_attention_rows(size), sparse_attention_threads);
  code += format("static_assert({}<Tile>::bytes == {});\n\n", text.shared,
                 sparse_attention_shared_bytes(k.pass, size, k.dim, tile.cols));
  code += format(
      "extern \"C\" __global__ void __launch_bounds__(Tile::threads, Tile::ctas)\n"
      "    {}(const __grid_constant__ {}<Tile::T> arguments{}) {\n"
      "{}  {}<Tile>(arguments);\n}\n",
      name, text.arguments, k.asked ? ", const int* asked" : "",
      k.asked ? "  if (*asked == 0) return;\n" : "", text.function);
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

std::vector<AttentionKernel> all_attention_kernels() {
  std::vector<AttentionKernel> all;
  for (const AttentionPass pass :
       {AttentionPass::forward, AttentionPass::query_gradient, AttentionPass::key_gradient})
    for (const DType dtype : {f16, bf16, f32, f64}) {
      const int size = static_cast<int>(size_of(dtype));
      for (int dim = 32; dim <= 128; dim += 32) {
        if (sparse_attention_dim(size, dim) != dim) continue;
        all.push_back({pass, dtype, dim, false});
        if (sparse_attention_whole(size, 64)) all.push_back({pass, dtype, dim, true});
        if (size != 2 || pass == AttentionPass::forward) continue;
        all.push_back({pass, dtype, dim, false, true});
        all.push_back({pass, dtype, dim, true, true});
      }
    }
  return all;
}

}  // namespace bs::cuda
