#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/transducer_utterances.h>
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/integers.h>
#include <bs/lib/philox.h>

#include <optional>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Columns that one item of the backward sums: they stay in the first-level cache.
constexpr int64_t slice = 256;

/// Which elements of h are dropped.
struct Dropout {
  const TransducerSizes& sizes;
  const TransducerJointOptions& options;
  RandomState state;
  detail::JointDropout rule = detail::joint_dropout(options.dropout);

  /// Multiplies row (b, t, u) by factors; `kept`: of which elements that is not zero.
  template <class W>
  void apply(W* values, uint8_t* kept, int64_t b, int64_t t, int64_t u) const {
    const auto frame = static_cast<uint64_t>((options.first_utterance + b) * sizes.frames + t);
    const auto first = static_cast<uint64_t>(u * ceil_div(sizes.classes, 8));
    const auto scale = static_cast<W>(rule.scale);
    uint32_t word[4][slice / 8];  // of many blocks at once, which the compiler computes together
    for (int64_t from = 0; from < sizes.classes; from += slice) {
      const int64_t count = std::min(slice, sizes.classes - from);
      for (int64_t k = 0; k < ceil_div(count, 8); ++k) {
        const uint64_t block = first + static_cast<uint64_t>(from / 8 + k);
        const PhiloxBlock bits =
            philox<detail::JointDropout::rounds>(state.seed, frame << 32 | block, state.offset);
        for (int i = 0; i < 4; ++i) word[i][k] = bits.word[i];
      }
      for (int64_t j = 0; j < count; ++j) {
        const bool keeps = !rule.drops(word[j % 8 / 2][j / 8] >> (16 * (j % 2)));
        kept[from + j] = keeps ? 1 : 0;
        values[from + j] = keeps ? values[from + j] * scale : W{0};
      }
    }
  }
};

/// The fields of a joint's bits, see detail::JointBits.
template <class T>
class Bits {
 public:
  static constexpr int G = 16 / sizeof(T);
  using Field = std::conditional_t<G == 8, uint32_t, std::conditional_t<G == 4, uint16_t, uint8_t>>;

  Bits(const TransducerSizes& s, const Tensor& words)
      : layout_(dtype_of<T>, s), data_(reinterpret_cast<Field*>(words.data<int32_t>())) {}

  /// Those of row (t, u) of an utterance.
  Field* row(const Utterance& one, int64_t t, int64_t u) const {
    const int64_t cell = t / detail::JointBits::frames * one.stride + u;
    return data_ + layout_.first(one.row, one.number) + cell * layout_.groups;
  }
  void clear(Field* row) const { std::fill_n(row, layout_.groups, Field{0}); }
  /// Adds the bits of n columns of frame t.
  static void put(Field* row, int64_t t, const uint8_t* kept, int64_t n) {
    each(t, n, [&](int64_t k, int64_t j, int bit) {
      row[k] = static_cast<Field>(row[k] | static_cast<uint32_t>(kept[j]) << bit);
    });
  }
  /// y = x * scale where the bit is set, else 0.
  static void mask(const Field* row, int64_t t, const Wide<T>* x, Wide<T> scale, Wide<T>* y,
                   int64_t n) {
    each(t, n, [&](int64_t k, int64_t j, int bit) {
      y[j] = (row[k] >> bit & 1) != 0 ? x[j] * scale : Wide<T>{0};
    });
  }

 private:
  /// Calls visit(group, column, bit) for n columns.
  template <class Visit>
  static void each(int64_t t, int64_t n, Visit visit) {
    const int frame = static_cast<int>(t % detail::JointBits::frames);
    for (int64_t k = 0; k * G < n; ++k)
      for (int c = 0; c < std::min<int64_t>(G, n - k * G); ++c)
        visit(k, k * G + c, detail::JointBits::bit(G, frame, c));
  }

  detail::JointBits layout_;
  Field* data_;
};

std::vector<Utterance> located(const char* op, const TransducerSizes& s, const Tensor& frames,
                               const Tensor& labels) {
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64);
  locate(op, s, frames, labels, table);
  return utterances_of(op, s, table);
}

/// Bits where some are dropped and some are not.
template <class T>
std::optional<Bits<T>> bits_of(const TransducerSizes& s, const detail::JointDropout& rule,
                               const Tensor& kept) {
  if (rule.patterns == 0 || rule.patterns == 65536) return {};
  return Bits<T>(s, kept);
}

/// One utterance's gradients in columns [begin, end), over all of its frames and labels.
template <class T>
class SliceGradient {
 public:
  using W = Wide<T>;

  /// `kept` and `scale`: of dropout, else null.
  SliceGradient(const TransducerSizes& s, bool relu, const Bits<T>* kept, double scale,
                int64_t begin, int64_t end)
      : s_(s),
        relu_(relu),
        kept_(kept),
        scale_(static_cast<W>(scale)),
        begin_(begin),
        n_(end - begin),
        f_(n_),
        g_(n_),
        dh_(n_),
        out_(n_),
        masked_(static_cast<size_t>(n_)),
        df_(static_cast<size_t>(n_)),
        dg_(static_cast<size_t>(n_ * (s.labels + 1))) {}

  void run(const Utterance& one, const T* f, const T* g, const T* dh, T* df, T* dg) {
    const int64_t n = s_.classes;
    for (int64_t t = 0; t < s_.frames; ++t) {
      std::fill(df_.begin(), df_.end(), W{0});
      const int64_t row = (one.number * s_.frames + t) * n + begin_;
      if (t < one.frames) {
        const W* x = f_.read(f + row, n_);
        for (int64_t u = 0; u <= one.labels; ++u) {
          const W* d = dh_.read(dh + one.row_of(t, u) * n + begin_, n_);
          if (kept_ != nullptr) {
            Bits<T>::mask(kept_->row(one, t, u) + begin_ / Bits<T>::G, t, d, scale_, masked_.data(),
                          n_);
          } else {
            mask(d, x, g_.read(g + (one.number * (s_.labels + 1) + u) * n + begin_, n_));
          }
          add(u);
        }
      }
      put(df_.data(), df + row);
    }
    for (int64_t u = 0; u <= s_.labels; ++u)
      put(dg_.data() + u * n_, dg + (one.number * (s_.labels + 1) + u) * n + begin_);
  }

