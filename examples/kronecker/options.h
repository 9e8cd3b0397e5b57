#pragma once
/** @file The command line. */
#include <bs/examples/support/run_options.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bs::example {

struct KroneckerOptions {
  std::string mode = "check";    ///< check, profile, bench, terrain or text
  std::vector<int64_t> extents;  ///< rows, then the factors, the first on the fastest axis
  DType dtype = f32;
  Device device;
  std::string trace = "kronecker_trace.json";  ///< of profile
  int wait = 3, warm_up = 1, active = 4;       ///< of profile: runs of each kind
  int runs = 20;                               ///< of bench
  std::string data;                            ///< of terrain: heights, a matrix in an .npy file;
                                               ///< of text: a file of bytes
  std::string out;                             ///< of terrain: file of the predicted heights
  int spacing = 2;                             ///< of terrain: every such row and column is known
  int steps = 0;                               ///< of the optimiser; terrain 60, text 2000
  std::string profile;                         ///< of text: file for a trace of some steps
  std::string graph = "auto";                  ///< of text: a step on a GPU as one launch, or not
  int64_t dense = 1500;                        ///< of terrain: points of the dense process
  bool smoke = false;

  int64_t rows() const { return extents.front(); }
  std::vector<int64_t> factors() const { return {extents.begin() + 1, extents.end()}; }
};

/** @brief Reads the command line.
 *  @return false when only help was wanted, which has been printed
 *  @throws UsageError */
bool parse_options(int argc, char** argv, KroneckerOptions& options);

}  // namespace bs::example
