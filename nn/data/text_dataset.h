#pragma once
/** @file A text as a sequence of bytes. */
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bs::data {

/** @brief Bytes of a text, held in memory. A handle: copies and slices share the bytes. */
class TextDataset {
 public:
  /** @brief Reads a whole file. @throws IoError when it cannot be read. */
  static TextDataset read(const std::string& path);
  static TextDataset from(std::string_view text);

  int64_t size() const { return end_ - begin_; }
  std::span<const uint8_t> bytes() const;
  /** @brief The bytes [begin, end). @throws Error for a range that is not inside. */
  TextDataset slice(int64_t begin, int64_t end) const;

  struct Split;
  /** @brief Cuts the last share of the text off, to be held out from training.
   *  @throws Error for a share outside [0, 1]. */
  Split split(double held_out) const;

 private:
  std::shared_ptr<const std::vector<uint8_t>> storage_;
  int64_t begin_ = 0, end_ = 0;
};

struct TextDataset::Split {
  TextDataset train, held_out;
};

}  // namespace bs::data
