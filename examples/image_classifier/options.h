#pragma once
/** @file The command line. */
#include <bs/examples/support/run_options.h>

#include <cstdint>
#include <string>

namespace bs::example {

struct Options : RunOptions {
  std::string model = "resnet";  ///< or sparse, wrn, or sparse-wrn
  int block = 8;                 ///< channels a side of a block of a sparse model
  int depth = 8;                 ///< 6 n + 2 layers, of a WRN 6 n + 4
  int width = 16;                ///< channels of the first stage
  int widen = 1;                 ///< factor of all stages but the first convolution

  std::string data;
  int64_t size = 20;  ///< pixels a side
  int64_t batch = 64;
  bool augment = true;
  uint64_t seed = 1;

  int64_t steps = 1800;
  double learning_rate = 4e-3;
  bool prune = true;  ///< whether the last steps prune to densities .5, .25 and .1
  int64_t eval_every = 300;

  Options() { out = "image_classifier_run"; }
  bool is_sparse() const { return model.starts_with("sparse"); }
  bool is_wide() const { return model.ends_with("wrn"); }
};

/** @brief Reads the command line; see the options of every example in examples/support.
 *  @return false when only help was wanted, which has been printed
 *  @throws UsageError; IoError when the checkpoint cannot be read */
bool parse_options(int argc, char** argv, Options& options);

}  // namespace bs::example
