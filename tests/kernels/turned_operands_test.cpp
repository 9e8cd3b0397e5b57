// Operands that lie across the result: what is computed of a view has the bits of what is computed
// of a dense copy.
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/random.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {

Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) {
  return random_reference(shape, seed, -50, 50).tensor(dtype, test_device());
}

/// A dense copy that no kernel made.
Tensor dense(const Tensor& x) { return Reference::of(x).tensor(x.dtype(), test_device()); }

Shape exchanged(Shape shape) {
  std::swap(shape[-2], shape[-1]);
  return shape;
}

/// Matrices of a shape whose columns lie side by side in memory.
Tensor turned(const Shape& shape, DType dtype, uint64_t seed) {
  return numbers(exchanged(shape), dtype, seed).transpose(-2, -1);
}

constexpr std::array dtypes = {f16, bf16, f32, f64, i32, i64};
// Whole squares, parts of squares, lines that are no vectors, few lines.
const std::array shapes = {Shape{64, 64},    Shape{2, 72, 136}, Shape{16, 200}, Shape{130, 64},
                           Shape{3, 65, 80}, Shape{8, 64},      Shape{1, 1}};

}  // namespace

TEST_CASE("arithmetic of operands that lie across the result") {
  for (const DType dtype : dtypes)
    for (const Shape& shape : shapes) {
      CAPTURE(shape);
      CAPTURE(dtype);
      const Tensor x = numbers(shape, dtype, 1), a = turned(shape, dtype, 2),
                   b = turned(shape, dtype, 3);
      CHECK(same_bits(add(x, a), add(x, dense(a))));
      CHECK(same_bits(sub(a, x), sub(dense(a), x)));
      CHECK(same_bits(mul(a, b), mul(dense(a), dense(b))));
      CHECK(same_bits(sub(a, 3), sub(dense(a), 3)));
      CHECK(same_bits(mul(a, a), mul(dense(a), dense(a))));
      CHECK(same_bits(lt(a, x), lt(dense(a), x)));
    }
}

TEST_CASE("what repeats beside operands that lie across the result") {
  for (const DType dtype : {bf16, f32})
    for (const Shape& shape : {Shape{2, 64, 72}, Shape{3, 40, 136}}) {
      CAPTURE(shape);
      CAPTURE(dtype);
      const Tensor a = turned(shape, dtype, 1), d = dense(a);
      for (const Shape& one : {Shape{shape[2]}, Shape{shape[1], 1}, Shape{shape[0], 1, 1},
                               Shape{shape[0], shape[1], 1}, Shape{shape[0], 1, shape[2]}}) {
        const Tensor x = numbers(one, dtype, 2);
        CHECK(same_bits(sub(a, x), sub(d, x)));
        CHECK(same_bits(sub(x, a), sub(x, d)));
      }
      // A matrix that lies across and is the same for all of the batch.
      const Tensor same = turned({shape[1], shape[2]}, dtype, 3), x = numbers(shape, dtype, 4);
      CHECK(same_bits(sub(x, same), sub(x, dense(same))));
    }
}

TEST_CASE("operands of many elements that repeat along an outer axis") {
  constexpr int64_t many = 1 << 21;
  const std::pair<Shape, Shape> cases[] = {
      {{3, many}, {1, many}},          // stretches of the inner axis
      {{3, many + 1}, {1, many + 1}},  // which no stretch divides
      {{3, many + 8}, {1, many + 8}},
      {{2, 3, many}, {2, 1, many}},
      {{2, 2, many / 2}, {1, 2, many / 2}},
      {{3, many / 2048, 2048}, {1, many / 2048, 2048}}};
  int number = 0;
  for (const auto& [shape, repeated] : cases) {
    const int axis = repeated[0] == 1 ? 0 : 1;
    Shape wide = shape;
    wide[-1] += 64;  // so that the last two axes are not one
    const Tensor whole = rand(wide, f32, test_device()), row = rand(repeated, bf16, test_device());
    for (const Tensor& x : {whole.slice(-1, 0, shape[-1]), whole.slice(-1, 8, shape[-1] + 8)})
      for (const DType dtype : {bf16, f32}) {
        if (!is_sampled(number++)) continue;
        const Tensor y = add(cast(x, dtype), row), z = where(gt(row, 0.5), x, row);
        for (int64_t i = 0; i < shape[axis]; ++i) {
          const auto at = [&](const Tensor& t) { return t.slice(axis, i, i + 1); };
          CHECK(same_bits(at(y), add(cast(at(x), dtype), row)));
          CHECK(same_bits(at(z), where(gt(row, 0.5), at(x), row)));
        }
      }
  }
}

