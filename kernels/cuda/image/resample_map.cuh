#pragma once
// The map of an image's axes as a kernel reads it: what each place of an output is made of.
#include <bs/kernels/resample.h>
#include <bs/lib/cuda/upload.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

namespace bs::cuda {

/// What an axis makes an output of, where that is a few inputs: where there are fewer, the last one
/// comes in parts, so that all are read without a condition.
template <class W, int most>
struct alignas(sizeof(W) == 8 || most == 3 ? 8 : 8 * most) Few {
  int from[most];  ///< -1 where there is none
  W weights[most];
};

/// Both axes in one piece of memory. A few pixels go along with the launch, which costs no copy.
struct MapWords {
  static constexpr size_t most = 896;
  const int32_t* uploaded = nullptr;  ///< null where they are here
  alignas(16) int32_t words[most];

  /// The list that begins at word `first`.
  template <class E>
  __device__ const E* at(uint32_t first) const {
    return reinterpret_cast<const E*>((uploaded ? uploaded : words) + first);
  }
};

/// An axis as such outputs, and where they begin.
template <class W, int most>
struct FewEach {
  const Few<W, most>* of;
};
template <class W, int most>
struct FewAt {
  static constexpr int few = most;
  uint32_t first;

  __device__ FewEach<W, most> in(const MapWords& map) const {
    return {map.at<Few<W, most>>(first)};
  }
};

/// An axis as lists of any length, and where they begin.
template <class W>
struct Lists {
  const int* offsets;
  const int* from;
  const W* weights;
};
template <class W>
struct ListsAt {
  static constexpr int few = 0;  ///< any number
  uint32_t offsets, from, weights;

  __device__ Lists<W> in(const MapWords& map) const {
    return {map.at<int>(offsets), map.at<int>(from), map.at<W>(weights)};
  }
};

inline int most_inputs(const AxisMap& map) {
  int most = 0;
  for (size_t o = 1; o < map.offsets().size(); ++o)
    most = std::max(most, map.offsets()[o] - map.offsets()[o - 1]);
  return most;
}

/// Rows before columns; what may have eight bytes comes first.
class DeviceMap {
 public:
  template <class W>
  DeviceMap(const ImageMap& map, Device device, Type<W>)
      : most_(std::max(most_inputs(map.rows), most_inputs(map.columns))) {
    const AxisMap* const axes[] = {&map.rows, &map.columns};
    const bool are_few = visit_most([&]<int most>(std::integral_constant<int, most>) {
      for (size_t i = 0; i < 2; ++i) put<Few<W, most>>(few_of<W, most>(*axes[i]), at_[i][0]);
    });
    for (size_t i = 0; !are_few && i < 2; ++i)
      put<W>({axes[i]->weights().begin(), axes[i]->weights().end()}, at_[i][0]);
    for (size_t i = 0; !are_few && i < 2; ++i) {
      put<int>(axes[i]->offsets(), at_[i][1]);
      put<int>(axes[i]->from(), at_[i][2]);
    }
    if (words_.size() <= MapWords::most) {
      std::memcpy(map_.words, words_.data(), words_.size() * sizeof(int32_t));
    } else {
      memory_ = upload(words_, device);
      map_.uploaded = static_cast<const int32_t*>(memory_.data());
    }
  }
  const MapWords& words() const { return map_; }

  /// Calls f(rows, columns) with the kind of lists that there are.
  template <class W, class F>
  void visit(Type<W>, F&& f) const {
    const bool are_few = visit_most(
        [&]<int most>(std::integral_constant<int, most>) { f(few<W, most>(0), few<W, most>(1)); });
    if (!are_few) f(lists<W>(0), lists<W>(1));
  }

 private:
  /// Calls f with the inputs of an output, where they are few; says whether they are.
  template <class F>
  bool visit_most(F&& f) const {
    if (most_ <= 1) {
      f(std::integral_constant<int, 1>{});
    } else if (most_ == 2) {
      f(std::integral_constant<int, 2>{});
    } else if (most_ == 3) {
      f(std::integral_constant<int, 3>{});
    } else if (most_ == 4) {
      f(std::integral_constant<int, 4>{});
    }
    return most_ <= 4;
  }
  template <class W, int most>
  static std::vector<Few<W, most>> few_of(const AxisMap& map) {
    std::vector<Few<W, most>> all(static_cast<size_t>(map.outputs()));
    for (size_t o = 0; o < all.size(); ++o) {
      const int first = map.offsets()[o], inputs = map.offsets()[o + 1] - first;
      double part = 1;
      for (int place = 0; place < most; ++place) {
        const auto i = static_cast<size_t>(first + std::min(place, inputs - 1));
        if (place >= inputs - 1 && place < most - 1) part /= 2;  // the last two parts are alike
        all[o].from[place] = inputs > 0 ? map.from()[i] : -1;
        all[o].weights[place] = inputs > 0 ? static_cast<W>(map.weights()[i] * part) : W(0);
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
  uint32_t at(size_t axis, size_t list) const { return static_cast<uint32_t>(at_[axis][list]); }
  template <class W, int most>
  FewAt<W, most> few(size_t axis) const {
    return {at(axis, 0)};
  }
  template <class W>
  ListsAt<W> lists(size_t axis) const {
    return {at(axis, 1), at(axis, 2), at(axis, 0)};
  }

  int most_;  ///< inputs of an output
  std::vector<int32_t> words_;
  std::array<std::array<size_t, 3>, 2> at_{};  ///< of each axis: weights or few, offsets, from
  MapWords map_;
  Tensor memory_;
};

}  // namespace bs::cuda
