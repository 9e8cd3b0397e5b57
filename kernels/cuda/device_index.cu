// Includes every device header, so that an ordinary build sees each of them compile.
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/async_copy.cuh>
#include <bs/kernels/cuda/device/attention_tile.cuh>
#include <bs/kernels/cuda/device/block_list.cuh>
#include <bs/kernels/cuda/device/block_sparse_matmul.cuh>
#include <bs/kernels/cuda/device/block_sparse_problem.cuh>
#include <bs/kernels/cuda/device/lstm_cell.cuh>
#include <bs/kernels/cuda/device/lstm_persistent.cuh>
#include <bs/kernels/cuda/device/mma.cuh>
#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/device/reduce.cuh>
#include <bs/kernels/cuda/device/running_sum.cuh>
#include <bs/kernels/cuda/device/sparse_attention.cuh>
#include <bs/kernels/cuda/device/sparse_attention_backward.cuh>
#include <bs/kernels/cuda/device/tile_product.cuh>
