#pragma once
/** @file What every example can be told. */
#include <bs/lib/device.h>
#include <bs/lib/dtype.h>
#include <bs/nn/checkpoint.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

namespace bs::example {

struct RunOptions {
  DType dtype = f32;
  Device device;
  std::string out;                               ///< folder of what the run writes
  std::shared_ptr<const nn::Checkpoint> resume;  ///< what to go on from; null: start afresh
  bool goes_on = false;        ///< whether `resume` is the checkpoint of the run in `out`
  std::string profile;         ///< file for a trace of some steps; empty: none
  std::string graph = "auto";  ///< whether a step on a GPU is one launch: auto, on or off
  bool smoke = false;
  /** Name and text of every option that a later --resume takes over; always UTF-8. */
  std::map<std::string, std::string> kept;
  std::string shape;  ///< those of `kept` that the model's size follows, as words
};

/** @brief The command line is wrong; the text is one line for the user. */
class UsageError : public Error {
 public:
  using Error::Error;
};

/** @brief Training has come to a loss or gradients that are not finite. The last checkpoint is from
 *  before that. */
class Diverged : public Error {
 public:
  using Error::Error;
};

/** @brief Throws Diverged where `value`, of step `number`, is not finite. To be asked of what is
 *  known before a checkpoint is replaced: the last good one stays. */
inline void check_finite(const char* what, double value, int64_t number) {
  if (!std::isfinite(value))
    BS_THROW(Diverged, "the {} is {} at step {}: a lower --lr or a longer --warmup may help", what,
             value, number);
}

/** @brief Where a run in this folder keeps its state. */
inline std::string checkpoint_path(const std::string& out) {
  return out + "/checkpoint.safetensors";
}

inline constexpr int interrupted_status = 130;  ///< what a shell reports for Ctrl-C

}  // namespace bs::example
