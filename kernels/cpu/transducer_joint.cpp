#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/transducer_utterances.h>
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>

namespace bs::cpu {

namespace {

/// Columns that one item of the backward sums: they stay in the first-level cache.
constexpr int64_t slice = 256;

/// What becomes of the elements of a row of h: 0, or a factor.
struct Mask {
  const TransducerSizes& sizes;
  const TransducerJointOptions& options;
  RandomState state;
  detail::JointDropout dropout = detail::joint_dropout(options.dropout);

  /// Multiplies columns [begin, end) of row (b, t, u), `begin` a multiple of 8, by their factors.
  template <class W>
  void apply(W* values, int64_t b, int64_t t, int64_t u, int64_t begin, int64_t end) const {
    if (dropout.patterns == 0) return;
    const auto frame = static_cast<uint64_t>((options.first_utterance + b) * sizes.frames + t);
    const auto first = static_cast<uint64_t>(u * ((sizes.classes + 7) / 8));
    const auto scale = static_cast<W>(dropout.scale);
    uint32_t word[4][slice / 8];  // of many blocks at once, which the compiler computes together
    for (int64_t from = begin; from < end; from += slice) {
      const int64_t count = std::min(slice, end - from);
      for (int64_t k = 0; k < (count + 7) / 8; ++k) {
        const uint64_t block = first + static_cast<uint64_t>(from / 8 + k);
        const PhiloxBlock bits = philox(state.seed, frame << 32 | block, state.offset);
        for (int i = 0; i < 4; ++i) word[i][k] = bits.word[i];
      }
      for (int64_t j = 0; j < count; ++j) {
        const uint32_t bits = word[j % 8 / 2][j / 8] >> (16 * (j % 2));
        W& value = values[from - begin + j];
        value = dropout.drops(bits) ? W{0} : value * scale;
      }
    }
  }
};

std::vector<Utterance> located(const char* op, const TransducerSizes& s, const Tensor& frames,
                               const Tensor& labels) {
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64);
  locate(op, s, frames, labels, table);
  return utterances_of(s, table);
}

/// One utterance's gradients in columns [begin, end), over all of its frames and labels.
template <class T>
class SliceGradient {
 public:
  using W = Wide<T>;

  SliceGradient(const TransducerSizes& s, const Mask& mask, int64_t begin, int64_t end)
      : s_(s),
        mask_(mask),
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
        for (int64_t u = 0; u <= one.labels; ++u)
          add(x, g + (one.number * (s_.labels + 1) + u) * n + begin_,
              dh + one.row_of(t, u) * n + begin_, one.number, t, u);
      }
      put(df_.data(), df + row);
    }
    for (int64_t u = 0; u <= s_.labels; ++u)
      put(dg_.data() + u * n_, dg + (one.number * (s_.labels + 1) + u) * n + begin_);
  }

 private:
  void add(const W* x, const T* g, const T* dh, int64_t b, int64_t t, int64_t u) {
    const W* y = g_.read(g, n_);
    const W* d = dh_.read(dh, n_);
    W* m = masked_.data();
    const bool relu = mask_.options.relu;
    for (int64_t j = 0; j < n_; ++j) m[j] = relu && !(x[j] + y[j] > 0) ? W{0} : d[j];
    mask_.apply(m, b, t, u, begin_, begin_ + n_);
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
  const Mask& mask_;
  int64_t begin_, n_;
  RowBuffer<T> f_, g_, dh_, out_;
  std::vector<W> masked_, df_, dg_;
};

}  // namespace

void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths,
                      const Tensor& target_lengths, const Tensor& h, const TransducerSizes& s,
                      const TransducerJointOptions& options, RandomState state, Stream) {
  const std::vector<Utterance> utterances =
      located("transducer_joint", s, logit_lengths, target_lengths);
  const Mask mask{s, options, state};
  const int64_t n = s.classes;
  visit_floating("transducer_joint", f.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const double work = static_cast<double>(h.numel());
    parallel_each(s.batch * s.frames, team_size(work, elementwise_grain), [&](int64_t i) {
      const Utterance& one = utterances[static_cast<size_t>(i / s.frames)];
      const int64_t t = i % s.frames;
      if (s.packed && t >= one.frames) return;
      RowBuffer<T> f_row(n), g_row(n), h_row(n);
      const W* x = f_row.read(f.data<T>() + i * n, n);
      for (int64_t u = 0; u < one.stride; ++u) {
        T* to = h.data<T>() + one.row_of(t, u) * n;
        if (t >= one.frames || u > one.labels) {
          std::fill_n(to, n, T{});
          continue;
        }
        const W* y = g_row.read(g.data<T>() + (one.number * (s.labels + 1) + u) * n, n);
        W* out = h_row.target(to);
        for (int64_t j = 0; j < n; ++j) out[j] = x[j] + y[j];
        if (options.relu)
          for (int64_t j = 0; j < n; ++j) out[j] = out[j] < 0 ? W{0} : out[j];
        mask.apply(out, one.number, t, u, 0, n);
        h_row.write(to, n);
      }
    });
  });
}

void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                               const Tensor& logit_lengths, const Tensor& target_lengths,
                               const Tensor& df, const Tensor& dg, const TransducerSizes& s,
                               const TransducerJointOptions& options, RandomState state, Stream) {
  const std::vector<Utterance> utterances =
      located("transducer_joint_backward", s, logit_lengths, target_lengths);
  const Mask mask{s, options, state};
  const int64_t slices = (s.classes + slice - 1) / slice;
  visit_floating("transducer_joint_backward", f.dtype(), [&]<class T>(Type<T>) {
    const double work = static_cast<double>(dh.numel());
    parallel_each(s.batch * slices, team_size(work, elementwise_grain), [&](int64_t i) {
      const int64_t begin = i % slices * slice;
      SliceGradient<T> gradient(s, mask, begin, std::min(begin + slice, s.classes));
      gradient.run(utterances[static_cast<size_t>(i / slices)], f.data<T>(), g.data<T>(),
                   dh.data<T>(), df.data<T>(), dg.data<T>());
    });
  });
}

}  // namespace bs::cpu
