#pragma once
// What a thread works on of stored images [images, rows, columns, channels]: a pack of neighbouring
// channels of a pixel, or, of planes, which have one channel, the same pixel of several, so that
// what is found out about a pixel serves them all.
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

/// N elements at one place of some images, or several packs of N.
template <class T, int N, bool planes, int several = 1>
struct ImageLanes {
  T* data;
  uint32_t apart = 0;  ///< elements from plane to plane, or packs from one to the next
  int count = N;       ///< planes that there are

  using W = device::wide<std::remove_const_t<T>>;

  using Element = std::remove_const_t<T>;
  using Raw = device::Raw<Element, N>;

  /// As they lie in memory, of pack u.
  __device__ Raw raw(uint32_t at, uint32_t u = 0) const {
    if constexpr (planes) {
      device::Pack<Element, N> pack;
#pragma unroll
      for (int k = 0; k < N; ++k) pack.at[k] = data[at + (k < count ? k : 0) * apart];
      return reinterpret_cast<const Raw&>(pack);
    } else {
      return reinterpret_cast<const Raw*>(data)[at * several + u * apart];
    }
  }
  __device__ void load(uint32_t at, W (&values)[N], uint32_t u = 0) const {
    if constexpr (planes) {
      Element each[N];
#pragma unroll
      for (int k = 0; k < N; ++k) each[k] = data[at + (k < count ? k : 0) * apart];
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = device::widen(each[k]);
    } else {
      device::widen_pack<Element, N>(raw(at, u), values);
    }
  }
  __device__ void store(uint32_t at, const W (&values)[N], uint32_t u = 0) const {
    if constexpr (planes) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (k < count) data[at + k * apart] = device::narrow<T>(values[k]);
    } else {
      store_pack<N>(data, at * several + u * apart, values);
    }
  }
};

/// N bytes, which came as words or one by one.
template <int N, bool as_words>
struct Bytes {
  device::Pack<unsigned char, N> of;

  /// Whether byte k is `number`; of words, what differs is found for four bytes at a time.
  __device__ bool is(int k, unsigned char number) const {
    if constexpr (as_words && N % 4 == 0) {
      const unsigned word = reinterpret_cast<const unsigned*>(of.at)[k / 4];
      return ((word ^ number * 0x01010101U) & (0xffU << k % 4 * 8)) == 0;
    } else {
      return of.at[k] == number;
    }
  }
};

/// The same of bytes as they are.
template <int N, bool planes>
struct ByteLanes {
  unsigned char* data;
  uint32_t plane = 0;
  int count = N;

  __device__ Bytes<N, !planes> load(uint32_t at) const {
    if constexpr (planes) {
      Bytes<N, !planes> bytes;
#pragma unroll
      for (int k = 0; k < N; ++k) bytes.of.at[k] = data[at + (k < count ? k : 0) * plane];
      return bytes;
    } else {
      return reinterpret_cast<const Bytes<N, !planes>*>(data)[at];
    }
  }
  __device__ void store(uint32_t at, const Bytes<N, !planes>& bytes) const {
    if constexpr (planes) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (k < count) data[at + k * plane] = bytes.of.at[k];
    } else {
      reinterpret_cast<Bytes<N, !planes>*>(data)[at] = bytes;
    }
  }
};

/// Threads walk groups of images, an image or N planes, of lines x columns pixels of `packs` packs.
struct ImageWalk {
  Divisor packs, columns, lines;
  int images;  ///< or planes, of a launch

  struct Place {
    uint32_t pack, column, line, group;
    uint32_t thread;
  };
  __device__ Place place(uint32_t i) const {
    const uint32_t pixel = packs.divide(i), line = columns.divide(pixel);
    const uint32_t group = lines.divide(line);
    return {i - pixel * packs.number, pixel - line * columns.number, line - group * lines.number,
            group, i};
  }

