#pragma once
/** @file Batches of tensors, in order or shuffled, made ahead on threads. */
#include <bs/lib/tensor.h>
#include <bs/nn/data/cursor.h>
#include <bs/nn/data/prefetch.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace bs::data {

/** @brief Samples by number. Each is a list of tensors, such as an input and its target; all
 * samples have as many, of the same dtypes. */
struct Dataset {
  int64_t size = 0;
  std::function<std::vector<Tensor>(int64_t index)> sample;  ///< called from several threads
};

/** @brief The positions of the first axis of tensors that are equally long; views, not copies. */
Dataset tensor_dataset(std::vector<Tensor> tensors);
/** @brief The samples of `from` after `map`, which sees the number too, so that an augmentation may
 *  draw its random numbers from it. */
Dataset mapped(Dataset from,
               std::function<std::vector<Tensor>(std::vector<Tensor> sample, int64_t index)> map);
/** @brief The samples of `from` that `indices` name. */
Dataset subset(Dataset from, std::vector<int64_t> indices);
/** @brief The samples of one behind those of the other. All have as many tensors, of the same
 * dtypes.
 *  @throws Error for sizes that do not add up to 64 bits. */
Dataset joined(Dataset first, Dataset second);
/** @brief Subsets of these sizes that share no sample: an order drawn from `seed`, cut into parts.
 *  @throws Error unless no size is negative and they add up to that of `from`. */
std::vector<Dataset> random_split(const Dataset& from, const std::vector<int64_t>& sizes,
                                  uint64_t seed = 0);

/** @brief Samples stacked along a new first axis. @throws Error where shapes differ. */
std::vector<Tensor> stacked(std::span<const std::vector<Tensor>> samples);

struct DataLoaderOptions {
  int64_t batch = 32;
  bool shuffle = false;  ///< a new order each epoch, a function of seed and epoch; 8 bytes a sample
  uint64_t seed = 0;
  bool drop_last = false;  ///< whether an epoch's last batch is left out where it is short
  int prefetch = 2;        ///< batches made ahead on a thread of their own; 0: none, and no thread
  int workers = 1;         ///< threads that make the samples of a batch
  /** Where batches go. Tensors of up to 32 MiB go to a GPU through page-locked memory of the
   *  library, and nothing waits for the copy. There is no `pin_memory` to ask for. */
  Device device = Device::cpu();
  /** How samples become a batch; they are stacked without it. */
  std::function<std::vector<Tensor>(std::span<const std::vector<Tensor>>)> collate = {};
};

/** @brief An endless series of batches, epoch after epoch. Batch number n is a function of the
 * data, the options and n alone. So a run resumed at a cursor sees what it would have seen. */
class DataLoader : public Cursor {
 public:
  /** @throws Error for no samples, or options out of range. */
  DataLoader(Dataset dataset, DataLoaderOptions options = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /** @brief Batches in an epoch. */
  int64_t batches() const { return batches_; }
  /** @brief Epoch of the next batch, from 0. */
  int64_t epoch() const { return cursor_ / batches_; }
  /** @brief The batch at the cursor, which moves on. What is made ahead is made on the stream that
   *  is current at the first call after a seek. It must live as long as the loader.
   *  @throws what a sample or collate threw. */
  std::vector<Tensor> next();
  int64_t cursor() const override { return cursor_; }
  void seek(int64_t cursor) override;

 private:
  std::vector<int64_t> indices(int64_t number);
  void arrange(int64_t epoch);
  std::vector<Tensor> make(int64_t number, Stream stream);

  Dataset dataset_;
  DataLoaderOptions options_;
  int64_t batches_ = 0, cursor_ = 0;
  /// The samples of a shuffled epoch in its order. They belong to the thread that makes batches,
  /// which is that of `ahead_` where there is one.
  std::vector<int64_t> order_;
  int64_t ordered_ = -1;                                    ///< the epoch of `order_`
  std::unique_ptr<Prefetcher<std::vector<Tensor>>> ahead_;  ///< made by next() after a seek
};

}  // namespace bs::data
