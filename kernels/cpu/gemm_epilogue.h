#pragma once
/** @file An epilogue on the CPU: its expression over neighbours of a row, one step after the other.
 */
#include <bs/kernels/gemm_epilogue.h>
#include <bs/lib/tensor.h>

#include <span>
#include <vector>

namespace bs::cpu {

/** @brief Where neighbours of a row lie. */
struct EpiloguePlace {
  int64_t batch = 0, row = 0, column = 0;
};

/** @brief Evaluates one epilogue in W, float or double; one for each thread. */
template <class W>
class EpilogueRows {
 public:
  static constexpr int64_t most = 512;  ///< neighbours at a time

  /** @param[in] operands [batch, m, n] each, of any strides; undefined where none is read */
  EpilogueRows(const GemmEpilogue& epilogue, std::span<const Tensor> operands,
               std::span<const double> scalars);

  /** @brief Computes and stores `count` neighbours, which lie `at` a place in rows and columns,
   * `in` a place in tensors of D's shape. Sums that are stored as they are need not fit W. */
  template <class Sum>
  void run(EpiloguePlace at, EpiloguePlace in, int64_t count, const Sum* sums);
  /** @brief The values of a step in the last run. */
  const W* values(int step) const { return values_[static_cast<size_t>(step)].data(); }

 private:
  void load(const epilogue::Step& step, EpiloguePlace at, int64_t count, W* out) const;
  void compute(const epilogue::Step& step, int64_t count, W* out) const;

  const GemmEpilogue& e_;
  std::span<const Tensor> operands_;
  std::span<const double> scalars_;
  std::vector<std::vector<W>> values_;  ///< [steps][most]
};

}  // namespace bs::cpu
