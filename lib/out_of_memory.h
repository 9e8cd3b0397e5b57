#pragma once
/** @file What is said where memory runs out. */
#include <bs/lib/device.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bs {

/** @brief Where the memory of a device is, in bytes. */
struct MemoryShares {
  int64_t total = 0;
  int64_t free = 0;
  int64_t tensors = 0;   ///< held by tensors of this process
  int64_t reserved = 0;  ///< by this process' pool, that of tensors included
  int64_t stranded = 0;  ///< freed, but kept back while graphs are recorded
};
/** @brief As "1.50 MiB". */
std::string in_units(int64_t bytes);
/** @brief What an OutOfMemory says: how much was wanted, who has the rest, what may help. */
std::string out_of_memory_text(Device device, size_t bytes, const MemoryShares& shares);

/** @brief Throws the OutOfMemory that stands for a std::bad_alloc: `operation` wanted memory of its
 *  own, beside that of tensors. Needs none itself; where there is none, its text names nobody.
 *  @code void save(...) try { ... } catch (const std::bad_alloc&) { out_of_own_memory("save"); }
 *  @endcode */
[[noreturn]] void out_of_own_memory(const char* operation);
/** @brief The same for an operation on a file, which the text names. */
[[noreturn]] void out_of_own_memory(const char* operation, const std::string& path);

}  // namespace bs
