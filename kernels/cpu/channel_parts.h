#pragma once
/** @file Slots of a channel norm cut into parts, and what parts come to. */
#include <bs/kernels/channel_norm.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/row_pieces.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cpu {

/** @brief Parts of [outer, n, inner] that stay in the first cache between two passes, cut by the
 * shape alone: sums do not depend on the number of threads. */
struct Parts {
  int64_t length, parts;

  explicit Parts(const ChannelSlots& s)
      : length(std::max<int64_t>(32, 8192 / s.inner)), parts(ceil_div(s.n, length)) {}
  int64_t count(const ChannelSlots& s, int64_t part) const {
    return std::min(length, s.n - part * length);
  }
};

/** @brief Calls f(o, part, first element, rows, width) for each part: rows of `inner` slots, or one
 * row of one slot. */
template <class F>
void for_each_part(const ChannelSlots& s, F&& f) {
  const Parts p(s);
  const bool is_plane = s.inner == 1;
  const int64_t size = p.length * s.inner;
  parallel_for(s.outer * p.parts, std::max<int64_t>(1, elementwise_grain / size),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t o = task / p.parts, part = task % p.parts;
                   const int64_t first = (o * s.n + part * p.length) * s.inner;
                   const int64_t count = p.count(s, part);
                   f(o, part, first, is_plane ? 1 : count, is_plane ? count : s.inner);
                 }
               });
}

/** @brief Sums of a part: one a column of its rows, or one of its plane. */
template <class W, bool columns>
class PartSums {
 public:
  /** @brief They are added to `to`. */
  explicit PartSums(W* to) : to_(to) {}
  /** @brief Where the piece from `begin` on is added. */
  W* at(int64_t begin) { return columns ? to_ + begin : of_plane_; }
  /** @brief Behind the last piece. */
  void finish() {
    if constexpr (!columns) {
#pragma GCC unroll 8
      for (int half = piece / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) of_plane_[i] += of_plane_[i + half];
      *to_ += of_plane_[0];
    }
  }

 private:
  W* to_;
  alignas(64) W of_plane_[columns ? 1 : piece] = {};
};

/** @brief Calls join(count so far, count of the part, first part's row, the part's row) for each
 * part but the first of [outer, parts, inner], in order: the first takes in the others, whole rows
 * at a time. */
template <class Join>
void join_parts(const ChannelSlots& s, Join&& join) {
  const Parts p(s);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t part = 1; part < p.parts; ++part)
      join(part * p.length, p.count(s, part), o * p.parts * s.inner,
           (o * p.parts + part) * s.inner);
}

/** @brief Calls f(index of the first part in [outer, parts, inner], channel) for the slots of a
 * set, in order. */
template <class F>
void for_each_slot(const ChannelSlots& s, int64_t set, F&& f) {
  const int64_t parts = Parts(s).parts, count = s.slots_of_set();
  const bool neighbours = s.neighbours > 0;
  const int64_t slot = neighbours ? set * count : set, channel = slot % s.channels;
  const int64_t first = slot / s.inner * parts * s.inner + slot % s.inner;
  const int64_t step = !neighbours ? s.channels * parts : s.inner == 1 ? parts : 1;
  for (int64_t i = 0; i < count; ++i) f(first + i * step, neighbours ? channel + i : channel);
}

/** @brief Calls f(slot, set, channel) for all slots. */
template <class F>
void for_all_slots(const ChannelSlots& s, F&& f) {
  const bool neighbours = s.neighbours > 0;
  const int64_t together = neighbours ? s.neighbours : s.channels;
  int64_t slot = 0;
  for (int64_t run = 0; slot < s.slots(); ++run) {
    const int64_t channel = slot % s.channels;
    for (int64_t i = 0; i < together; ++i, ++slot) f(slot, neighbours ? run : i, channel + i);
  }
}

}  // namespace bs::cpu