TEST_CASE("three operands, of which some lie across the result") {
  for (const DType dtype : {f16, f32, f64})
    for (const Shape& shape : {Shape{64, 128}, Shape{2, 80, 48}}) {
      CAPTURE(shape);
      CAPTURE(dtype);
      const Tensor x = numbers(shape, dtype, 1), a = turned(shape, dtype, 2),
                   b = turned(shape, dtype, 3);
      const Tensor mask = lt(x, 0), other = turned(shape, f32, 4), across = cast(other, boolean);
      CHECK(same_bits(where(mask, a, x), where(mask, dense(a), x)));
      CHECK(same_bits(where(mask, a, b), where(mask, dense(a), dense(b))));
      CHECK(same_bits(where(across, a, x), where(dense(across), dense(a), x)));
      const Tensor view = lt(other.transpose(-2, -1), 0).transpose(-2, -1);  // of bytes
      CHECK(same_bits(where(view, x, x), where(dense(view), x, x)));
      CHECK(same_bits(where(view, a, x), where(dense(view), dense(a), x)));
    }
}

TEST_CASE("views that lie across, between others' elements and in every order of axes") {
  for (const DType dtype : {bf16, f32}) {
    // Lines begin between vectors, or at vectors of a wider matrix.
    const Tensor wide = numbers({160, 200}, dtype, 1);
    for (const int64_t first : {1, 4, 8, 16}) {
      CAPTURE(first);
      const Tensor a = wide.slice(1, first, first + 72).slice(0, 0, 136).transpose(0, 1);
      const Tensor x = numbers({72, 136}, dtype, 2);
      CHECK(same_bits(exp(a), exp(dense(a))));
      CHECK(same_bits(add(x, a), add(x, dense(a))));
      const Tensor every = wide.slice(0, 0, 160, 2).transpose(0, 1);
      CHECK(same_bits(exp(every), exp(dense(every))));
    }
    const Tensor x = numbers({4, 6, 24, 16}, dtype, 3);
    std::array<int64_t, 4> axes = {0, 1, 2, 3};
    do {
      const Tensor view = x.permute(Dims(std::span<const int64_t>(axes)));
      CHECK(same_bits(exp(view), exp(dense(view))));
      const Tensor other = numbers(view.shape(), dtype, 4);
      CHECK(same_bits(sub(other, view), sub(other, dense(view))));
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

TEST_CASE("functions of views, forward and backward") {
  const auto check = [](const Tensor& a, const Tensor& d) {
    const Tensor in = dense(a), dy = dense(d);
    CHECK(same_bits(gelu(a), gelu(in)));
    CHECK(same_bits(gelu_backward(a, d), gelu_backward(in, dy)));
    CHECK(same_bits(relu(a), relu(in)));
    CHECK(same_bits(sigmoid_backward(a, d), sigmoid_backward(in, dy)));
    CHECK(same_bits(softplus(a), softplus(in)));
    CHECK(same_bits(elu_backward(a, d, 1), elu_backward(in, dy, 1)));
    CHECK(same_bits(sin(a), sin(in)));
    CHECK(same_bits(floor(a), floor(in)));
    CHECK(same_bits(sign(a), sign(in)));
    CHECK(same_bits(neg(a), neg(in)));
    CHECK(same_bits(clamp(a, -.5, .5), clamp(in, -.5, .5)));
    CHECK(same_bits(clamp_backward(a, d, -.5, .5), clamp_backward(in, dy, -.5, .5)));
  };
  for (const DType dtype : {bf16, f16, f32, f64}) {
    CAPTURE(dtype);
    const Tensor x = numbers({72, 136}, dtype, 1), y = numbers({136, 72}, dtype, 2);
    check(x.transpose(0, 1), y);
    check(y, x.transpose(0, 1));
    check(x.slice(1, 3, 136, 2), numbers({72, 67}, dtype, 3));
    check(x.slice(0, 1, 2).expand({9, 136}), numbers({9, 136}, dtype, 4));
    check(x.slice(1, 5, 6).expand({72, 40}), x.slice(1, 0, 40));
    check(x.slice(0, 0, 0), x.slice(0, 0, 0));
  }
}

TEST_CASE("casts into views that lie across their source") {
  for (const DType from : {f32, bf16, f64, i32})
    for (const DType to : {f16, bf16, f32, f64, i64})
      for (const Shape& shape : {Shape{64, 128}, Shape{2, 40, 72}, Shape{33, 70}}) {
        CAPTURE(shape);
        CAPTURE(from);
        CAPTURE(to);
        Reference whole(shape);
        for (size_t i = 0; i < whole.values.size(); ++i)
          whole[i] = static_cast<double>(i * 7 % 101);
        const Tensor target = Tensor::empty(exchanged(shape), to, test_device()).transpose(-2, -1);
        copy(whole.tensor(from, test_device()), target);
        CHECK(Reference::of(target).values == whole.values);
      }
}