  /// The same place in what the threads walk, and, by own_place(), the element of it.
  template <int N, bool planes, int several = 1, class T>
  __device__ ImageLanes<T, N, planes, several> own(T* data, const Place& at) const {
    if constexpr (planes) return lanes<N, planes>(data, lines.number * columns.number, at);
    return {several == 1 ? data : data + at.pack * N, packs.number};
  }
  template <int N, bool planes>
  __device__ ByteLanes<N, planes> own_bytes(unsigned char* data, const Place& at) const {
    if constexpr (planes) return bytes<N, planes>(data, lines.number * columns.number, at);
    return {data};
  }
  template <bool planes, int several = 1>
  __device__ uint32_t own_place(const Place& at) const {
    if constexpr (planes) return at.line * columns.number + at.column;
    return several == 1 ? at.thread : at.thread - at.pack;
  }

  /// The elements of a group at `pack`, in images of `pixels` pixels; they are reached by adding
  /// pixels times `packs`.
  template <int N, bool planes, int several = 1, class T>
  __device__ ImageLanes<T, N, planes, several> lanes(T* data, uint32_t pixels,
                                                     const Place& at) const {
    return {start<N, planes, several>(data, pixels, at), planes ? pixels : packs.number,
            left<N, planes>(at)};
  }
  template <int N, bool planes>
  __device__ ByteLanes<N, planes> bytes(unsigned char* data, uint32_t pixels,
                                        const Place& at) const {
    return {start<N, planes, 1>(data, pixels, at), pixels, left<N, planes>(at)};
  }

 private:
  template <int N, bool planes, int several, class T>
  __device__ T* start(T* data, uint32_t pixels, const Place& at) const {
    const uint64_t of_group = static_cast<uint64_t>(pixels) * packs.number * (N * several);
    return data + at.group * of_group + at.pack * (planes ? 1 : N);
  }
  template <int N, bool planes>
  __device__ int left(const Place& at) const {
    return planes ? min(N, images - static_cast<int>(at.group) * N) : N;
  }
};

/// Calls f(first image, walk, threads) for as many of the images as 32 bits count the threads of.
/// A walk's line is as many of the images' as `lines_together`.
template <int N, bool planes, class F>
void walk_images(const char* op, const Tensor& walked, F&& f, int64_t lines_together = 1) {
  constexpr int64_t limit = (int64_t{1} << 31) - 1;
  constexpr int64_t together = planes ? N : 1;
  const int64_t packs = planes ? 1 : walked.size(3) / N;
  const int64_t lines = ceil_div(walked.size(1), lines_together);
  const int64_t of_group = lines * walked.size(2) * packs;
  const int64_t of_image = walked.size(1) * walked.size(2) * packs;
  BS_CHECK(of_image <= limit, "{}: {} packs of an image are more than {}", op, of_image, limit);
  const int64_t most = std::max<int64_t>(1, limit / of_group) * together;
  for (int64_t first = 0; first < walked.size(0); first += most) {
    const int64_t images = std::min(most, walked.size(0) - first);
    f(first,
      ImageWalk{Divisor(packs), Divisor(walked.size(2)), Divisor(lines),
                static_cast<int>(std::min<int64_t>(images, limit))},
      static_cast<unsigned>(ceil_div(images, together) * of_group));
  }
}

/// Throws where 32 bits do not count the packs of an image that is read where another is walked. Of
/// planes together visit_image_lanes() has seen to that.
template <int N, bool planes>
void check_read(const char* op, const Tensor& read) {
  constexpr int64_t limit = (int64_t{1} << 32) - 1;
  const int64_t packs = read.size(1) * read.size(2) * (planes ? 1 : read.size(3) / N);
  BS_CHECK(packs <= limit, "{}: {} packs of an image are more than {}", op, packs, limit);
}

/// Calls f(std::integral_constant<int, N>, std::bool_constant<planes>) for images of x's channels:
/// packs of channels, or eight planes at a time, where 32 bits count what these have in x and y.
template <class T, class F>
void visit_image_lanes(bool aligned, const Tensor& x, const Tensor& y, F&& f) {
  constexpr int together = 8;
  const int64_t largest = std::max(x.size(1) * x.size(2), y.size(1) * y.size(2));
  if (x.size(3) == 1 && x.size(0) >= together && largest < (int64_t{1} << 31) / together) {
    f(std::integral_constant<int, together>{}, std::true_type{});
  } else {
    visit_pack<T>(aligned, x.size(3), [&](auto n) { f(n, std::false_type{}); });
  }
}

}  // namespace bs::cuda
