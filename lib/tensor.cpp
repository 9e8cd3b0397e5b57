#include <bs/lib/tensor.h>

#include <bs/lib/changes.h>

#include <bs/lib/overlap.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <cstring>
#include <limits>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    BS_CHECK(extent >= 0, "tensor: negative extent in shape {}", shape);
    BS_CHECK(extent == 0 || count <= std::numeric_limits<int64_t>::max() / 16 / extent,
             "tensor: shape {} has too many elements", shape);
    count *= extent;
  }
  check_usable("tensor", device);
  Tensor t;
  t.storage_ = std::make_shared<Storage>(static_cast<size_t>(count) * size_of(dtype), device);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype, Device device,
                         std::function<void()> release) {
  const int64_t count = shape.product();
  BS_CHECK(std::ranges::all_of(shape, [](int64_t extent) { return extent >= 0; }) &&
               count <= std::numeric_limits<int64_t>::max() / 8,
           "from_blob: shape {} is of no tensor", shape);
  BS_CHECK(data || count == 0, "from_blob: null pointer for shape {}", shape);
  Tensor t;
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  t.storage_ = std::make_shared<Storage>(data, bytes, device, std::move(release));
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

void Tensor::check_defined(const char* caller) const {
  BS_CHECK(defined(), "{}: a Tensor is undefined: nothing was assigned to it", caller);
}

Device Tensor::device(const char* caller) const {
  check_defined(caller);
  return storage_->device();
}

void* Tensor::data() const {
  check_defined();
  return static_cast<std::byte*>(storage_->data()) +
         offset_ * static_cast<int64_t>(size_of(dtype_));
}

void Tensor::check_dtype(DType expected) const {
  BS_CHECK(dtype_ == expected, "tensor: data of dtype {} read as {}", dtype_, expected);
}

bool Tensor::is_contiguous() const {
  const int64_t* const extents = shape_.begin();  // looked at unchecked: each front door asks
  const int64_t* const strides = strides_.begin();
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (extents[i] == 1) continue;
    // The product overflows only where another extent is 0.
    if (strides[i] != expected || __builtin_mul_overflow(expected, extents[i], &expected))
      return numel() == 0;
  }
  return true;
}

namespace {
/// Strides for `shape` over the elements of a view, or rank 0 where no strides can express it.
bool view_strides(const Shape& old_shape, const Strides& old_strides, const Shape& shape,
                  Strides& strides) {
  strides = Dims::filled(shape.rank(), 0);
  int at = shape.rank() - 1;
  int64_t run = 1;  // elements in the run of mergeable old axes being consumed
  int64_t base = 1;
  bool open = false;
  for (int i = old_shape.rank() - 1; i >= 0; --i) {
    if (old_shape[i] == 1) continue;
    if (!open) base = old_strides[i];
    open = true;
    run *= old_shape[i];
    int next = i - 1;
    while (next >= 0 && old_shape[next] == 1) --next;
    if (next >= 0 && old_strides[next] == old_strides[i] * old_shape[i]) continue;
    int64_t taken = 1;
    while (at >= 0 && taken < run) {
      strides[at] = base * taken;
      taken *= shape[at--];
    }
    if (taken != run) return false;
    run = 1;
    open = false;
  }
  for (; at >= 0; --at) {
    if (shape[at] != 1) return false;
    strides[at] = 1;
  }
  return true;
}
}  // namespace

namespace {
/// `wanted` with its -1, if any, replaced.
Shape complete_shape(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      BS_CHECK(unknown < 0, "view: more than one -1 in {}", wanted);
      unknown = i;
    } else {
      BS_CHECK(shape[i] >= 0, "view: negative extent in {}", wanted);
    }
  }
  if (unknown >= 0) {
    shape[unknown] = 1;
    const int64_t known = shape.product();
    BS_CHECK(known > 0 && x.numel() % known == 0, "view: {} does not divide {}", wanted, x.shape());
    shape[unknown] = x.numel() / known;
  }
  BS_CHECK(shape.product() == x.numel(), "view: {} elements of {} seen as {}", x.numel(), x.shape(),
           wanted);
  return shape;
}
}  // namespace

bool Tensor::can_view(const Shape& wanted) const {
  check_defined();
  const Shape shape = complete_shape(*this, wanted);
  Strides strides;
  return is_contiguous() || view_strides(shape_, strides_, shape, strides);
}

Tensor Tensor::view(const Shape& wanted) const {
  check_defined();
  Tensor t = *this;
  t.shape_ = complete_shape(*this, wanted);
  if (is_contiguous()) {
    t.strides_ = contiguous_strides(t.shape_);
  } else {
    BS_CHECK(view_strides(shape_, strides_, t.shape_, t.strides_),
             "view: shape {} with strides {} cannot be seen as {} without a copy; "
             "call contiguous first",
             shape_, strides_, wanted);
  }
  return t;
}

Tensor Tensor::permute(const Dims& axes) const {
  check_defined();
  BS_CHECK(axes.rank() == rank(), "permute: {} axes for shape {}", axes.rank(), shape_);
  Tensor t = *this;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    BS_CHECK(axes[i] >= -rank() && axes[i] < rank(), "permute: axis {} is out of range for rank {}",
             axes[i], rank());
    const int axis = normalize_axis("permute", static_cast<int>(axes[i]), rank());
    seen |= 1U << axis;
    t.shape_[i] = shape_[axis];
    t.strides_[i] = strides_[axis];
  }
  BS_CHECK(seen == (1U << rank()) - 1, "permute: {} is no permutation of {} axes", axes, rank());
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  check_defined();
  a = normalize_axis("transpose", a, rank());
  b = normalize_axis("transpose", b, rank());
  Tensor t = *this;
  std::swap(t.shape_[a], t.shape_[b]);
  std::swap(t.strides_[a], t.strides_[b]);
  return t;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end, int64_t step) const {
  check_defined();
  axis = normalize_axis("slice", axis, rank());
  BS_CHECK(step > 0, "slice: step {} is not positive", step);
  const int64_t extent = shape_[axis];
  const auto clip = [extent](int64_t v) {
    return std::clamp<int64_t>(v < 0 ? v + extent : v, 0, extent);
  };
  begin = clip(begin);
  end = std::max(begin, clip(end));
  Tensor t = *this;
  t.shape_[axis] = begin < end ? (end - begin - 1) / step + 1 : 0;
  if (t.numel() == 0) return t;  // it stays where it is: its strides say nothing, and may overflow
  t.offset_ += begin * strides_[axis];
  if (t.shape_[axis] > 1) t.strides_[axis] *= step;
  return t;
}

