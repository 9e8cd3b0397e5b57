#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/patterns.h>
#include <bs/tests/misuse/misuse.h>

#include <algorithm>

namespace bs::test {
namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();
constexpr int64_t most_elements = 1 << 12;  // of an argument, so that calls stay short

/** Integers as indices have them, now and then one that is none. */
void set_integers(const Tensor& x, Source& from) {
  constexpr std::array<int64_t, 6> odd{-1, most, -most - 1, 8, int64_t{1} << 40, -9};
  const bool wild = from.chance(.15), zeros = from.chance(.2), full = from.chance(.2);
  const auto set = [&]<class T>(T* data) {
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i)
      data[i] = static_cast<T>(wild && from.chance(.2) ? from.one_of<int64_t>(odd)
                               : zeros                 ? 0
                               : full                  ? 8
                                                       : from.below(8));
  };
  if (x.dtype() == i64) set(x.data<int64_t>());
  if (x.dtype() == i32) set(x.data<int32_t>());
}

Tensor filled(const Shape& shape, DType dtype, Source& from) {
  if (is_floating(dtype)) {
    const Tensor x = Tensor::empty(shape, dtype);
    visit_floating("misuse", dtype, [&]<class T>(Type<T>) {
      T* const data = x.data<T>();
      const int64_t n = x.numel(), start = from.below(8);
      for (int64_t i = 0; i < n; ++i) data[i] = T(static_cast<float>((start + i) % 7) / 8);
    });
    if (from.chance(.05)) fill(x, std::numeric_limits<double>::quiet_NaN());
    return x;
  }
  const Tensor x = ones(shape, dtype);
  set_integers(x, from);
  return x;
}

/** The same elements where others lie between them. */
Tensor with_gaps(const Tensor& x) {
  Shape wide = x.shape();
  if (std::any_of(wide.begin(), wide.end(), [](int64_t n) { return n > most_elements; })) return x;
  for (int64_t& extent : wide) extent = 2 * extent + 1;
  Tensor view = zeros(wide, x.dtype());
  for (int axis = 0; axis < x.rank(); ++axis) view = view.slice(axis, 1, most, 2);
  copy(x, view);
  return view;
}

}  // namespace

Shape draw_shape(Source& from) {
  if (from.chance(.04)) return {32, 8};  // four gates of eight cells
  constexpr std::array<int, 10> ranks{0, 1, 1, 2, 2, 2, 3, 3, 4, 5};
  constexpr std::array<int64_t, 8> others{0, 1, 1, 2, 2, 4, 16, 7};
  Shape shape = Shape::filled(from.one_of<int>(ranks), 8);
  for (int64_t& extent : shape)
    if (from.chance(.12)) extent = from.one_of<int64_t>(others);
  if (shape.rank() > 0 && from.chance(.2)) shape[0] = 1;
  return shape.product() <= most_elements ? shape : Shape{8, 8};
}

Tensor draw_tensor(Source& from) {
  if (from.chance(.06)) return {};
  if (from.alike && from.chance(.85)) return filled(*from.alike, from.chance(.1) ? i64 : f32, from);
  constexpr std::array<DType, 16> dtypes{f32, f32, f32, f32, f32, f32, f32,     f32,
                                         f64, f64, f16, i64, i64, i64, boolean, bf16};
  const DType dtype = from.chance(.04) ? Values<DType>::draw(from) : from.one_of<DType>(dtypes);
  const Tensor x = filled(draw_shape(from), dtype, from);
  const int form = from.below(24);
  if (form == 0 && x.rank() > 1) return x.transpose(-1, -2);
  if (form == 1) return with_gaps(x);
  if (form == 2 && x.rank() > 0) return x.slice(0, 0, 1).expand(x.shape());
  return x;
}

int wrongs(const Tensor& x) { return x.defined() ? 12 + 4 * x.rank() : 2; }

