#pragma once
/** @file Files that are either whole or not there: writing through a temporary, checked reading. */
#include <bs/lib/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace bs {

/** @brief Writes a file beside its final place and moves it there when complete. So nobody ever
 *  reads half of it, also after a power failure. Without commit() nothing is left behind. A
 *  process that is killed leaves its temporary file, PATH.<16 digits>.tmp; a long name is cut. A
 *  later AtomicFile for the same path removes it once it is a minute old and nobody holds it. */
class AtomicFile {
 public:
  /** @throws IoError when the folder is missing or not writable. */
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /** @throws IoError naming the path, for example when the disk is full. */
  void write(const void* data, size_t bytes);
  /** @brief Waits for the disk, then replaces the file at `path`, behind links. */
  void commit();

 private:
  std::string path_;
  std::string target_;  ///< path_, behind links
  std::string temporary_;
  int descriptor_ = -1;
};

/** @brief Bytes that are read once, from the first to the last. */
class Input {
 public:
  virtual ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /** @brief What errors name. */
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  /** @brief Bytes not read yet. */
  int64_t left() const { return size_ - position_; }
  /** @brief The next `bytes` bytes. @throws IoError when there are fewer. */
  void read(void* data, size_t bytes);
  std::string read_text(size_t bytes);

 protected:
  explicit Input(std::string path, int64_t size = 0) : path_(std::move(path)), size_(size) {}
  void set_size(int64_t size) { size_ = size; }
  /** @brief Fetches what is there, as `left()` says. */
  virtual void fetch(void* data, size_t bytes) = 0;
  int64_t position() const { return position_; }
  void set_position(int64_t position) { position_ = position; }

 private:
  void check_left(size_t bytes) const;
  std::string path_;
  int64_t size_ = 0;
  int64_t position_ = 0;
};

/** @brief A file opened for reading from its beginning on. */
class InputFile : public Input {
 public:
  /** @throws IoError when it cannot be opened or is no regular file. */
  explicit InputFile(std::string path);
  ~InputFile() override;
  /** @brief Reads on from byte `position`. @throws IoError when the file is shorter. */
  void seek(int64_t position);
  /** @brief All its bytes, read when they are touched: a private map, which lives as long as its
   *  owners, this or not. Writing to it changes no file. @throws IoError, also for an empty file.
   */
  std::shared_ptr<std::byte> map() const;

 private:
  void fetch(void* data, size_t bytes) override;
  int descriptor_ = -1;
};

/** @brief Bytes in memory, which outlive it. */
class InputMemory : public Input {
 public:
  InputMemory(std::string path, std::string_view bytes)
      : Input(std::move(path), static_cast<int64_t>(bytes.size())), bytes_(bytes) {}

 private:
  void fetch(void* data, size_t bytes) override;
  std::string_view bytes_;
};

/** @brief Bytes of the elements that a file claims to have; none where no tensor has so many,
 *  whatever the order of its extents, one of which may be 0. */
std::optional<int64_t> tensor_bytes(const Shape& shape, size_t element);
/** @brief Writes the elements of any tensor in row-major order. */
void write_values(AtomicFile& file, const Tensor& tensor);
/** @brief Fills a contiguous host tensor with the next bytes.
 *  @throws IoError when there are fewer, or they hold a boolean that is neither 0 nor 1. */
void read_values(Input& file, const Tensor& host);

}  // namespace bs