Tensor Tensor::select(int axis, int64_t index) const {
  check_defined();
  axis = normalize_axis("select", axis, rank());
  const int64_t at = index < 0 ? index + shape_[axis] : index;
  BS_CHECK(at >= 0 && at < shape_[axis], "select: index {} on axis {} of {}", index, axis, shape_);
  Tensor t = *this;
  t.shape_.erase(axis);
  t.strides_.erase(axis);
  if (numel() > 0) t.offset_ += at * strides_[axis];
  return t;
}

Tensor Tensor::unsqueeze(int axis) const {
  check_defined();
  axis = normalize_axis("unsqueeze", axis, rank() + 1);
  BS_CHECK(rank() < Dims::max_rank, "unsqueeze: {} has {} axes already, the most there may be",
           shape_, rank());
  Tensor t = *this;
  t.shape_.insert(axis, 1);
  t.strides_.insert(axis, 1);
  return t;
}

Tensor Tensor::squeeze(int axis) const {
  check_defined();
  axis = normalize_axis("squeeze", axis, rank());
  BS_CHECK(shape_[axis] == 1, "squeeze: axis {} of {} is not 1", axis, shape_);
  return select(axis, 0);
}

Tensor Tensor::flatten(int from, int to) const { return view(flattened(shape_, from, to)); }

Tensor Tensor::expand(const Shape& shape) const {
  check_defined();
  if (shape == shape_) return *this;
  BS_CHECK(shape.rank() >= rank(), "expand: {} to fewer axes {}", shape_, shape);
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = Dims::filled(shape.rank(), 0);
  for (int i = 1; i <= rank(); ++i) {
    BS_CHECK(shape_[-i] == shape[-i] || shape_[-i] == 1, "expand: {} to {}", shape_, shape);
    t.strides_[-i] = shape_[-i] == shape[-i] ? strides_[-i] : 0;
  }
  for (int64_t extent : shape) BS_CHECK(extent >= 0, "expand: negative extent in {}", shape);
  [[maybe_unused]] const int64_t counted = shape.product();  // throws where nobody could count
  return t;
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  check_defined();
  BS_CHECK(shape.rank() == strides.rank(), "as_strided: shape {}, strides {}", shape, strides);
  for (int64_t extent : shape) BS_CHECK(extent >= 0, "as_strided: negative extent in {}", shape);
  // In 128 bits, which one product of extent and stride cannot overflow; nor can sums that stay
  // within 64.
  __extension__ using Wide = __int128;
  constexpr Wide most = Wide{1} << 64;
  Wide first = Wide{offset_} + offset;
  Wide last = first;
  for (int i = 0; i < shape.rank(); ++i) {
    Wide& end = strides[i] < 0 ? first : last;
    end = std::clamp(end + Wide{std::max<int64_t>(shape[i] - 1, 0)} * strides[i], -most, most);
  }
  const auto capacity = static_cast<int64_t>(storage_->bytes() / size_of(dtype_));
  BS_CHECK(shape.product() == 0 || (first >= 0 && last < capacity),
           "as_strided: shape {}, strides {}, offset {} leave a storage of {} elements", shape,
           strides, offset, capacity);
  Tensor t = *this;
  if (shape.product() > 0) t.offset_ = offset_ + offset;
  t.shape_ = shape;
  t.strides_ = strides;
  return t;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  Tensor t = empty(shape_, dtype_, target);
  copy_bytes(*this, t);
  return t;
}

double Tensor::item() const {
  BS_CHECK(numel() == 1, "item: tensor of shape {} has {} elements", shape_, numel());
  check_unrecorded("item", device(), "reads a value of the device");
  const Tensor host = view({1}).to(Device::cpu());
  return visit_any(dtype_, [&]<class T>(Type<T>) { return static_cast<double>(*host.data<T>()); });
}

void copy_bytes(const Tensor& from, const Tensor& to) {
  BS_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "copy: {} {} into {} {}",
           from.dtype(), from.shape(), to.dtype(), to.shape());
  BS_CHECK(from.is_contiguous() && to.is_contiguous(),
           "copy: between devices both tensors must be contiguous: strides {} and {} for shape {}",
           from.strides(), to.strides(), from.shape());
  if (from.numel() == 0) return;
  note_change(to, "copy");
#if BS_WITH_CUDA
  if (from.device().is_cuda() && ranges_overlap(from, to)) {  // CUDA's copies must not
    if (from.data() == to.data()) return;
    const Tensor between = Tensor::empty(from.shape(), from.dtype(), from.device());
    copy_bytes(from, between);
    copy_bytes(between, to);
    return;
  }
  if (from.device().is_cuda() || to.device().is_cuda()) {
    cuda::copy(to.data(), to.device(), from.data(), from.device(), from.bytes());
    return;
  }
#endif
  std::memmove(to.data(), from.data(), from.bytes());  // they may overlap
}

}  // namespace bs
