#pragma once
/** @file Work of a device that is recorded once and then runs again as one launch. */
#include <bs/lib/device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace bs::cuda {

/** @brief A CUDA graph of whatever operations a function calls, such as a step of training.
 *
 *      Graph step;
 *      step.capture([&] { optimizer.zero_grad(); loss = forward(inputs); loss.backward(); ... });
 *      for (...) { copy(batch, inputs); optimizer.set_learning_rate(rate); step.replay(); }
 *
 *  Recording computes nothing; each replay computes all of it, on the same memory. Tensors that
 *  were made before are read and written where they are: update inputs in place, and keep them.
 *  Tensors that the function makes are the graph's, and each replay writes them anew.
 *  From replay to replay some numbers go on as they would from step to step: an optimiser's step
 *  and rate, the decay of an average, and what a Generator draws. Other numbers of the host stay as
 *  they were. Results are bit for bit those of the same operations without a graph.
 *
 *  Run the function once before: tables and kernels are made then. It must not look at a value of
 *  the device nor copy from the host: an Error says what did. Optimisers and generators that it
 *  uses must outlive the graph. */
class Graph {
 public:
  /** @throws Error without CUDA. */
  explicit Graph(Device device = Device::cuda());
  /** @brief A graph that works on the memory of another one, and of those which share that.
   *  Together they hold little more than the largest, if that is captured first. A replay of one
   *  follows the last replay of any. It leaves nothing of what the others made: clone what is to be
   *  kept.
   *  @throws Error without CUDA, or where `beside` is of another device. */
  Graph(Device device, const Graph& beside);
  /** @brief Waits for the last replay. */
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /** @brief Records what `work` queues on the device, in place of what was recorded before. Gives
   *  memory that is cached back to the device, and waits for it, unless another thread records.
   *  @throws what `work` throws, and CudaError; nothing is recorded then. */
  void capture(const std::function<void()>& work);
  /** @brief Queues all of it on the current stream; the host waits for nothing. A replay follows
   *  the one before, whatever streams they are on. @throws Error where nothing was recorded. */
  void replay();

  bool captured() const;
  /** @brief Kernels, copies and fills of a replay. */
  int64_t nodes() const;
  /** @brief Bytes that it holds for what was made while recording; with all that share them. */
  int64_t bytes() const;

 private:
  struct Memory;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bs::cuda
