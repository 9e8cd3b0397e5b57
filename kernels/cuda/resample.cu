#include <bs/kernels/resample.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/upload.h>
#include <bs/kernels/cuda/image_lanes.cuh>

#include <algorithm>
#include <array>
#include <cstring>

namespace bs::cuda {

namespace {

using device::wide;

/// What an axis makes an output of, where that is a few inputs.
template <class W, int most>
struct alignas(sizeof(W) == 8 ? 8 : 8 * most) Few {
  int from[most];  ///< -1 for none
  W weights[most];
};

/// An axis as such outputs.
template <class W, int most>
struct FewEach {
  const Few<W, most>* of;
};

/// An axis as lists of any length.
template <class W>
struct Lists {
  const int* offsets;
  const int* from;
  const W* weights;
};

int most_inputs(const AxisMap& map) {
  int most = 0;
  for (size_t o = 1; o < map.offsets().size(); ++o)
    most = std::max(most, map.offsets()[o] - map.offsets()[o - 1]);
  return most;
}

/// Both axes in one piece of memory, rows before columns; what may have eight bytes comes first.
class UploadedMap {
 public:
  template <class W>
  UploadedMap(const ImageMap& map, Device device, Type<W>)
      : most_(std::max(most_inputs(map.rows), most_inputs(map.columns))) {
    const AxisMap* const axes[] = {&map.rows, &map.columns};
    for (size_t i = 0; i < 2; ++i) {
      if (most_ <= 1) {
        put<Few<W, 1>>(few_of<W, 1>(*axes[i]), at_[i][0]);
      } else if (most_ == 2) {
        put<Few<W, 2>>(few_of<W, 2>(*axes[i]), at_[i][0]);
      } else {
        put<W>({axes[i]->weights().begin(), axes[i]->weights().end()}, at_[i][0]);
      }
    }
    for (size_t i = 0; most_ > 2 && i < 2; ++i) {
      put<int>(axes[i]->offsets(), at_[i][1]);
      put<int>(axes[i]->from(), at_[i][2]);
    }
    memory_ = upload(words_, device);
  }

  /// Calls f(rows, columns) with the kind of lists that there are.
  template <class W, class F>
  void visit(Type<W>, F&& f) const {
    if (most_ <= 1) {
      f(few<W, 1>(0), few<W, 1>(1));
    } else if (most_ == 2) {
      f(few<W, 2>(0), few<W, 2>(1));
    } else {
      f(lists<W>(0), lists<W>(1));
    }
  }

 private:
  template <class W, int most>
  static std::vector<Few<W, most>> few_of(const AxisMap& map) {
    std::vector<Few<W, most>> all(static_cast<size_t>(map.outputs()));
    for (size_t o = 0; o < all.size(); ++o) {
      std::ranges::fill(all[o].from, -1);
      for (int32_t i = map.offsets()[o]; i < map.offsets()[o + 1]; ++i) {
        const int place = i - map.offsets()[o];
        all[o].from[place] = map.from()[static_cast<size_t>(i)];
        all[o].weights[place] = static_cast<W>(map.weights()[static_cast<size_t>(i)]);
      }
    }
    return all;
  }
  template <class E>
  void put(const std::vector<E>& elements, size_t& first) {
    first = words_.size();
    const size_t bytes = elements.size() * sizeof(E);
    words_.resize(first + bytes / sizeof(int32_t));
    if (bytes > 0) std::memcpy(words_.data() + first, elements.data(), bytes);
  }
  template <class E>
  const E* at(size_t axis, size_t list) const {
    return reinterpret_cast<const E*>(static_cast<const int32_t*>(memory_.data()) +
                                      at_[axis][list]);
  }
  template <class W, int most>
  FewEach<W, most> few(size_t axis) const {
    return {at<Few<W, most>>(axis, 0)};
  }
  template <class W>
  Lists<W> lists(size_t axis) const {
    return {at<int>(axis, 1), at<int>(axis, 2), at<W>(axis, 0)};
  }

