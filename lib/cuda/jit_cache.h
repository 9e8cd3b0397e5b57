#pragma once
/** @file The parts behind jit.h: what identifies a kernel, the folder on disk, dumps, recordings.
 */
#include <bs/lib/cuda/jit.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bs::cuda::jit {

/** @brief The headers that `source` includes, directly or not, in order of the first inclusion. */
std::vector<const Header*> included(const Source& source);

/** @brief All beside the code itself that the machine code depends on: format, name, architecture,
 *  NVRTC's version, options, headers. A few lines. */
std::string identity(const Source& source, int capability);

/** @brief `name-digest`, 128 bits of SHA-256: the name under which files of a kernel are kept. */
std::string file_stem(const Source& source, const std::string& identity);

/** @brief Options that every kernel is compiled with, the architecture left out. */
const std::vector<std::string>& compile_options();

/** @brief Whether `name` can be a kernel's: letters, digits and '_', at most 200 of them. */
bool is_kernel_name(std::string_view name);

/** @brief `$BS_CACHE_DIR`, `$XDG_CACHE_HOME/bs` or `~/.cache/bs`; empty when none is known. */
std::string cache_folder();

/** @brief The kept kernel, if it is there and whole, and nobody but this user or root can have
 *  written it. */
std::optional<Binary> load_cached(const Source& source, const std::string& identity);
/** @brief Keeps a kernel, in a folder of mode 0700 where it makes that. What goes wrong is told on
 *  stderr once, and otherwise has no effect. */
void store_cached(const Source& source, const std::string& identity, const Binary& binary);

/** @brief A text kept beside the kernels under `name`, by the same rules. */
std::optional<std::string> load_text(const std::string& name);
/** @brief Keeps it: readers find all of the old text or all of the new one. What goes wrong has no
 *  effect. */
void store_text(const std::string& name, std::string_view text);

/** @brief BS_JIT_DUMP: writes source and machine code there, and a line about them to stderr. */
void dump(const Source& source, const std::string& identity, const Binary& binary,
          std::string_view origin);
/** @brief BS_JIT_RECORD: appends the source to that file, one line of JSON. */
void record(const Source& source, int capability);

/** @brief A kernel that a program needed. */
struct Recorded {
  Source source;
  int capability = 0;  ///< of the GPU it ran on
};
/** @brief What a file of BS_JIT_RECORD holds, each kernel once.
 *  @throws IoError naming the line that is none of ours. */
std::vector<Recorded> read_recorded(const std::string& path, std::span<const Header> headers);

}  // namespace bs::cuda::jit
