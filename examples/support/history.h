#pragma once
/** @file How a run went: metrics.jsonl, one JSON object a line, and the same in memory. */
#include <bs/lib/file.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bs::example {

/** @brief Named numbers of one moment. */
struct Metrics {
  int64_t step = 0;  ///< from 1
  std::vector<std::pair<std::string, double>> values;

  /** @throws IoError where there is no such number. */
  double at(const std::string& name) const;
};

/** @brief A file descriptor of ours. */
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor();
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/** @brief Appends to metrics.jsonl, and remembers. Steps have a number named `loss`; what has none
 *  is an evaluation. One History at a time writes in a folder. */
class History {
 public:
  /** @brief Goes on with `folder`/metrics.jsonl after `step`: what it has of later steps, from a
   * run that was killed after its last checkpoint, is dropped, and so is half a line at its end.
   * Step 0 starts a new file. The file is replaced in one go: a kill leaves the old one or the new
   * one.
   *  @throws IoError when another process writes there, when the file cannot be written, or when a
   *  line of it cannot be read; the file is the old one or the new one then. */
  History(const std::string& folder, int64_t step);
  void add(const Metrics& metrics);

  /** @brief The steps for a picture: all of a short run, of a long one every second, fourth and so
   *  on, never more than `most`, and always the last. The file has all. */
  const std::vector<Metrics>& steps() const { return steps_.kept(); }
  /** @brief The evaluations, in the same way. */
  const std::vector<Metrics>& evaluations() const { return evaluations_.kept(); }
  static constexpr size_t most = 8192;

 private:
  /// A series of which memory keeps a part.
  class Series {
   public:
    void add(Metrics metrics);
    const std::vector<Metrics>& kept() const { return kept_; }

   private:
    std::vector<Metrics> kept_;
    int64_t every_ = 1, seen_ = 0;  ///< of those seen, one in so many is kept
  };

  void read(int64_t last, AtomicFile& to);
  void remember(Metrics metrics);
  std::string path_;
  Descriptor lock_, file_;
  Series steps_, evaluations_;
};

/** @brief Makes the folder and opens its metrics.jsonl.
 *  @param[in] goes_on whether the run of this folder is resumed; otherwise a run that is there is
 *  moved to `folder`/previous-N, and a line on the screen says so
 *  @throws IoError naming --out. */
History open_history(const std::string& folder, int64_t step, bool goes_on);

}  // namespace bs::example