  int most_;  ///< inputs of an output
  std::vector<int32_t> words_;
  std::array<std::array<size_t, 3>, 2> at_{};  ///< of each axis: weights or few, offsets, from
  Tensor memory_;
};

/// Images of h x w pixels.
struct Extents {
  uint32_t h, w;
};

/// The output of row p and column q; false where no input has a part in it. All that it reads is
/// asked for at once.
template <class W, int N, class Lanes, int most>
__device__ bool sum_inputs(const Lanes& from, uint32_t w, uint32_t packs, FewEach<W, most> rows,
                           FewEach<W, most> columns, uint32_t p, uint32_t q, W (&sum)[N]) {
  const Few<W, most> row = rows.of[p], column = columns.of[q];
  W v[most][most][N];
#pragma unroll
  for (int s = 0; s < most; ++s)
#pragma unroll
    for (int r = 0; r < most; ++r)
      if (row.from[r] >= 0 && column.from[s] >= 0)
        from.load((static_cast<uint32_t>(row.from[r]) * w + static_cast<uint32_t>(column.from[s])) *
                      packs,
                  v[s][r]);
#pragma unroll
  for (int s = 0; s < most; ++s) {
    if (column.from[s] < 0) continue;
    W of_column[N] = {};
#pragma unroll
    for (int r = 0; r < most; ++r) {
      if (row.from[r] < 0) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) of_column[k] += row.weights[r] * v[s][r][k];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += column.weights[s] * of_column[k];
  }
  return row.from[0] >= 0 && column.from[0] >= 0;
}

template <class W, int N, class Lanes>
__device__ bool sum_inputs(const Lanes& from, uint32_t w, uint32_t packs, Lists<W> rows,
                           Lists<W> columns, uint32_t p, uint32_t q, W (&sum)[N]) {
  const int first_row = rows.offsets[p], last_row = rows.offsets[p + 1];
  const int first_column = columns.offsets[q], last_column = columns.offsets[q + 1];
  for (int s = first_column; s < last_column; ++s) {
    const auto column = static_cast<uint32_t>(columns.from[s]);
    W of_column[N] = {};
#pragma unroll 4
    for (int r = first_row; r < last_row; ++r) {
      W v[N];
      from.load((static_cast<uint32_t>(rows.from[r]) * w + column) * packs, v);
      const W weight = rows.weights[r];
#pragma unroll
      for (int k = 0; k < N; ++k) of_column[k] += weight * v[k];
    }
    const W weight = columns.weights[s];
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += weight * of_column[k];
  }
  return first_row < last_row && first_column < last_column;
}

/// A thread a place of an output.
template <class T, int N, bool planes, class Axis>
__global__ void __launch_bounds__(256)
    resample_kernel(const T* x, T* y, const __grid_constant__ Extents e,
                    const __grid_constant__ ImageWalk walk, Axis rows, Axis columns,
                    wide<T> outside, uint32_t count) {
  using W = wide<T>;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  W sum[N] = {};
  if (!sum_inputs<W, N>(walk.lanes<N, planes>(x, e.h * e.w, at), e.w, walk.packs.number, rows,
                        columns, at.line, at.column, sum)) {
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = outside;
  }
  walk.own<N, planes>(y, at).store(walk.own_place<planes>(at), sum);
}

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y,
              Stream stream) {
  const Extents e{static_cast<uint32_t>(x.size(1)), static_cast<uint32_t>(x.size(2))};
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const UploadedMap lists(map, x.device(), Type<W>{});
    visit_image_lanes<T>(
        aligned16(x, y), x, y,
        [&]<int N, bool planes>(std::integral_constant<int, N>, std::bool_constant<planes>) {
          walk_images<N, planes>(
              "resample", y, [&](int64_t image, const ImageWalk& walk, uint32_t count) {
                lists.visit(Type<W>{}, [&]<class Axis>(const Axis& rows, const Axis& columns) {
                  resample_kernel<D, N, planes, Axis>
                      <<<grid_of("resample", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                          pointer<T>(x) + image * (x.numel() / x.size(0)),
                          pointer<T>(y) + image * (y.numel() / y.size(0)), e, walk, rows, columns,
                          static_cast<W>(outside), count);
                  BS_CUDA_CHECK_LAUNCH("resample");
                });
              });
        });
  });
}

}  // namespace bs::cuda