 private:
  void mask(const W* d, const W* x, const W* y) {
    for (int64_t j = 0; j < n_; ++j)
      masked_[static_cast<size_t>(j)] = relu_ && x[j] + y[j] <= 0 ? W{0} : d[j];
  }
  void add(int64_t u) {
    const W* m = masked_.data();
    W* over_labels = df_.data();
    W* over_frames = dg_.data() + u * n_;
    for (int64_t j = 0; j < n_; ++j) over_labels[j] += m[j];
    for (int64_t j = 0; j < n_; ++j) over_frames[j] += m[j];
  }
  void put(const W* from, T* to) {
    std::copy_n(from, n_, out_.target(to));
    out_.write(to, n_);
  }

  const TransducerSizes& s_;
  bool relu_;
  const Bits<T>* kept_;
  W scale_;
  int64_t begin_, n_;
  RowBuffer<T> f_, g_, dh_, out_;
  std::vector<W> masked_, df_, dg_;
};

/// Rows of a cell's frames [begin, end) of one utterance.
template <class T>
struct Rows {
  using W = Wide<T>;
  const TransducerSizes& s;
  bool relu;
  const Dropout& dropout;
  const Bits<T>* bits;  ///< null: none, for none or all are dropped
  const T *f, *g;
  T* h;

  void run(const Utterance& one, int64_t begin, int64_t end) const {
    const int64_t n = s.classes;
    RowBuffer<T> f_row(n), g_row(n), h_row(n);
    std::vector<uint8_t> kept(static_cast<size_t>(n));
    for (int64_t t = begin; t < end; ++t) {
      if (s.packed && t >= one.frames) return;
      const W* x = f_row.read(f + (one.number * s.frames + t) * n, n);
      for (int64_t u = 0; u < one.stride; ++u) {
        T* to = h + one.row_of(t, u) * n;
        if (t >= one.frames || u > one.labels) {
          std::fill_n(to, n, T{});
          continue;
        }
        const W* y = g_row.read(g + (one.number * (s.labels + 1) + u) * n, n);
        W* out = h_row.target(to);
        for (int64_t j = 0; j < n; ++j) out[j] = x[j] + y[j];
        if (relu)
          for (int64_t j = 0; j < n; ++j) out[j] = out[j] < 0 ? W{0} : out[j];
        if (dropout.rule.patterns > 0) dropout.apply(out, kept.data(), one.number, t, u);
        if (bits != nullptr) {
          if (relu)
            for (int64_t j = 0; j < n; ++j) kept[static_cast<size_t>(j)] = out[j] <= 0 ? 0 : 1;
          auto* const row = bits->row(one, t, u);
          if (t == begin) bits->clear(row);
          Bits<T>::put(row, t, kept.data(), n);
        }
        h_row.write(to, n);
      }
    }
  }
};

}  // namespace

void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& h, const Tensor& kept,
                      const TransducerJointProblem& p, Stream) {
  const TransducerSizes& s = p.sizes;
  const std::vector<Utterance> utterances =
      located("transducer_joint", s, p.logit_lengths, p.target_lengths);
  const Dropout dropout{s, p.options, p.state};
  constexpr int64_t frames = detail::JointBits::frames;
  const int64_t cells = ceil_div(s.frames, frames);
  visit_floating("transducer_joint", f.dtype(), [&]<class T>(Type<T>) {
    const auto bits = bits_of<T>(s, dropout.rule, kept);
    const Rows<T> rows{s,           p.options.relu, dropout,    bits ? &*bits : nullptr,
                       f.data<T>(), g.data<T>(),    h.data<T>()};
    const double work = static_cast<double>(h.numel());
    parallel_each(s.batch * cells, team_size(work, elementwise_grain), [&](int64_t i) {
      const int64_t begin = i % cells * frames;
      rows.run(utterances[static_cast<size_t>(i / cells)], begin,
               std::min(begin + frames, s.frames));
    });
    std::fill(h.data<T>() + end_of(s, utterances) * s.classes, h.data<T>() + h.numel(), T{});
  });
}

void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                               const Tensor& kept, const Tensor& df, const Tensor& dg,
                               const TransducerJointProblem& p, Stream) {
  const TransducerSizes& s = p.sizes;
  const std::vector<Utterance> utterances =
      located("transducer_joint_backward", s, p.logit_lengths, p.target_lengths);
  const detail::JointDropout dropout = detail::joint_dropout(p.options.dropout);
  const int64_t slices = ceil_div(s.classes, slice);
  visit_floating("transducer_joint_backward", f.dtype(), [&]<class T>(Type<T>) {
    const auto bits = bits_of<T>(s, dropout, kept);
    const double work = static_cast<double>(dh.numel());
    parallel_each(s.batch * slices, team_size(work, elementwise_grain), [&](int64_t i) {
      const int64_t begin = i % slices * slice;
      SliceGradient<T> gradient(s, p.options.relu, bits ? &*bits : nullptr, dropout.scale, begin,
                                std::min(begin + slice, s.classes));
      gradient.run(utterances[static_cast<size_t>(i / slices)], f.data<T>(), g.data<T>(),
                   dh.data<T>(), df.data<T>(), dg.data<T>());
    });
  });
}

}  // namespace bs::cpu
