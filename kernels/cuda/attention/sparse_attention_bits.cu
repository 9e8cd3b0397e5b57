#include <bs/kernels/cuda/attention/sparse_attention_bits.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>

namespace bs::cuda {

namespace {

constexpr int threads = 256, span = 16;  // keys of a row that a thread packs; no block has fewer

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

/// A bit for each of `span` bytes from one on, of which `count` are there.
__device__ unsigned pack_span(const unsigned char* from, int count) {
  unsigned bits = 0;
  if (count >= span && reinterpret_cast<uintptr_t>(from) % span == 0) {
    const uint4 bytes = __ldg(reinterpret_cast<const uint4*>(from));
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)  // the product brings the lowest bits of four bytes to the top
      bits |= __vsetne4(words[i], 0) * 0x10204080U >> 28 << 4 * i;
    return bits;
  }
  for (int i = 0; i < min(count, span); ++i) bits |= static_cast<unsigned>(from[i] != 0) << i;
  return bits;
}

__global__ void __launch_bounds__(threads)
    pack_bits(Bytes mask, Blocks to, int64_t lines, unsigned char* bits) {
  const int spans = to.cols * to.block / span;
  const int64_t at = int64_t{blockIdx.x} * threads + threadIdx.x, line = at / spans;
  if (line >= lines) return;
  const int height = to.rows * to.block, key = static_cast<int>(at % spans) * span;
  const int64_t head = line / height;
  const auto query = static_cast<int>(line % height);
  const unsigned char* const row =
      mask.data + head / mask.heads * mask.batch + head % mask.heads * mask.head + query * mask.row;
  const unsigned packed = query < mask.queries ? pack_span(row + key, mask.keys - key) : 0;
  *reinterpret_cast<unsigned short*>(bits + to.byte(head, query, key)) =
      static_cast<unsigned short>(packed);
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
  const int64_t work = lines * (int64_t{blocks.cols} * blocks.block / span);
  if (work == 0) return out;
  pack_bits<<<static_cast<unsigned>(ceil_div(work, threads)), threads, 0, native(stream)>>>(
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
