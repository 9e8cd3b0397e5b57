#pragma once
/** @file Which kernel multiplies two dense matrices: the vendor's library's, or ours. Pure
 *  functions of the problem and the GPU. */
#include <bs/lib/dtype.h>

#include <cstdint>

namespace bs::cuda {

/** @brief A product [batch, m, k] x [batch, k, n]. */
struct MatmulProblem {
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t a_matrices = 1, b_matrices = 1;  ///< that are not repetitions of one
};

enum class MatmulPath : uint8_t {
  library,  ///< cuBLAS
  parts,    ///< GemmOperation: f32 split into two tf32 numbers each, three products of warpgroups
};

constexpr int64_t in_whole(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }

/** @brief Seconds of an f32 product in parts: 12 bytes an element to split the operands, then waves
 *  of tiles of 128 x 128, in clusters of two down the rows, which take a step of a depth of 32 each
 *  microsecond. Measured on an H200, see bench/NOTES.md, "Dense products of GemmOperation". */
constexpr double seconds_in_parts(const MatmulProblem& p, int multiprocessors) {
  constexpr double launches = 10e-6, bytes_per_second = 3.5e12, step = .97e-6, tile = 3e-6;
  const int64_t elements = p.k * (p.a_matrices * p.m + p.b_matrices * p.n);
  const int64_t clusters = p.batch * in_whole(p.m, 256) * in_whole(p.n, 128);
  const int64_t waves = in_whole(clusters, multiprocessors / 2);
  return launches + 12 * static_cast<double>(elements) / bytes_per_second +
         static_cast<double>(waves) * (tile + step * static_cast<double>(in_whole(p.k, 32)));
}

/** @brief Seconds of an f32 product of the library: its rate at large sizes, which flatters it at
 *  small ones. */
constexpr double seconds_of_library(const MatmulProblem& p) {
  constexpr double flops_per_second = 51e12, launch = 4e-6;
  return launch +
         2 * static_cast<double>(p.batch * p.m * p.n) * static_cast<double>(p.k) / flops_per_second;
}

/** @brief The faster path. Parts only where they save a tenth, since they take memory for twice
 *  both operands, and only on Hopper. 16-bit and f64 products are the library's: ours are as fast
 *  at 16 bits, and pay where they save a pass by their epilogue. */
constexpr MatmulPath choose_matmul(const MatmulProblem& p, int capability, int multiprocessors) {
  constexpr int64_t most = int64_t{1} << 30;  // of an extent, in GemmOperation
  if (p.dtype != DType::f32 || capability != 90 || multiprocessors < 2 || p.m > most ||
      p.n > most || p.k > most)
    return MatmulPath::library;
  return seconds_in_parts(p, multiprocessors) < .9 * seconds_of_library(p) ? MatmulPath::parts
                                                                           : MatmulPath::library;
}

}  // namespace bs::cuda
