#include <bs/kernels/cuda/attention/decode_attention.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/kernels/cuda/device/attention/decode_problem.cuh>

#include <algorithm>
#include <cstdint>
#include <string>

namespace bs::cuda {

namespace {

/// Rows of blocks that the queries lie in.
struct Lines {
  int first, end;
  int count() const { return end - first; }
};

Lines lines_of(const device::AttentionProblem& p) {
  return {p.first_query / p.block, (p.first_query + p.queries - 1) / p.block + 1};
}

/// Keys that a tile meets at most, as far as the host can tell without waiting for a layout.
int64_t most_keys(const device::AttentionProblem& p, const Layout& layout) {
  const int64_t first = std::max(int64_t{p.first_query} + p.first, int64_t{0});
  const int64_t end = std::min<int64_t>(p.keys, int64_t{p.first_query} + p.queries + p.last);
  const int64_t seen = std::max<int64_t>(end - first, 0);
  if (!layout.on_host()) return seen;
  const LayoutView view = layout.view(Device::cpu());
  const Lines lines = lines_of(p);
  int64_t most = 0;
  for (int64_t head = 0; head < view.heads; ++head)
    for (int64_t line = head * view.rows + lines.first; line < head * view.rows + lines.end; ++line)
      most = std::max<int64_t>(most, view.row_offsets[line + 1] - view.row_offsets[line]);
  return std::min(seen, most * p.block);
}

}  // namespace

DecodeKernel decode_kernel_for(const AttentionCall& call, Device device) {
  const device::AttentionProblem& p = call.shape;
  return decode_kernel({.dtype = call.dtype,
                        .queries = p.queries,
                        .head_dim = p.head_dim,
                        .value_dim = p.value_dim,
                        .rules = call.rules,
                        .shared_bytes = device_properties(device).shared_memory_optin});
}

jit::Source decode_source(const DecodeKernel& k) {
  const std::string name = format("decode_attention_{}_d{}_w{}x{}{}", to_string(k.dtype), k.dim,
                                  k.warps, k.stages, k.rules == 0 ? "" : format("_r{}", k.rules));
  const char* const type = device_type_name(k.dtype);
  std::string code =
      "#include <bs/kernels/cuda/device/attention/decode_attention.cuh>\n\n"
      "using namespace bs::cuda::device;\n";
  code += format("using Tile = DecodeTile<{}, {}, {}, {}, {}>;\n", type, k.dim, k.warps, k.stages,
                 k.rules);
  code += format(
      "static_assert(sizeof(Tile::Shared) == {} && Tile::rows == {});\n\n"
      "extern \"C\" __global__ void __launch_bounds__(Tile::threads, {})\n"
      "    {}(const __grid_constant__ DecodeArguments<Tile::T, Tile::Sum> arguments) {\n"
      "  decode_attention<Tile>(arguments);\n}\n",
      k.shared_bytes(), decode_rows, k.ctas, name);
  return {name, code, device_headers()};
}

std::vector<DecodeKernel> all_decode_kernels(int shared_bytes) {
  std::vector<DecodeKernel> all;
  for (const DType dtype : {f16, bf16, f32})
    for (int dim = 32; dim <= 256; dim += 32) {
      const DecodeKernel kernel = decode_kernel(
          {.dtype = dtype, .head_dim = dim, .value_dim = dim, .shared_bytes = shared_bytes});
      if (kernel.dim > 0) all.push_back(kernel);
    }
  return all;
}

void launch_decode(const DecodeKernel& kernel, const AttentionCall& call, const Tensor& q,
                   const DecodeMemory& memory, const Layout& layout,
                   const SparseAttentionResult& to, Stream stream) {
  static auto* const family = new jit::KernelFamily<DecodeKernel>;
  const device::AttentionProblem& p = call.shape;
  const int heads = decode_heads(p.queries, p.group, layout.heads() == 1);
  const int64_t tiles =
      q.size(0) * (p.heads / p.group) * ceil_div(p.group, heads) * lines_of(p).count();
  const int64_t held = int64_t{device_properties(stream.device()).multiprocessors} * kernel.ctas;
  const int parts = decode_parts(held, tiles, most_keys(p, layout));
  device::DecodeArguments<void, void> arguments{
      .forward = forward_arguments(call, q, memory.keys, memory.values, layout, to),
      .pages = {memory.table.defined() ? memory.table.data<int32_t>() : nullptr, memory.page},
      .heads = heads,
      .parts = parts,
      .sums = nullptr,
      .done = nullptr};
  Tensor sums;
  WorkCounter done;
  if (parts > 1) {
    sums = Tensor::empty({tiles * parts, decode_rows, kernel.dim + 4}, f32, stream.device());
    done = WorkCounter(stream, static_cast<int>(tiles));
    arguments.sums = sums.data();
    arguments.done = done.get();
  }
  const jit::Kernel& compiled =
      family->get(kernel, stream.device(), [&] { return decode_source(kernel); });
  jit::launch(compiled,
              {.grid = dim3(checked_ctas("sparse_attention", tiles * parts)),
               .block = dim3(static_cast<unsigned>(kernel.threads())),
               .shared_bytes = kernel.shared_bytes()},
              stream, arguments);
}

}  // namespace bs::cuda
