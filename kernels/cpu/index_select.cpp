#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/integers.h>

#include <span>

namespace bs::cpu {

namespace {

/// The indices as i64; all of them are looked at before anything is read.
std::vector<int64_t> checked(const char* op, const Tensor& indices, int64_t extent) {
  std::vector<int64_t> out(static_cast<size_t>(indices.numel()));
  visit_index(op, indices.dtype(), [&]<class I>(Type<I>) {
    const I* from = indices.data<I>();
    for (size_t k = 0; k < out.size(); ++k) {
      out[k] = from[k];
      BS_CHECK(out[k] >= 0 && out[k] < extent, "{}: index {} at position {} is outside [0, {})", op,
               out[k], k, extent);
    }
  });
  return out;
}

/// The positions at which each row is named, in order.
class Places {
 public:
  Places(const Tensor& indices, int64_t extent, int64_t skip)
      : first_(static_cast<size_t>(extent) + 1) {
    visit_index("index_select_backward", indices.dtype(), [&]<class I>(Type<I>) {
      const std::span at(indices.data<I>(), static_cast<size_t>(indices.numel()));
      const auto counts = [=](I i) { return i >= 0 && i < extent && i != skip; };
      for (I i : at)
        if (counts(i)) ++first_[static_cast<size_t>(i) + 1];
      for (size_t i = 1; i < first_.size(); ++i) {
        if (first_[i] > 0) named.push_back(static_cast<int64_t>(i) - 1);
        first_[i] += first_[i - 1];
      }
      positions_.resize(static_cast<size_t>(first_.back()));
      std::vector<int64_t> next(first_.begin(), first_.end() - 1);
      for (size_t k = 0; k < at.size(); ++k)
        if (counts(at[k]))
          positions_[static_cast<size_t>(next[static_cast<size_t>(at[k])]++)] =
              static_cast<int64_t>(k);
    });
  }

  std::span<const int64_t> of(int64_t row) const {
    const int64_t* from = positions_.data() + first_[static_cast<size_t>(row)];
    return {from, positions_.data() + first_[static_cast<size_t>(row) + 1]};
  }

  std::vector<int64_t> named;  ///< rows that are named at all, in order

 private:
  std::vector<int64_t> first_;  ///< where each row's positions begin
  std::vector<int64_t> positions_;
};

/// Columns summed together: the cores share a row that many positions name.
constexpr int64_t strip = 64;

}  // namespace

void index_select(const Tensor& x, const Tensor& indices, const Tensor& y, const char* op, Stream) {
  const int64_t extent = x.size(1), inner = x.size(2);
  const int64_t count = y.size(1);
  const std::vector<int64_t> rows = checked(op, indices, extent);
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / inner);
    parallel_for(y.size(0) * count, grain, [&](int64_t begin, int64_t end) {
      if (inner == 1) {  // a copy of one element is a call that costs more than it
        for (int64_t r = begin; r < end;) {
          const T* line = from + r / count * extent;
          const int64_t* row = rows.data() + r % count;
          const int64_t some = std::min(count - r % count, end - r);
#pragma GCC unroll 4
          for (int64_t i = 0; i < some; ++i) to[r + i] = line[row[i]];
          r += some;
        }
        return;
      }
      for (int64_t r = begin; r < end; ++r) {
        const int64_t row = r / count * extent + rows[static_cast<size_t>(r % count)];
        std::copy_n(from + row * inner, inner, to + r * inner);
      }
    });
  });
}

void index_select_backward(const Tensor& dy, const Tensor& indices, const Tensor& dx, int64_t skip,
                           Stream) {
  const int64_t outer = dx.size(0), extent = dx.size(1), inner = dx.size(2);
  const int64_t count = dy.size(1);
  const Places places(indices, extent, skip);
  visit_floating("index_select_backward", dy.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    const int64_t row_grain = std::max<int64_t>(1, elementwise_grain / inner);
    parallel_for(outer * extent, row_grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        if (places.of(r % extent).empty()) std::fill_n(to + r * inner, inner, T());
    });
    const auto named = static_cast<int64_t>(places.named.size());
    const int64_t strips = ceil_div(inner, strip);
    const int64_t width = std::min(inner, strip);
    const int64_t additions = (count / std::max<int64_t>(1, named) + 1) * width;
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / additions);
    // Task (o, s, r), r fastest: strip s of the r-th row named, the sum over its positions in
    // order.
    parallel_for(outer * strips * named, grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(width);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = places.named[static_cast<size_t>(task % named)];
        const int64_t o = task / named / strips;
        const int64_t column = task / named % strips * strip;
        const int64_t n = std::min(strip, inner - column);
        alignas(64) W sums[strip] = {};
        for (int64_t k : places.of(row)) {
          const W* values = in.read(from + (o * count + k) * inner + column, n);
          for (int64_t c = 0; c < n; ++c) sums[c] += values[c];
        }
        T* out = to + (o * extent + row) * inner + column;
        if constexpr (RowBuffer<T>::converts) {
          narrow(n, sums, out);
        } else {
          std::copy_n(sums, n, out);
        }
      }
    });
  });
}

}  // namespace bs::cpu
