#pragma once
/** @file From where the numbers of a GPU come: the table, the device, or a measurement that is kept
 *  beside the compiled kernels. Pure functions, which no GPU is needed for. */
#include <bs/kernels/cuda/gpu/gpu.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace bs::cuda {

/** @brief A number that no device tells. */
struct MeasuredNumber {
  const char* name;
  double Gpu::*field;
  double least, most;  ///< what any GPU can have
};
inline constexpr MeasuredNumber measured_numbers[] = {
    {"clock", &Gpu::clock, 0.2, 6},
    {"copy_rate", &Gpu::copy_rate, 10, 1e5},
    {"launch", &Gpu::launch, 300, 1e5},
    {"line_cycles", &Gpu::line_cycles, 0.25, 100},
    {"half_products", &Gpu::half_products, 16, 1e5},
    {"tf32_products", &Gpu::tf32_products, 8, 1e5},
};
inline constexpr size_t measured_count = std::size(measured_numbers);

/** @brief Those numbers in their order; 0 for one that could not be measured. */
using Measured = std::array<double, measured_count>;

/** @brief To three digits, and 0 for each that is no GPU's: outside its bounds, or not finite. */
Measured plausible(const Measured& measured);
/** @brief Whether all were measured. Others are not kept. */
bool is_complete(const Measured& measured);

/** @brief What a measurement holds for. */
struct GpuKey {
  std::string name = {};
  int capability = 0;
  int multiprocessors = 0;
  int clock = 0;   ///< kHz, as the device says
  int driver = 0;  ///< as CUDA numbers it
};

/** @brief Whether Gpu's own values are those of this GPU: an H100 or H200. */
bool is_in_table(const GpuKey& key);

/** @brief The name of the file that measurements are kept in. */
std::string measured_file(const GpuKey& key);
/** @brief Its text. */
std::string format_measured(const GpuKey& key, const Measured& measured);
/** @brief What such a text says; nothing where any of it is not what format_measured() writes for
 *  this key and numbers that a GPU can have. */
std::optional<Measured> parse_measured(std::string_view text, const GpuKey& key);

/** @brief Whence a number comes. */
enum class Origin { table, asked, measured, assumed };

/** @brief A GPU, and whence its numbers come. */
struct GpuModel {
  Gpu gpu = {};
  Origin told = Origin::asked;                      ///< what a device tells
  std::array<Origin, measured_count> origins = {};  ///< of the numbers that were measured
};

/** @brief The stand-in where there is no GPU. */
GpuModel stand_in_model();
/** @brief Of a GPU of the table, by what the device told. */
GpuModel table_model(const Gpu& asked);
/** @brief Of any other. What was not measured is an H100's, by cycles and multiprocessors; copies
 *  reach the share of the bus that an H100's do. */
GpuModel measured_model(const Gpu& asked, const Measured& measured);

/** @brief A line for each number, with its unit and its origin. */
std::string describe(const GpuModel& model);

}  // namespace bs::cuda
