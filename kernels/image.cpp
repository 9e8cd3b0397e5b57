#include <bs/kernels/image.h>

#include <bs/kernels/copy.h>

#include <algorithm>

namespace bs {

namespace {
/// [N, ..., C] for [N, C, ...].
Tensor channels_moved_last(const Tensor& x) {
  Dims axes = {0};
  for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
  if (x.rank() > 1) axes.push_back(1);
  return x.permute(axes);
}

Strides strides_of(const Shape& shape, bool channels_last) {
  if (!channels_last || shape.rank() < 3) return contiguous_strides(shape);
  Shape stored = shape;
  stored.erase(1);
  stored.push_back(shape[1]);
  Strides strides = contiguous_strides(stored);
  strides.erase(strides.rank() - 1);
  strides.insert(1, 1);
  return strides;
}
}  // namespace

void check_image(const char* op, const Shape& x) {
  BS_CHECK(x.rank() == 4, "{}: x {} is no [N, C, H, W]", op, x);
  for (int axis = 2; axis < 4; ++axis)
    BS_CHECK(x[axis] >= 0 && x[axis] <= most_pixels,
             "{}: images of {} x {} pixels; 0 to {} a side are taken", op, x[2], x[3], most_pixels);
}

bool is_channels_last(const Tensor& x) {
  if (x.rank() < 3 || x.strides()[1] != 1) return false;
  // What has one channel or one element goes by its strides: they are all the format there is.
  const auto apart = [&](int64_t stride) { return stride >= x.size(1); };
  return std::all_of(x.strides().begin() + 2, x.strides().end(), apart);
}

Tensor empty_image(const Shape& shape, DType dtype, Device device, bool channels_last) {
  return Tensor::empty(shape, dtype, device).as_strided(shape, strides_of(shape, channels_last));
}

Tensor in_format(const Tensor& x, bool channels_last) {
  if ((channels_last ? channels_moved_last(x) : x).is_contiguous()) {
    // Of one channel, one pixel or no elements it lies in both formats: its strides shall tell.
    const bool tells = is_channels_last(x) == channels_last;
    return tells ? x : x.as_strided(x.shape(), strides_of(x.shape(), channels_last));
  }
  Tensor y = empty_image(x.shape(), x.dtype(), x.device(), channels_last);
  copy(x, y);
  return y;
}

Tensor channels_last(const Tensor& x) { return in_format(x, true); }

Tensor dense_image(const Tensor& x) { return in_format(x, is_channels_last(x)); }

Tensor empty_image_like(const Tensor& x) {
  return empty_image(x.shape(), x.dtype(), x.device(), is_channels_last(x));
}

std::string to_string(ImageFormat format) {
  constexpr const char* names[] = {"nchw", "nhwc", "chwn"};
  return names[static_cast<size_t>(format)];
}

namespace {

/// For each axis of nchw where it stands in `format`.
Dims places_of(ImageFormat format) {
  const Dims places[] = {{0, 1, 2, 3}, {0, 3, 1, 2}, {3, 0, 1, 2}};
  return places[static_cast<size_t>(format)];
}

}  // namespace

Tensor as_image(const Tensor& x, ImageFormat format) {
  BS_CHECK(x.rank() == 4, "as_image: x {} has not the four axes of {}", x.shape(), format);
  return x.permute(places_of(format));
}

Tensor relayout(const Tensor& x, ImageFormat from, ImageFormat to) {
  BS_CHECK(x.rank() == 4, "relayout: x {} has not the four axes of {}", x.shape(), from);
  const Dims there = places_of(to);
  Dims axes = {0, 0, 0, 0};
  for (int axis = 0; axis < 4; ++axis) axes[static_cast<int>(there[axis])] = axis;
  return contiguous(as_image(x, from).permute(axes));
}

}  // namespace bs
