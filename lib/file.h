#pragma once
/** @file Files that are either whole or not there: writing through a temporary, checked reading. */
#include <bs/lib/tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bs {

/** @brief Writes a file beside its final place and moves it there when complete, so that nobody
 *  ever reads half of it, also after a power failure. Without commit() nothing is left behind. A
 *  process that is killed leaves its temporary file, PATH.<16 digits>.tmp; a later AtomicFile for
 * the same path removes it once it is a minute old and nobody holds it. */
class AtomicFile {
 public:
  /** @throws IoError when the folder is missing or not writable. */
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /** @throws IoError naming the path, for example when the disk is full. */
  void write(const void* data, size_t bytes);
  /** @brief Waits for the disk, then replaces whatever `path` named. */
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

/** @brief A file opened for reading from its beginning on. */
class InputFile {
 public:
  /** @throws IoError when it cannot be opened or is no regular file. */
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  /** @brief Bytes not read yet. */
  int64_t left() const { return size_ - position_; }
  /** @brief The next `bytes` bytes. @throws IoError when the file ends before. */
  void read(void* data, size_t bytes);
  std::string read_text(size_t bytes);

 private:
  std::string path_;
  int64_t size_ = 0;
  int64_t position_ = 0;
  int descriptor_ = -1;
};

/** @brief Writes the elements of any tensor in row-major order. */
void write_values(AtomicFile& file, const Tensor& tensor);
/** @brief Fills a contiguous host tensor with the next bytes of a file.
 *  @throws IoError when the file ends before, or holds a boolean that is neither 0 nor 1. */
void read_values(InputFile& file, const Tensor& host);

}  // namespace bs
