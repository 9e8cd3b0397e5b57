#pragma once
/** @file A harness gives the bytes it is called with to one reader. The reader may refuse them with
 *  bs::Error and nothing else; what it takes must survive being written and read again. */
#include <bs/lib/tensor.h>

#include <string>
#include <string_view>

namespace bs::fuzz {

/** @brief One harness; a program has one (libFuzzer's) or all of them (replay.cpp's). */
struct Harness {
  const char* name;
  void (*run)(std::string_view bytes);
  const Harness* next = nullptr;

  Harness(const char* called, void (*body)(std::string_view));
};
/** @brief The harnesses of this program, as a list. */
const Harness* harnesses();

/** @brief Whether `read` takes what it is given; false where it throws bs::Error. */
template <class Read>
bool takes(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/** @brief Ends the program, which is how a finding is told, unless `good`. */
void require(bool good, const char* what);

/** @brief The path of a file with these bytes, in memory where the system has such a folder. */
std::string file_of(const char* name, std::string_view bytes);
/** @brief The path of a file that may not be there; its folder is this process's own. */
std::string path_of(const std::string& name);

/** @brief Makes a folder under that of path_of(), if it is not there. */
void make_folder(const std::string& path);

/** @brief Whether two contiguous host tensors have one shape, dtype and bytes. */
bool same(const Tensor& a, const Tensor& b);

/** @brief Takes numbers from the front of the bytes; zeros where they end. */
template <class T>
T take(std::string_view& bytes) {
  T value{};
  const size_t size = bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
  bytes.remove_prefix(size);
  return value;
}

}  // namespace bs::fuzz

/** Defines the harness of a source: `BS_HARNESS(npy) { read(bytes); }`. */
#define BS_HARNESS(name)                                            \
  static void run_##name(std::string_view bytes);                   \
  static const bs::fuzz::Harness harness_##name(#name, run_##name); \
  static void run_##name(std::string_view bytes)
