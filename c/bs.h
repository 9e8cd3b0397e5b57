/** @file The C interface of bs, in libbs_c: what other languages call. docs/c.md shows how.
 *
 *  Each function with a status returns BS_OK or says what went wrong: bs_last_error() has the text,
 *  a thread's own. Nothing is thrown. Results are handles; on failure they are NULL. The caller
 *  frees each handle once; a handle keeps what it needs, so the order does not matter. Arguments
 *  that may be NULL say so. Shapes and formulas stand in the header of the C++ function that a name
 *  refers to. Before 1.0 a minor version may change this interface. */
#ifndef BS_C_BS_H
#define BS_C_BS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define BS_C_API __attribute__((visibility("default")))

typedef enum bs_status {
  BS_OK = 0,
  BS_ERROR = 1,         /**< an argument is wrong */
  BS_OUT_OF_MEMORY = 2, /**< of the host or of a GPU */
  BS_CUDA_ERROR = 3,    /**< a call into CUDA failed */
  BS_INTERNAL_ERROR = 4 /**< anything else */
} bs_status;
/** @brief What failed last on this thread; "" before. Valid until the next failure on it. */
BS_C_API const char* bs_last_error(void);
/** @brief "major.minor.patch" */
BS_C_API const char* bs_version(void);
/** @brief GPUs that can be used. */
BS_C_API int bs_cuda_device_count(void);

/** @name Streams: operations run on the thread's current stream of a device
 *  @{ */
typedef struct bs_stream_scope bs_stream_scope;
/** @brief Makes a cudaStream_t current on this thread until bs_stream_leave, in reverse order. */
BS_C_API bs_status bs_stream_enter(int device, void* stream, bs_stream_scope** scope);
BS_C_API void bs_stream_leave(bs_stream_scope* scope);
/** @} */

/** @name Tensors
 *  @{ */
typedef enum bs_dtype {
  BS_BOOLEAN = 0,
  BS_U8 = 1,
  BS_I32 = 2,
  BS_I64 = 3,
  BS_F16 = 4,
  BS_BF16 = 5,
  BS_F32 = 6,
  BS_F64 = 7
} bs_dtype;
#define BS_MAX_RANK 8
typedef struct bs_tensor bs_tensor;
typedef struct bs_tensor_info {
  int dtype;       /**< a bs_dtype */
  int cuda_device; /**< -1: host memory */
  int rank;
  int64_t shape[BS_MAX_RANK], strides[BS_MAX_RANK]; /**< strides in elements */
  void* data;                                       /**< the first element */
} bs_tensor_info;
struct DLManagedTensorVersioned; /* as dlpack.h defines them */
struct DLManagedTensor;

/** @brief Takes over what DLPack's standard describes. After a failure it is still the caller's. */
BS_C_API bs_status bs_tensor_from_dlpack(struct DLManagedTensorVersioned* managed, bs_tensor** out);
BS_C_API bs_status bs_tensor_from_dlpack_unversioned(struct DLManagedTensor* managed,
                                                     bs_tensor** out);
/** @brief Another owner of the same memory; its deleter gives it back. */
BS_C_API bs_status bs_tensor_to_dlpack(const bs_tensor* t, struct DLManagedTensorVersioned** out);
BS_C_API bs_status bs_tensor_to_dlpack_unversioned(const bs_tensor* t,
                                                   struct DLManagedTensor** out);
/** @brief A view of row-major host memory, which must outlive every handle that uses it.
 *  @param dtype a bs_dtype; an int, so that any other can be refused */
BS_C_API bs_status bs_tensor_from_memory(void* data, int dtype, int rank, const int64_t* shape,
                                         bs_tensor** out);
BS_C_API bs_status bs_tensor_describe(const bs_tensor* t, bs_tensor_info* out);
BS_C_API void bs_tensor_free(bs_tensor* t);
/** @} */

/** @name Layouts: which blocks of a matrix exist (lib/layout.h, lib/patterns.h)
 *  Counts are in blocks.
 *  @{ */
typedef struct bs_layout bs_layout;
typedef struct bs_layout_info {
  int block, heads, rows, cols;
  int64_t nnz;
} bs_layout_info;
typedef struct bs_size {
  int heads, rows, cols, block;
} bs_size;
BS_C_API bs_status bs_layout_from_mask(const bs_tensor* mask, int block, bs_layout** out);
BS_C_API bs_status bs_layout_dense(const bs_size* size, int causal, bs_layout** out);
BS_C_API bs_status bs_layout_fixed(const bs_size* size, int local_blocks, int global_blocks,
                                   int causal, bs_layout** out);
BS_C_API bs_status bs_layout_strided(const bs_size* size, int stride, int causal, bs_layout** out);
BS_C_API bs_status bs_layout_bigbird(const bs_size* size, int random_blocks, int window_blocks,
                                     int global_blocks, uint64_t seed, int causal, bs_layout** out);
