#pragma once
/** @file Where the utterances of a batch lie, dense or packed, on the host. */
#include <bs/kernels/transducer_loss.h>

#include <algorithm>
#include <vector>

namespace bs::cpu {

inline std::vector<int64_t> read_integers(const char* op, const Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(t.numel()));
  visit_index(op, t.dtype(),
              [&]<class I>(Type<I>) { std::copy_n(t.data<I>(), out.size(), out.begin()); });
  return out;
}

/// One utterance's rows of logits and its cells, which lie in the order of packed rows.
struct Utterance {
  int64_t number, row, cell, frames, labels;
  int64_t stride;  ///< rows from one frame to the next

  int64_t columns() const { return labels + 1; }
  int64_t row_of(int64_t t, int64_t u) const { return row + t * stride + u; }
  int64_t cell_of(int64_t t, int64_t u) const { return cell + t * columns() + u; }
};

/// From the table that locate() wrote, or a caller of a backward function made up.
inline std::vector<Utterance> utterances_of(const char* op, const TransducerSizes& s,
                                            const Tensor& table) {
  const int64_t* entry = table.data<int64_t>();
  std::vector<Utterance> out;
  for (int64_t b = 0; b < s.batch; ++b, entry += 4) {
    const int64_t row = entry[0], frames = entry[1], labels = entry[2];
    BS_CHECK(labels >= 0 && labels <= s.labels && frames >= 0 && frames <= s.frames && row >= 0 &&
                 row <= s.rows - (s.packed ? frames * (labels + 1) : s.frames * (s.labels + 1)),
             "{}: utterance {} of {} frames and {} labels at row {} of {}", op, b, frames, labels,
             row, s.rows);
    out.push_back({b, row, row + b * s.labels * (s.labels + 1), frames, labels,
                   s.packed ? labels + 1 : s.labels + 1});
  }
  return out;
}

/// The row behind all utterances' rows, where what packed rows have left begins.
inline int64_t end_of(const TransducerSizes& s, const std::vector<Utterance>& utterances) {
  if (!s.packed || utterances.empty()) return s.rows;
  const Utterance& last = utterances.back();
  return last.row + last.frames * last.columns();
}

/// Checks the lengths, full ones where they are undefined, and writes down where each utterance
/// begins: row, frames, labels, and 1.
inline void locate(const char* op, const TransducerSizes& s, const Tensor& logit_lengths,
                   const Tensor& target_lengths, const Tensor& table) {
  const auto read = [&](const Tensor& lengths, int64_t full) {
    return lengths.defined() ? read_integers(op, lengths)
                             : std::vector<int64_t>(static_cast<size_t>(s.batch), full);
  };
  const std::vector<int64_t> frames = read(logit_lengths, s.frames);
  const std::vector<int64_t> labels = read(target_lengths, s.labels);
  int64_t* entry = table.data<int64_t>();
  int64_t row = 0;
  for (int64_t b = 0; b < s.batch; ++b, entry += 4) {
    const int64_t t = frames[static_cast<size_t>(b)];
    const int64_t u = labels[static_cast<size_t>(b)];
    BS_CHECK(u >= 0 && u <= s.labels, "{}: target_lengths[{}] is {}, outside of [0, {}]", op, b, u,
             s.labels);
    BS_CHECK(t >= 0 && t <= s.frames, "{}: logit_lengths[{}] is {}, outside of [0, {}]", op, b, t,
             s.frames);
    std::copy_n(std::initializer_list<int64_t>{row, t, u, 1}.begin(), 4, entry);
    row += s.packed ? t * (u + 1) : s.frames * (s.labels + 1);
  }
  BS_CHECK(row <= s.rows, "{}: {} packed rows, but lengths that make {}", op, s.rows, row);
  std::copy_n(std::initializer_list<int64_t>{row, 0, 0, 0}.begin(), 4, entry);
}

}  // namespace bs::cpu
