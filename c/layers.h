/** @file The C interface of layers: LSTM, transducer loss, convolution. Include bs/c/bs.h. */
#ifndef BS_C_LAYERS_H
#define BS_C_LAYERS_H

#include <bs/c/bs.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name LSTM: one layer, one or more directions over the same x [T, B, I] (kernels/lstm.h)
 *  @{ */
/** @brief The parameters of a direction. All but ih and hh may be NULL. */
typedef struct bs_lstm_direction {
  const bs_tensor *ih, *hh;           /**< [4 H, I]; [4 H, R], or the blocks of `layout` */
  const bs_tensor *bias_ih, *bias_hh; /**< [4 H] */
  const bs_tensor* hr;                /**< [R, H], a projection */
  const bs_layout* layout;            /**< of hh where that is block-sparse */
  const bs_tensor *h0, *c0;           /**< [B, R], [B, H] */
  int reverse;                        /**< from the last step to the first */
} bs_lstm_direction;
/** @brief The results of one direction: y [T, B, R], h_n [B, R], c_n [B, H]. Or their gradients, of
 *  which those that are NULL are zero. */
typedef struct bs_lstm_states {
  bs_tensor *y, *h_n, *c_n;
} bs_lstm_states;
/** @brief Gradients of one direction; NULL where the forward had NULL. */
typedef struct bs_lstm_gradients {
  bs_tensor *ih, *hh, *bias_ih, *bias_hh, *hr, *h0, *c0;
} bs_lstm_gradients;
/** @brief What backward needs of a forward, its inputs included. */
typedef struct bs_lstm bs_lstm;

/** @param lengths [B] of i64 in host memory, or NULL: all T
 *  @param states,directions arrays of `count`, @param saved NULL: nothing is kept */
BS_C_API bs_status bs_lstm_forward(const bs_tensor* x, const bs_lstm_direction* directions,
                                   int count, const bs_tensor* lengths, bs_lstm_states* states,
                                   bs_lstm** saved);
/** @param dstates,gradients arrays of as many directions as the forward had; @param dx may be NULL
 *  where not wanted */
BS_C_API bs_status bs_lstm_backward(const bs_lstm* saved, const bs_lstm_states* dstates,
                                    bs_tensor** dx, bs_lstm_gradients* gradients);
BS_C_API void bs_lstm_free(bs_lstm* saved);
/** @} */

/** @name The loss of a recurrent neural network transducer (kernels/transducer_loss.h)
 *  @{ */
typedef enum bs_reduction { BS_MEAN = 0, BS_SUM = 1, BS_NONE = 2 } bs_reduction;
typedef struct bs_transducer_options {
  int64_t blank;          /**< negative counts from the last class */
  int reduction;          /**< a bs_reduction */
  double clamp;           /**< bound of gradients; 0: none */
  double fastemit_lambda; /**< 0: none */
} bs_transducer_options;
/** @brief What backward needs of a forward, its inputs included. */
typedef struct bs_transducer bs_transducer;
/** @param logits [batch, frames, labels + 1, classes], or packed [rows, classes]
 *  @param saved NULL: nothing is kept */
BS_C_API bs_status bs_transducer_loss(const bs_tensor* logits, const bs_tensor* targets,
                                      const bs_tensor* logit_lengths,
                                      const bs_tensor* target_lengths,
                                      const bs_transducer_options* options, bs_tensor** loss,
                                      bs_transducer** saved);
BS_C_API bs_status bs_transducer_loss_backward(const bs_transducer* saved, const bs_tensor* dloss,
                                               bs_tensor** dlogits);
BS_C_API void bs_transducer_free(bs_transducer* saved);
/** @} */

/** @name Convolution of images [N, C, H, W], dense or with blocks of channels
 *  (kernels/conv2d.h, kernels/block_sparse_conv2d.h). A weight is [K, C / groups, R, S], or the
 *  blocks of a layout from bs_conv2d_layout. A gradient that is not wanted: NULL for its handle.
 *  @{ */
typedef struct bs_conv2d_options {
  int64_t stride[2], dilation[2]; /**< rows, columns; 0 stands for 1 */
  int64_t padding[4];             /**< top, bottom, left, right */
  int64_t groups;                 /**< 0 stands for 1; 1 for blocks */
} bs_conv2d_options;
/** @param bias [K], or NULL, @param options NULL: none */
BS_C_API bs_status bs_conv2d(const bs_tensor* x, const bs_tensor* weight, const bs_tensor* bias,
                             const bs_conv2d_options* options, bs_tensor** y);
/** @param dbias the sum of dy over images and pixels, whether or not there was a bias */
BS_C_API bs_status bs_conv2d_backward(const bs_tensor* x, const bs_tensor* weight,
                                      const bs_conv2d_options* options, const bs_tensor* dy,
                                      bs_tensor** dx, bs_tensor** dweight, bs_tensor** dbias);

/** @param mask [K / block, C / block, R, S] */
BS_C_API bs_status bs_conv2d_layout(const bs_tensor* mask, int block, bs_layout** out);
/** @brief A weight with blocks: values [nnz, block, block], for filters of R rows, S columns. */
typedef struct bs_conv2d_blocks {
  const bs_tensor* values;
  const bs_layout* layout;
  int64_t r, s;
} bs_conv2d_blocks;
BS_C_API bs_status bs_block_sparse_conv2d(const bs_tensor* x, const bs_conv2d_blocks* weight,
                                          const bs_tensor* bias, const bs_conv2d_options* options,
                                          bs_tensor** y);
BS_C_API bs_status bs_block_sparse_conv2d_backward(const bs_tensor* x,
                                                   const bs_conv2d_blocks* weight,
                                                   const bs_conv2d_options* options,
                                                   const bs_tensor* dy, bs_tensor** dx,
                                                   bs_tensor** dvalues, bs_tensor** dbias);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
