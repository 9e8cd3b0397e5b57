#include <bs/kernels/resample.h>
#include <bs/lib/cuda/upload.h>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <array>
#include <bit>

namespace bs::cuda {

namespace {

using device::wide;

/// A map's lists as kernels read them.
template <class W>
struct Lists {
  const int* offsets;
  const int* from;
  const W* weights;
};

/// The lists of both axes in one piece of memory; weights first, which may have eight bytes.
template <class W>
struct UploadedLists {
  Tensor memory;
  Lists<W> rows, columns;

  UploadedLists(const ImageMap& map, Device device) {
    std::vector<int32_t> words;
    const size_t row_weights = put(words, map.rows), column_weights = put(words, map.columns);
    const size_t row_offsets = words.size();
    words.insert(words.end(), map.rows.offsets().begin(), map.rows.offsets().end());
    const size_t row_from = words.size();
    words.insert(words.end(), map.rows.from().begin(), map.rows.from().end());
    const size_t column_offsets = words.size();
    words.insert(words.end(), map.columns.offsets().begin(), map.columns.offsets().end());
    const size_t column_from = words.size();
    words.insert(words.end(), map.columns.from().begin(), map.columns.from().end());
    memory = upload(words, device);
    const auto* at = static_cast<const int*>(memory.data());
    rows = {at + row_offsets, at + row_from, reinterpret_cast<const W*>(at + row_weights)};
    columns = {at + column_offsets, at + column_from,
               reinterpret_cast<const W*>(at + column_weights)};
  }

 private:
  static size_t put(std::vector<int32_t>& words, const AxisMap& map) {
    const size_t first = words.size();
    for (const double weight : map.weights()) {
      const auto bits =
          std::bit_cast<std::array<int32_t, sizeof(W) / sizeof(int32_t)>>(static_cast<W>(weight));
      words.insert(words.end(), bits.begin(), bits.end());
    }
    return first;
  }
};

/// Images of H x W pixels of `packs` packs, and of P x Q.
struct Extents {
  uint32_t h, w;
  Divisor packs, q, p;
};

/// A thread a pack of N channels of an output.
template <class T, int N>
__global__ void __launch_bounds__(256)
    resample_kernel(const T* x, T* y, const __grid_constant__ Extents e, Lists<wide<T>> rows,
                    Lists<wide<T>> columns, wide<T> outside, uint32_t count) {
  using W = wide<T>;
  using Raw = device::Raw<T, N>;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t pixel = e.packs.divide(i), pack = i - pixel * e.packs.number;
  const uint32_t line = e.q.divide(pixel), q = pixel - line * e.q.number;
  const uint32_t image = e.p.divide(line), p = line - image * e.p.number;
  const int first_row = rows.offsets[p], last_row = rows.offsets[p + 1];
  const int first_column = columns.offsets[q], last_column = columns.offsets[q + 1];
  const Raw* from = reinterpret_cast<const Raw*>(x) +
                    static_cast<uint64_t>(image) * e.h * e.w * e.packs.number + pack;
  W sum[N] = {};
  for (int s = first_column; s < last_column; ++s) {
    const uint32_t column = columns.from[s];
    W of_column[N] = {};
#pragma unroll 4
    for (int r = first_row; r < last_row; ++r) {
      W v[N];
      device::widen_pack<T, N>(from[(rows.from[r] * e.w + column) * e.packs.number], v);
      const W weight = rows.weights[r];
#pragma unroll
      for (int k = 0; k < N; ++k) of_column[k] += weight * v[k];
    }
    const W weight = columns.weights[s];
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += weight * of_column[k];
  }
  if (first_row == last_row || first_column == last_column) {
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = outside;
  }
  store_pack<N>(y, i, sum);
}

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y,
              Stream stream) {
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const UploadedLists<W> lists(map, x.device());
    visit_pack<T>(aligned16(x, y), x.size(3), [&]<int N>(std::integral_constant<int, N>) {
      const int64_t packs = x.size(3) / N;
      const Extents e{static_cast<uint32_t>(x.size(1)), static_cast<uint32_t>(x.size(2)),
                      Divisor(packs), Divisor(y.size(2)), Divisor(y.size(1))};
      // As many images at a time as 32 bits count the packs of.
      const int64_t of_image = y.numel() / y.size(0) / N;
      const int64_t most = std::max<int64_t>(1, ((int64_t{1} << 31) - 1) / of_image);
      for (int64_t image = 0; image < y.size(0); image += most) {
        const int64_t count = std::min(most, y.size(0) - image) * of_image;
        resample_kernel<D, N>
            <<<static_cast<unsigned>(ceil_div(count, 256)), 256, 0, native(stream)>>>(
                pointer<T>(x) + image * (x.numel() / x.size(0)),
                pointer<T>(y) + image * of_image * N, e, lists.rows, lists.columns,
                static_cast<W>(outside), static_cast<uint32_t>(count));
        BS_CUDA_CHECK_LAUNCH("resample");
      }
    });
  });
}

}  // namespace bs::cuda