/** @brief The first `global_blocks` rows and columns are kept whole. */
BS_C_API bs_status bs_layout_longformer(const bs_size* size, int window_blocks, int global_blocks,
                                        int causal, bs_layout** out);
BS_C_API bs_status bs_layout_sliding_window(const bs_size* size, int window_blocks, int causal,
                                            bs_layout** out);
BS_C_API bs_status bs_layout_random(const bs_size* size, double density, uint64_t seed, int causal,
                                    bs_layout** out);
BS_C_API bs_status bs_layout_transpose(const bs_layout* layout, bs_layout** out);
/** @brief The pattern as a u8 tensor [heads, rows, cols]. */
BS_C_API bs_status bs_layout_mask(const bs_layout* layout, bs_tensor** out);
BS_C_API bs_status bs_layout_describe(const bs_layout* layout, bs_layout_info* out);
BS_C_API void bs_layout_free(bs_layout* layout);
/** @} */

/** @name Products with a block-sparse matrix (kernels/block_sparse_matmul.h)
 *  A block-sparse matrix is a layout and its values [..., nnz, block, block]. `transpose` is 0 or
 *  a sum of BS_TRANSPOSE_A and BS_TRANSPOSE_B. A gradient that is not wanted: NULL for its handle.
 *  @{ */
enum { BS_TRANSPOSE_A = 1, BS_TRANSPOSE_B = 2 };
BS_C_API bs_status bs_sdd(const bs_tensor* a, const bs_tensor* b, const bs_layout* layout,
                          int transpose, bs_tensor** values);
BS_C_API bs_status bs_sdd_backward(const bs_tensor* a, const bs_tensor* b, const bs_layout* layout,
                                   int transpose, const bs_tensor* dvalues, bs_tensor** da,
                                   bs_tensor** db);
BS_C_API bs_status bs_dsd(const bs_tensor* values, const bs_layout* layout, const bs_tensor* b,
                          int transpose, bs_tensor** c);
BS_C_API bs_status bs_dsd_backward(const bs_tensor* values, const bs_layout* layout,
                                   const bs_tensor* b, int transpose, const bs_tensor* dc,
                                   bs_tensor** dvalues, bs_tensor** db);
BS_C_API bs_status bs_dds(const bs_tensor* a, const bs_tensor* values, const bs_layout* layout,
                          int transpose, bs_tensor** c);
BS_C_API bs_status bs_dds_backward(const bs_tensor* a, const bs_tensor* values,
                                   const bs_layout* layout, int transpose, const bs_tensor* dc,
                                   bs_tensor** da, bs_tensor** dvalues);
/** @brief Between blocks and dense matrices; each is the other's gradient. */
BS_C_API bs_status bs_to_dense(const bs_tensor* values, const bs_layout* layout, bs_tensor** dense);
BS_C_API bs_status bs_to_sparse(const bs_tensor* dense, const bs_layout* layout,
                                bs_tensor** values);
/** @} */

/** @name Softmax over rows, and fused attention (kernels/sparse_attention.h)
 *  @{ */
/** @param scale factor of the scores, @param key_padding_mask boolean, or NULL */
BS_C_API bs_status bs_block_sparse_softmax(const bs_tensor* values, const bs_layout* layout,
                                           double scale, int causal,
                                           const bs_tensor* key_padding_mask, bs_tensor** y);
BS_C_API bs_status bs_block_sparse_softmax_backward(const bs_tensor* y, const bs_layout* layout,
                                                    double scale, const bs_tensor* dy,
                                                    bs_tensor** dvalues);

typedef struct bs_attention_options {
  double scale; /**< 0: 1 / sqrt(head_dim) */
  int causal;
  const bs_tensor* key_padding_mask; /**< boolean [batch, keys], true for keys to see; or NULL */
} bs_attention_options;
/** @brief What backward needs of a forward, its inputs included. */
typedef struct bs_attention bs_attention;
/** @param options NULL: none, @param saved NULL: nothing is kept */
BS_C_API bs_status bs_sparse_attention(const bs_tensor* q, const bs_tensor* k, const bs_tensor* v,
                                       const bs_layout* layout, const bs_attention_options* options,
                                       bs_tensor** out, bs_attention** saved);
BS_C_API bs_status bs_sparse_attention_backward(const bs_attention* saved, const bs_tensor* dout,
                                                bs_tensor** dq, bs_tensor** dk, bs_tensor** dv);
BS_C_API void bs_attention_free(bs_attention* saved);
/** @} */

#ifdef __cplusplus
}
#endif
#include <bs/c/gemm.h>
#include <bs/c/layers.h>
#endif
