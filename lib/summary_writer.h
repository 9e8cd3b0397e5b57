#pragma once
/** @file Curves and histograms for TensorBoard. */
#include <bs/lib/tensor.h>

#include <string>
#include <string_view>

namespace bs {

/** @brief Writes a file of events into a folder that `tensorboard --logdir FOLDER` watches. Each
 *  call appends one record and hands it to the system, so that a killed run loses nothing.
 *  Used by one thread at a time. */
class SummaryWriter {
 public:
  /** @brief Begins a new file; the folder is made where it is missing. Several writers may share a
   *  folder: TensorBoard joins their files.
   *  @throws IoError naming the path. */
  explicit SummaryWriter(const std::string& folder);
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  /** @brief A point of the curve `tag`, for example "train/loss". NaN and infinity are allowed.
   *  @throws IoError when the disk is full; Error for a tag that is empty or not UTF-8. */
  void add_scalar(std::string_view tag, double value, int64_t step);
  /** @brief The distribution of all finite elements, in `bins` bins of equal width from the least
   * to the greatest. Waits for the device. @throws as add_scalar; Error for no bins, or for a
   * tensor that is undefined or not floating. */
  void add_histogram(std::string_view tag, const Tensor& values, int64_t step, int bins = 64);
  /** @brief Text, shown as Markdown. @throws as add_scalar. */
  void add_text(std::string_view tag, std::string_view text, int64_t step);

  /** @brief The file that it writes. */
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;  // bytes of whole records
};

}  // namespace bs
