#pragma once
/** @file All steps of an LSTM in one kernel; kernels/cuda/device/lstm/lstm_persistent.cuh has the
 *  design, kernels/cuda/lstm/lstm_config.h what it can take. */
#include <bs/kernels/cuda/lstm/lstm_config.h>
#include <bs/kernels/lstm.h>

#include <span>

namespace bs::cuda {

/** @brief What the persistent kernels find on a device, as LstmQuery has it. */
struct LstmHost {
  int capability = 0;  ///< that they were compiled for, which may be less than the device's
  bool cooperative = false;
  int pairs = 0;  ///< clusters of two that run at once; of backward's kernels
};
/** @brief Asked for once a device and direction of the walk. */
LstmHost lstm_host(Device device);
LstmHost lstm_backward_host(Device device);

/** @brief Runs directions for which lstm_algorithm says `persistent`. */
void lstm_persistent(std::span<const LSTMSteps> directions, const LstmDivision& division,
                     Stream stream);
void lstm_persistent_backward(std::span<const LSTMBackwardSteps> directions,
                              const LstmDivision& division, Stream stream);

}  // namespace bs::cuda
