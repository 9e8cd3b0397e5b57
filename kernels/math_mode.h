#pragma once
/** @file How exactly products of f32 matrices are computed. */

namespace bs {

/** @brief While it lives, this thread's products of f32 matrices on CUDA may round their operands
 *  to TF32. That keeps 10 bits of the mantissa instead of 23. Sums stay in f32. It acts on matmul,
 *  linear, the LSTM, products of blocks and with Kronecker products. Attention stays as exact as
 *  f32. Without a guard, f32 is f32. Backward computes as the thread that calls it says. */
class TF32Guard {
 public:
  explicit TF32Guard(bool allow = true);
  ~TF32Guard();
  TF32Guard(const TF32Guard&) = delete;
  TF32Guard& operator=(const TF32Guard&) = delete;

 private:
  bool previous_;
};

/** @brief Whether a guard of this thread allows TF32. */
bool tf32_allowed();

}  // namespace bs