Tensor wrong(const Tensor& x, int k) {
  if (x.defined() && x.numel() > most_elements) return {};
  Source from(static_cast<uint64_t>(k));
  if (!x.defined()) return filled(k == 0 ? Shape{8} : Shape{8, 8}, f32, from);
  Shape shape = x.shape();
  if (k >= 12) {
    const int axis = (k - 12) / 4;
    constexpr std::array<int64_t, 4> change{-1, 1, 8, 0};
    const auto how = static_cast<size_t>((k - 12) % 4);
    if (shape[axis] > most_elements) shape[axis] = 8;  // of a tensor without elements
    shape[axis] = how == 3 ? 0 : std::max<int64_t>(0, shape[axis] + change[how]);
    return filled(shape, x.dtype(), from);
  }
  switch (k) {
    case 0:
      return {};
    case 1:
      return x.rank() < Shape::max_rank ? x.unsqueeze(0) : x;
    case 2:
      return x.rank() > 0 && x.size(0) > 0 ? x.select(0, 0) : x;
    case 3:
      return filled(shape, x.dtype() == f32 ? f64 : f32, from);
    case 4:
      return filled(shape, x.dtype() == i64 ? i32 : i64, from);
    case 5:
      return filled(shape, boolean, from);
    case 6:
      return cuda_available() ? contiguous(x).to(Device::cuda()) : x;
    case 7:
      return x.rank() > 1 ? x.transpose(0, -1) : x;
    case 8:
      return x.device().is_cpu() ? with_gaps(x) : x;
    case 9:
      return zeros(Shape::filled(x.rank(), 1), x.dtype()).expand(shape);
    case 10: {
      const Tensor y = filled(shape, x.dtype(), from);
      if (x.dtype() == i64 && y.numel() > 0) y.data<int64_t>()[y.numel() - 1] = most;
      return y;
    }
    default: {
      const Tensor y = filled(shape, x.dtype(), from);
      if (x.dtype() == i64 && y.numel() > 0) y.data<int64_t>()[0] = -most - 1;
      return y;
    }
  }
}

std::string show(const Tensor& x) {
  if (!x.defined()) return "undefined";
  return format("{} {} strides {} {}", x.dtype(), x.shape(), x.strides(), x.device());
}

LayoutPtr draw_layout(Source& from) {
  switch (from.below(12)) {
    case 0:
      return nullptr;
    case 1:
      return Layout::from_blocks(1, 1, 1, 8, {});
    case 2:
      return Layout::from_blocks(1, 0, 0, 8, {});
    case 3:
      return patterns::dense({.heads = 8, .rows = 1, .block = 8});
    case 4:
      return patterns::dense({.rows = 2, .block = 8}, {.causal = true});
    case 5:
      return patterns::dense({.heads = 2, .rows = 1, .cols = 2, .block = 8});
    case 6:
      return patterns::dense({.rows = 1, .block = 16});
    case 7:
      return Layout::from_blocks(1, 2, 3, 8, {{0, 1, 2}});
    default:
      return patterns::dense({.rows = 1, .block = 8});
  }
}

std::string draw_text(Source& from) {
  static const std::array<std::string, 10> texts{
      "",      "alpha", "ij,jk->ik", "ij->ji", "i,i->", "...i,...i->...i",
      "ii->i", "ab->",  "->",        "i->ij"};
  return from.one_of<std::string>(texts);
}

GemmEpilogue draw_epilogue(Source& from) {
  using namespace epilogue;
  switch (from.below(4)) {
    case 0:
      return GemmEpilogue::linear_combination(Element::f32);
    case 1:
      return GemmEpilogue(relu(accumulator() + row("bias", Element::f32)));
    case 2:
      return GemmEpilogue(accumulator()).row_sum("t", accumulator());
    default:
      return GemmEpilogue(accumulator());
  }
}

Dims Values<Dims>::draw(Source& from) {
  const Tensor* kept = from.chance(.3) ? from.kept<Tensor>() : nullptr;
  if (kept) return kept->shape();
  if (from.chance(.6)) return draw_shape(from);
  Dims dims;
  for (int i = from.below(4); i > 0; --i) dims.push_back(from.below(4) - 1);
  return dims;
}

void Values<Dims>::make_wrong(Dims& x, int k) {
  constexpr std::array<int64_t, 8> bad{-1, 0, 1, most, -most - 1, int64_t{1} << 40, 7, 9};
  if (k >= 3)
    x[(k - 3) / 8] = bad[static_cast<size_t>((k - 3) % 8)];
  else if (k == 0)
    x = {};
  else if (k == 1)
    x = Dims::filled(Dims::max_rank, int64_t{1} << 20);
  else if (x.rank() > 0)
    x.erase(0);
}

}  // namespace bs::test
