#include <bs/kernels/cuda/attention/sparse_attention_bits.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>

namespace bs::cuda {

namespace {

constexpr int threads = 256, words = 4;  // words of 32 keys of a row that a warp makes

/// A mask [batch, heads, queries, keys] of bytes; axes that are shared have one entry here.
struct Bytes {
  const unsigned char* data;
  int64_t batch, head, row;  ///< strides
  int heads, queries, keys;
};

/// Blocks of the result lie head by head, row by row.
struct Blocks {
  int block, rows, cols;

  __device__ int64_t byte(int64_t head, int query, int key) const {
    const int64_t place = (head * rows + query / block) * cols + key / block;
    return (place * block + query % block) * (block / 8) + key % block / 8;
  }
};

__global__ void __launch_bounds__(threads)
    pack_bits(Bytes mask, Blocks to, int64_t lines, unsigned char* bits) {
  const int warps_of_row = (to.cols * to.block + 32 * words - 1) / (32 * words);
  const int64_t warp = (int64_t{blockIdx.x} * threads + threadIdx.x) / 32;
  const int64_t line = warp / warps_of_row;
  if (line >= lines) return;
  const int height = to.rows * to.block, lane = static_cast<int>(threadIdx.x % 32);
  const int64_t head = line / height;
  const auto query = static_cast<int>(line % height);
  const unsigned char* const row =
      mask.data + head / mask.heads * mask.batch + head % mask.heads * mask.head + query * mask.row;
  const int first = static_cast<int>(warp % warps_of_row) * 32 * words;
  bool seen[words];
#pragma unroll
  for (int w = 0; w < words; ++w) {
    const int key = first + 32 * w + lane;
    seen[w] = query < mask.queries && key < mask.keys && row[key] != 0;
  }
#pragma unroll
  for (int w = 0; w < words; ++w) {
    const unsigned word = __ballot_sync(~0u, seen[w]);
    const int key = first + 32 * w + lane;  // blocks of 16 have 2 bytes of a row
    if (lane % 16 == 0 && key < to.cols * to.block)
      *reinterpret_cast<unsigned short*>(bits + to.byte(head, query, key)) =
          static_cast<unsigned short>(word >> lane);
  }
}

/// How many of an axis there are that differ.
int64_t distinct(const Tensor& x, int axis) { return x.strides()[axis] == 0 ? 1 : x.size(axis); }

AttentionMask pack(const Tensor& mask, const Blocks& blocks, Stream stream) {
  const int64_t entries = distinct(mask, 0), heads = distinct(mask, 1);
  const int64_t of_head = int64_t{blocks.rows} * blocks.cols;
  AttentionMask out;
  out.memory = Tensor::empty({entries * heads * of_head, blocks.block, blocks.block / 8}, u8,
                             stream.device());
  out.bits = {nullptr,
              out.memory.data<uint8_t>(),
              blocks.rows,
              blocks.cols,
              entries == 1 ? 0 : static_cast<int>(heads),
              heads == 1 ? 0 : 1};
  const Bytes bytes{static_cast<const unsigned char*>(mask.data()),
                    mask.strides()[0],
                    mask.strides()[1],
                    mask.strides()[2],
                    static_cast<int>(heads),
                    static_cast<int>(mask.size(2)),
                    static_cast<int>(mask.size(3))};
  const int64_t lines = entries * heads * blocks.rows * blocks.block;
  const int64_t warps = lines * ceil_div(int64_t{blocks.cols} * blocks.block, 32 * words);
  if (warps == 0) return out;
  pack_bits<<<static_cast<unsigned>(ceil_div(warps * 32, threads)), threads, 0, native(stream)>>>(
      bytes, blocks, lines, out.memory.data<uint8_t>());
  BS_CUDA_CHECK_LAUNCH("sparse_attention");
  return out;
}

}  // namespace

AttentionMask attention_mask(const SparseAttentionOptions& options, int heads, int block, int rows,
                             int cols, Stream stream) {
  if (options.mask.defined()) return pack(options.mask, {block, rows, cols}, stream);
  const PackedMask& packed = options.packed_mask;
  if (!packed.defined()) return {};
  const int of = packed.layout()->heads();
  AttentionMask out;
  out.bits = {packed.numbers().data<int32_t>(), packed.bits().data<uint8_t>(),
              packed.layout()->rows(),          packed.layout()->cols(),
              of > heads ? heads : 0,           of == 1 ? 0 : 1};
  return out;
}

}  // namespace bs::cuda
