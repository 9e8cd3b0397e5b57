/** @file The C interface of described matrix products: what GemmDescription and GemmOperation are
 * in C++ (kernels/gemm_operation.h). Include bs/c/bs.h. */
#ifndef BS_C_GEMM_H
#define BS_C_GEMM_H

#include <bs/c/bs.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Choices; the numbers are those of the C++ enumerations of these names
 *  @{ */
typedef enum bs_element {
  BS_NO_ELEMENT = -1, /**< of an operand that is not there */
  BS_ELEMENT_F64 = 0,
  BS_ELEMENT_F32 = 1,
  BS_ELEMENT_TF32 = 2,
  BS_ELEMENT_F16 = 3,
  BS_ELEMENT_BF16 = 4,
  BS_ELEMENT_I8 = 5,
  BS_ELEMENT_I32 = 6,
  BS_ELEMENT_E4M3 = 7,
  BS_ELEMENT_E5M2 = 8
} bs_element;
typedef enum bs_op_class { BS_SIMT = 0, BS_TENSOR_OP = 1, BS_WARPGROUP = 2 } bs_op_class;
typedef enum bs_math_operation {
  BS_MULTIPLY_ADD = 0,
  BS_MULTIPLY_ADD_SATURATE = 1,
  BS_FAST_F16 = 2,
  BS_FAST_BF16 = 3,
  BS_FAST_F32 = 4
} bs_math_operation;
typedef enum bs_swizzle {
  BS_IDENTITY1 = 0,
  BS_IDENTITY2 = 1,
  BS_IDENTITY4 = 2,
  BS_IDENTITY8 = 3,
  BS_STREAM_K = 4
} bs_swizzle;
typedef enum bs_split_k {
  BS_SPLIT_NONE = 0,
  BS_SPLIT_SERIAL = 1,
  BS_SPLIT_PARALLEL = 2
} bs_split_k;
typedef enum bs_activation {
  BS_IDENTITY = 0,
  BS_RELU = 1,
  BS_TANH = 2,
  BS_SIGMOID = 3,
  BS_SILU = 4,
  BS_GELU = 5,
  BS_GELU_TANH = 6,
  BS_HARDSWISH = 7
} bs_activation;
/** @} */

/** @brief How A, B or D lies in memory. */
typedef struct bs_gemm_matrix {
  int element;      /**< a bs_element */
  int column_major; /**< 0: elements of a row are neighbours */
  int alignment;    /**< elements to whose multiples address and leading dimension are aligned */
} bs_gemm_matrix;

/** @brief D = activation(alpha A B + beta C + bias), everything but the sizes. */
typedef struct bs_gemm_description {
  int threadblock[3], stages, warps[3]; /**< a TileDescription's */
  int cluster[2], cluster_k;            /**< 0 stands for 1 */
  int instruction[3];                   /**< rows, columns and depth of one */
  int math_a, math_b, accumulator;      /**< its bs_element */
  int op_class, operation;              /**< a bs_op_class, a bs_math_operation */
  bs_gemm_matrix a, b, d;
  int c_element, bias_element; /**< a bs_element; BS_NO_ELEMENT: there is none */
  int activation;              /**< a bs_activation */
  int swizzle, split_k;        /**< a bs_swizzle, a bs_split_k */
  int batched;                 /**< 1: [batch, m, k] times [batch, k, n] */
} bs_gemm_description;

/** @brief Tensors of one product; the shapes are GemmArguments'. `d` is written. */
typedef struct bs_gemm_arguments {
  const bs_tensor *a, *b, *c; /**< c may be NULL where beta is 0 */
  const bs_tensor* bias;      /**< [n], or [batch, n] */
  const bs_tensor* d;
  double alpha, beta;
  int slices; /**< parts of the depth; 0 stands for 1 */
} bs_gemm_arguments;

/** @brief A described product, made once and run often. */
typedef struct bs_gemm bs_gemm;
/** @brief Checks a description; it is compiled for a GPU on its first run there. */
BS_C_API bs_status bs_gemm_make(const bs_gemm_description* description, bs_gemm** out);
/** @brief Queues one product, or one batch, on the current stream. */
BS_C_API bs_status bs_gemm_run(const bs_gemm* gemm, const bs_gemm_arguments* arguments);
BS_C_API void bs_gemm_free(bs_gemm* gemm);

/** @brief A view of memory that somebody else owns, on any device, which must outlive every handle
 *  that uses it. It is a matrix from a raw pointer and its leading dimension.
 *  @param info dtype, device, shape, strides (none negative) and data */
BS_C_API bs_status bs_tensor_from_pointer(const bs_tensor_info* info, bs_tensor** out);

#ifdef __cplusplus
}
#endif
#endif
