#pragma once
/** @file What all optimisers are to a training loop and to a checkpoint. */
#include <bs/kernels/grad_norm.h>
#include <bs/nn/module.h>

#include <string>
#include <vector>

namespace bs::optim {

/** @brief A tensor of an optimiser's state, such as "blocks.0.fc1.weight.first_moment". */
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/** @brief Changes parameters by their gradients.
 *
 *  State is made for the parameters as they are: make the optimiser after moving, converting and
 *  loading the model. Parameters of 16 bits get an f32 copy, which the steps are done on. */
class Optimizer {
 public:
  Optimizer() = default;
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /** @brief One step with the gradients at hand, scaled by `clip` first. Parameters without a
   *  gradient stay as they are. Waits for no device. Recorded in a cuda::Graph it is
   *  done, with the rate as set and the next number, by each replay.
   *
   *  The number counts the steps of the optimiser, and moments are corrected by it. PyTorch counts
   *  those of each parameter, which differ where a parameter had no gradient in some step.
   *
   *  Where it throws, no step is counted, and on the CPU nothing has changed. Each rule gets its
   *  memory before the first parameter of the first group moves. */
  void step(const GradientClip& clip = {});
  /** @brief Forgets the gradients of all parameters. */
  void zero_grad() const;
  /** @brief Sets the rate of all groups. @throws Error for a rate that is negative or not finite.
   */
  void set_learning_rate(double rate);
  /** @brief Sets the rate of each group to `factor` times the one that it was made with. */
  void scale_learning_rates(double factor);

  /** @brief Steps done so far. */
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);
  /** @brief The tensors that make up the state, in a fixed order: to be saved, and restored by
   *  copying into them. */
  virtual std::vector<NamedTensor> state() const = 0;

 protected:
  /** @brief The rates of the groups, to be changed. */
  virtual std::vector<double*> rates() = 0;
  /** @brief Remembers the rates; to be called once all groups are made. @throws Error where there
   * is no parameter, or a rate is negative or not finite. */
  void begin();
  /** @brief One step of number `number`, from 1. */
  virtual void apply(int64_t number, const GradientClip& clip) = 0;
  /** @brief Takes a parameter into zero_grad's care. @throws Error for a name or a
   *  parameter taken, or one that cannot learn. */
  void adopt(const nn::NamedVariable& parameter);

 private:
  std::vector<nn::NamedVariable> parameters_;
  std::vector<double> first_rates_;
  int64_t steps_ = 0;
};

/** @brief An f32 copy of a 16-bit tensor; undefined for other dtypes. */
Tensor master_copy(const Tensor& value);
/** @brief Zeros of `shape` in the dtype of `value`'s optimiser state: f32, or f64 for f64. */
Tensor state_like(const Tensor& value, const Shape& shape);
/** @brief The same of `value`'s shape. */
inline Tensor state_like(const Tensor& value) { return state_like(value, value.shape()); }

/** @brief Parameters by rank, without frozen ones. Decay is for what multiplies: matrices and
 * tables, of rank 2 and up; biases and the weights of norms are left free. */
struct DecaySplit {
  std::vector<nn::NamedVariable> decayed, free;
};
DecaySplit split_for_decay(const nn::Module& module);
/** @brief The parameters of a module but for frozen ones, which require no gradient. */
std::vector<nn::NamedVariable> trainable(const nn::Module& module);

}  // namespace bs::optim
