#include <bs/kernels/cuda/attention/sparse_attention_stored_scores.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>
#include <bs/lib/cuda/launch.h>

#include <cstdint>
#include <string>

namespace bs::cuda {

namespace {

using Kernel = StoredScoresKernel;
using Sums = Kernel::Sums;

constexpr unsigned threads = 256;

const char* function_of(Sums sums) {
  switch (sums) {
    case Sums::bias:
      return "sum_stored_bias";
    case Sums::diagonals:
      return "sum_stored_diagonals";
    case Sums::joined_diagonals:
      break;
  }
  return "join_stored_diagonals";
}

void launch(const Kernel& k, const device::StoredScoresParams& params, int64_t total,
            Stream stream) {
  static auto* const family = new jit::KernelFamily<Kernel>;
  const jit::Kernel& kernel =
      family->get(k, stream.device(), [&] { return stored_scores_source(k); });
  const auto ctas = static_cast<unsigned>(ceil_div(total, threads));
  jit::launch(kernel, {.grid = dim3(ctas), .block = dim3(threads)}, stream, params);
}

/// A warp for each block of each head of the bias.
void add_bias(const Tensor& dbias, device::StoredScoresParams params, DType dtype, int block,
              Stream stream) {
  params.batches = static_cast<int>(dbias.size(0));
  params.heads = static_cast<int>(dbias.size(1));
  params.bias = {dbias.data<float>(), dbias.strides()[0], dbias.strides()[1], dbias.strides()[2]};
  const int64_t warps = dbias.size(0) * dbias.size(1) * params.rows.lines * params.columns;
  launch({Sums::bias, dtype, block}, params, warps * 32, stream);
}

/// A warp for each diagonal of tiles of each head of the table.
void add_diagonals(const Tensor& diagonals, int64_t height, device::StoredScoresParams params,
                   DType dtype, int block, Stream stream) {
  params.batches = 1;
  params.heads = static_cast<int>(diagonals.size(0));
  params.diagonals = diagonals.data<float>();
  params.tile_diagonals = static_cast<int>(diagonals.size(1) / device::stored_side);
  params.first_tile = static_cast<int>(height / device::stored_side) - 1;
  const int64_t warps = diagonals.size(0) * params.tile_diagonals;
  const Tensor sums = Tensor::empty({warps, 2 * device::stored_side - 1}, f32, diagonals.device());
  params.tile_sums = sums.data<float>();
  launch({Sums::diagonals, dtype, block}, params, warps * 32, stream);
  launch({Sums::joined_diagonals}, params, diagonals.numel(), stream);
}

}  // namespace

jit::Source stored_scores_source(const Kernel& k) {
  const bool joins = k.sums == Sums::joined_diagonals;
  const char* const function = function_of(k.sums);
  const std::string of = joins ? "" : format("<{}, {}>", device_type_name(k.dtype), k.block);
  const std::string name =
      joins ? function : format("{}_{}_b{}", function, to_string(k.dtype), k.block);
  const std::string code = format(
      "#include <bs/kernels/cuda/device/attention/stored_scores.cuh>\n\n"
      "extern \"C\" __global__ void __launch_bounds__({}, 2)\n"
      "    {}_kernel(const __grid_constant__ bs::cuda::device::StoredScoresParams params) {\n"
      "  bs::cuda::device::{}{}(params);\n}\n",
      threads, name, function, of);
  return {name + "_kernel", code, device_headers()};
}

std::vector<Kernel> all_stored_scores_kernels() {
  std::vector<Kernel> all = {{Sums::joined_diagonals}};
  for (const Sums sums : {Sums::bias, Sums::diagonals})
    for (const DType dtype : {f16, bf16})
      for (const int block : {16, 32, 64, 128}) all.push_back({sums, dtype, block});
  return all;
}

void add_stored_scores(const SparseAttentionGradients& gradients,
                       const SparseAttentionOptions& options, const AttentionGrid& grid,
                       const device::WarpgroupAttention& problem, const void* blocks, DType dtype,
                       Stream stream) {
  const Layout& layout = grid.layout;
  const Tensor &dbias = gradients.dbias, &diagonals = gradients.drelative_bias;
  if (!stores_added_scores(options) || layout.nnz() == 0) return;
  const LayoutView view = layout.view(stream.device());
  device::StoredScoresParams params{};
  params.problem = problem;
  params.blocks = blocks;
  params.rows = {view.row_offsets, view.col_of, view.heads, view.rows};
  params.columns = view.cols;
  if (dbias.defined()) add_bias(dbias, params, dtype, layout.block(), stream);
  if (diagonals.defined())
    add_diagonals(diagonals, grid.height, params, dtype, layout.block(), stream);
}

}  // namespace bs::cuda
