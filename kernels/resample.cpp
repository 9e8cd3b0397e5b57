#include <bs/kernels/resample.h>

#include <bs/kernels/image.h>

#include <limits>

namespace bs {

void AxisMap::add(int64_t from, double weight) {
  if (weight == 0) return;
  from_.push_back(static_cast<int32_t>(from));
  weights_.push_back(weight);
}

AxisMap AxisMap::transposed() const {
  AxisMap map(outputs());
  std::vector<std::vector<std::pair<int64_t, double>>> of(static_cast<size_t>(inputs_));
  for (int64_t o = 0; o < outputs(); ++o)
    for (auto i = static_cast<size_t>(offsets_[static_cast<size_t>(o)]);
         i < static_cast<size_t>(offsets_[static_cast<size_t>(o) + 1]); ++i)
      of[static_cast<size_t>(from_[i])].emplace_back(o, weights_[i]);
  for (const auto& list : of) {
    for (const auto& [from, weight] : list) map.add(from, weight);
    map.end();
  }
  return map;
}

void check_map_size(const char* op, int64_t outputs, int64_t inputs) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(outputs * inputs <= most, "{}: {} windows of {} elements along an axis are more than {}",
           op, outputs, inputs, most);
}

void check_same_images(const char* op, const Tensor& dy, const Shape& x) {
  check_image(op, dy.shape());
  BS_CHECK(dy.size(0) == x[0] && dy.size(1) == x[1],
           "{}: dy {} does not have the images and channels of x {}", op, dy.shape(), x);
}

Tensor resample(const char* op, const ImageMap& map, const Tensor& x, double outside) {
  check_image(op, x.shape());
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.size(2) == map.rows.inputs() && x.size(3) == map.columns.inputs(),
           "{}: {} does not have the {} rows and {} columns of the map", op, x.shape(),
           map.rows.inputs(), map.columns.inputs());
  const Tensor in = dense_image(x);
  const bool last = is_channels_last(in);
  const Shape shape = {x.size(0), x.size(1), map.rows.outputs(), map.columns.outputs()};
  Tensor y = empty_image(shape, x.dtype(), x.device(), last);
  if (y.numel() == 0) return y;
  const auto stored = [&](const Tensor& t) {
    return last ? t.permute({0, 2, 3, 1})
                : t.view({t.size(0) * t.size(1), t.size(2), t.size(3), 1});
  };
  BS_DISPATCH(x.device(), resample, map, stored(in), outside, stored(y));
  return y;
}

}  // namespace bs
