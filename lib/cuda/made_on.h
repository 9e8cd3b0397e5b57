#pragma once
/** @file Lists that are made once on a device and kept with what they are derived from. */
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/kept.h>
#include <bs/lib/layout.h>

namespace bs::cuda {

/** @brief The stream on which lists are made, for others to wait for. */
class MadeOn {
 public:
  MadeOn() = default;
  explicit MadeOn(Stream stream) : made_(stream), stream_(stream), any_(true) {}

  /** @brief Lets `stream` use the lists, which are a part of what `kept` holds. Memory is given
   * back in the order of the stream it is of: what others use, or a graph, stays for good. */
  template <class T>
  void wait(const Kept<T>& kept, Stream stream) const {
    if (!any_) return;
    made_.wait(stream);
    if (stream != stream_ || is_captured(stream)) kept.pin();
  }

 private:
  Milestone made_;
  Stream stream_;
  bool any_ = false;
};

/** @brief Lists of a layout for `stream`, whose `made` is set here: made once and kept with the
 *  layout. A pattern that a device made may be another in each run of a graph. So lists that a
 * graph is recorded with are the graph's own. */
template <class T, class Key, class Make>
Kept<T> listed_on(const Layout& layout, const Key& key, Stream stream, const Make& make) {
  if (!layout.on_host() && is_captured(stream)) return Kept<T>::of(make());
  Kept<T> kept = layout.derived<T>(key, [&] {
    T lists = make();
    lists.made = MadeOn(stream);
    return lists;
  });
  kept->made.wait(kept, stream);
  return kept;
}

}  // namespace bs::cuda
