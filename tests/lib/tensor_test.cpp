#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <random>
#include <type_traits>

using namespace bs;
using namespace bs::test;

namespace {

using Index = std::vector<int64_t>;

Index unflatten(int64_t at, const Shape& shape) {
  Index index(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<size_t>(axis)] = at % shape[axis];
    at /= shape[axis];
  }
  return index;
}

double look_up(const Reference& x, const Index& index) {
  int64_t at = 0;
  for (int axis = 0; axis < x.shape.rank(); ++axis)
    at = at * x.shape[axis] + index[static_cast<size_t>(axis)];
  return x[static_cast<size_t>(at)];
}

/// The array of `shape` whose element at an index is that of `x` at `source(index)`.
Reference gather(const Reference& x, const Shape& shape,
                 const std::function<Index(const Index&)>& source) {
  Reference y(shape);
  for (size_t i = 0; i < y.values.size(); ++i)
    y[i] = look_up(x, source(unflatten(static_cast<int64_t>(i), shape)));
  return y;
}

/// 0, 1, 2 ... in row-major order.
Reference counting(const Shape& shape) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i);
  return r;
}

void check_equal(const Tensor& actual, const Reference& expected) {
  CHECK(actual.shape() == expected.shape);
  CHECK(Reference::of(actual).values == expected.values);
}

/// A number in [0, n).
int64_t below(int64_t n, std::mt19937& generator) {
  return std::uniform_int_distribution<int64_t>(0, n - 1)(generator);
}

/// Some positions of an axis of `t`, and the same done naively to `r`.
void step_along(Tensor& t, Reference& r, int axis, std::mt19937& generator) {
  const auto at = static_cast<size_t>(axis);
  if (below(2, generator) == 0) {
    const int64_t begin = below(t.size(axis), generator);
    const int64_t end = begin + 1 + below(t.size(axis) - begin, generator);
    const int64_t by = 1 + below(3, generator);
    t = t.slice(axis, begin, end, by);
    r = gather(r, t.shape(), [&](Index i) {
      i[at] = begin + by * i[at];
      return i;
    });
  } else if (t.rank() >= 3) {
    const int64_t index = below(t.size(axis), generator);
    t = t.select(axis, index);
    r = gather(r, t.shape(), [&](Index i) {
      i.insert(i.begin() + axis, index);
      return i;
    });
  }
}

/// The elements of `t` under other axes, and the same done naively to `r`.
void step_across(Tensor& t, Reference& r, int axis, std::mt19937& generator) {
  const int rank = t.rank();
  const auto at = static_cast<size_t>(axis);
  switch (below(4, generator)) {
    case 0: {
      if (rank < 2) return;
      const auto other = static_cast<int>(below(rank, generator));
      t = t.transpose(axis, other);
      r = gather(r, t.shape(), [&](Index i) {
        std::swap(i[at], i[static_cast<size_t>(other)]);
        return i;
      });
      return;
    }
    case 1: {
      if (rank >= 6) return;
      t = t.unsqueeze(axis);
      r = gather(r, t.shape(), [&](Index i) {
        i.erase(i.begin() + axis);
        return i;
      });
      return;
    }
    case 2: {
      if (rank == 0 || t.size(axis) != 1 || t.numel() > 500) return;
      Shape wide = t.shape();
      wide[axis] = 1 + below(3, generator);
      t = t.expand(wide);
      r = gather(r, wide, [&](Index i) {
        i[at] = 0;
        return i;
      });
      return;
    }
    default: {
      if (rank == 0 || !t.can_view({-1})) return;
      t = t.view({-1});
      r.shape = {t.numel()};
    }
  }
}

/// A random view of `t`, and the same done naively to `r`: two of six move along an axis.
void step(Tensor& t, Reference& r, std::mt19937& generator) {
  const auto axis = static_cast<int>(t.rank() > 0 ? below(t.rank(), generator) : 0);
  if (t.rank() > 0 && below(3, generator) == 0) {
    step_along(t, r, axis, generator);
  } else {
    step_across(t, r, axis, generator);
  }
}

}  // namespace

TEST_CASE("tensor basics") {
  const Tensor x = Tensor::empty({2, 3, 4}, f32, test_device());
  CHECK(x.defined());
  CHECK(x.rank() == 3);
  CHECK(x.numel() == 24);
  CHECK(x.bytes() == 96);
  CHECK(x.size(-1) == 4);
  CHECK(x.strides() == Strides{12, 4, 1});
  CHECK(x.device() == test_device());
  CHECK(x.is_contiguous());
  CHECK(x.use_count() == 1);
  const Tensor same = x;  // NOLINT(performance-unnecessary-copy-initialization)
  CHECK(x.use_count() == 2);
  CHECK(same.shares_storage(x));
  CHECK_FALSE(Tensor::empty_like(x).shares_storage(x));
  CHECK(Tensor::empty_like(x).shape() == x.shape());
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor::from<float>({1, 2, 3}).shape() == Shape{3});
  CHECK(Reference::of(Tensor::from<float>({1, 2, 3, 4}, {2, 2})).values ==
        std::vector<double>{1, 2, 3, 4});
  CHECK(Tensor::empty({0, 5}, f32, test_device()).numel() == 0);
  CHECK(Tensor::empty({}, f32, test_device()).numel() == 1);
}

TEST_CASE("tensor views compose") {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 300; ++trial) {
    Reference r = counting({3, 4, 1, 5});
    Tensor t = r.tensor(i32, test_device());
    const Tensor whole = t;
    for (int i = 0; i < 8; ++i) step(t, r, generator);
    CHECK(t.shares_storage(whole));
    check_equal(t, r);
    bool dense = true;  // by the definition: row-major order without gaps
    int64_t expected = 1;
    for (int axis = t.rank() - 1; axis >= 0; --axis) {
      dense = dense && (t.size(axis) == 1 || t.strides()[axis] == expected);
      expected *= t.size(axis);
    }
    CHECK(t.is_contiguous() == dense);
  }
}

TEST_CASE("tensor view") {
  const Reference r = counting({4, 6});
  const Tensor x = r.tensor(i32, test_device());
  for (const Shape& shape :
       {Shape{24}, Shape{2, 2, 6}, Shape{4, 2, 3}, Shape{1, 24, 1}, Shape{8, 3}}) {
    CHECK(x.can_view(shape));
    CHECK(Reference::of(x.view(shape)).values == r.values);
    CHECK(x.view(shape).shape() == shape);
  }
  CHECK(x.view({-1, 8}).shape() == Shape{3, 8});
  CHECK(x.view({24, -1}).shape() == Shape{24, 1});
  // Strided, but the axes touched are dense among themselves.
  const Tensor turned = x.view({2, 2, 6}).permute({2, 0, 1});
  CHECK(turned.can_view({6, 4}));
  check_equal(turned.view({6, 4}), gather(r, {6, 4}, [](const Index& i) {
                return Index{i[1], i[0]};
              }));
  CHECK_FALSE(turned.can_view({24}));
  const Tensor columns = x.slice(1, 0, 4);
  CHECK(columns.can_view({2, 2, 2, 2}));
  check_equal(columns.view({2, 2, 2, 2}), gather(r, {2, 2, 2, 2}, [](const Index& i) {
                return Index{i[0] * 2 + i[1], i[2] * 2 + i[3]};
              }));
  // Extents of 1 may appear anywhere, and empty tensors take any empty shape.
  CHECK(columns.view({1, 4, 1, 4, 1}).shape() == Shape{1, 4, 1, 4, 1});
  CHECK(x.slice(0, 0, 0).view({3, 0, 7}).shape() == Shape{3, 0, 7});
  CHECK(x.slice(1, 0, 6, 2).slice(0, 2, 2).view({5, 0}).shape() == Shape{5, 0});
  CHECK(x.select(0, 0).select(0, 3).view({1, 1}).item() == 3);

  CHECK_THROWS_WITH_AS(columns.view({16}),
                       "view: shape [4, 4] with strides [6, 1] cannot be seen as [16] without a "
                       "copy; call contiguous first",
                       Error);
  CHECK_THROWS_WITH_AS(x.view({5, 5}), "view: 24 elements of [4, 6] seen as [5, 5]", Error);
  CHECK_THROWS_WITH_AS(x.view({-1, -1}), "view: more than one -1 in [-1, -1]", Error);
  CHECK_THROWS_WITH_AS(x.view({-1, 5}), "view: [-1, 5] does not divide [4, 6]", Error);
  CHECK_THROWS_WITH_AS(x.view({-1, 0}), "view: [-1, 0] does not divide [4, 6]", Error);
  CHECK_THROWS_WITH_AS(x.view({-2, -12}), "view: negative extent in [-2, -12]", Error);
}

TEST_CASE("tensor permute and transpose") {
  const Reference r = counting({2, 3, 4});
  const Tensor x = r.tensor(i32, test_device());
  check_equal(x.permute({2, 0, 1}), gather(r, {4, 2, 3}, [](const Index& i) {
                return Index{i[1], i[2], i[0]};
              }));
  check_equal(x.permute({-1, 1, -3}), gather(r, {4, 3, 2}, [](const Index& i) {
                return Index{i[2], i[1], i[0]};
              }));
  check_equal(x.transpose(0, -1), gather(r, {4, 3, 2}, [](const Index& i) {
                return Index{i[2], i[1], i[0]};
              }));
  CHECK(x.transpose(1, 1).is_contiguous());
  CHECK_THROWS_WITH_AS(x.permute({0, 1}), "permute: 2 axes for shape [2, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(x.permute({0, 1, 1}), "permute: [0, 1, 1] is no permutation of 3 axes",
                       Error);
  CHECK_THROWS_WITH_AS(x.permute({0, 1, 3}), "permute: axis 3 is out of range for rank 3", Error);
  CHECK_THROWS_WITH_AS(x.transpose(0, 3), "transpose: axis 3 is out of range for rank 3", Error);
}

TEST_CASE("tensor slice and select") {
  const Reference r = counting({5, 7});
  const Tensor x = r.tensor(i32, test_device());
  const auto rows = [&](int64_t begin, int64_t count, int64_t by) {
    return gather(r, {count, 7}, [=](const Index& i) { return Index{begin + by * i[0], i[1]}; });
  };
  check_equal(x.slice(0, 1, 4), rows(1, 3, 1));
  check_equal(x.slice(0, 0, 5, 2), rows(0, 3, 2));
  check_equal(x.slice(0, 1, 5, 3), rows(1, 2, 3));
  check_equal(x.slice(0, -2, 5), rows(3, 2, 1));  // as in Python: negative from the end, clipped
  check_equal(x.slice(0, 0, -1), rows(0, 4, 1));
  check_equal(x.slice(0, 2, 100), rows(2, 3, 1));
  check_equal(x.slice(0, -100, 2), rows(0, 2, 1));
  CHECK(x.slice(0, 4, 2).shape() == Shape{0, 7});
  CHECK(x.slice(0, 5, 5).shape() == Shape{0, 7});
  check_equal(x.slice(-1, 2, 6, 3), gather(r, {5, 2}, [](const Index& i) {
                return Index{i[0], 2 + 3 * i[1]};
              }));
  CHECK_THROWS_WITH_AS(x.slice(0, 0, 1, 0), "slice: step 0 is not positive", Error);
  CHECK_THROWS_WITH_AS(x.slice(2, 0, 1), "slice: axis 2 is out of range for rank 2", Error);

  check_equal(x.select(0, 3), gather(r, {7}, [](const Index& i) { return Index{3, i[0]}; }));
  check_equal(x.select(1, -1), gather(r, {5}, [](const Index& i) { return Index{i[0], 6}; }));
  CHECK_THROWS_WITH_AS(x.select(0, 5), "select: index 5 on axis 0 of [5, 7]", Error);
  CHECK_THROWS_WITH_AS(x.select(0, -6), "select: index -6 on axis 0 of [5, 7]", Error);
}

TEST_CASE("tensor axes of one") {
  const Tensor x = counting({2, 3}).tensor(i32, test_device());
  CHECK(x.unsqueeze(0).shape() == Shape{1, 2, 3});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 1});
  CHECK(x.unsqueeze(1).is_contiguous());
  CHECK(x.unsqueeze(1).squeeze(1).shape() == Shape{2, 3});
  CHECK_THROWS_WITH_AS(x.squeeze(0), "squeeze: axis 0 of [2, 3] is not 1", Error);
  CHECK_THROWS_WITH_AS(x.unsqueeze(3), "unsqueeze: axis 3 is out of range for rank 3", Error);
}

TEST_CASE("tensor flatten") {
  const Reference r = counting({2, 3, 4});
  const Tensor x = r.tensor(i32, test_device());
  CHECK(x.flatten().shape() == Shape{24});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(x.flatten(0, 1).shape() == Shape{6, 4});
  CHECK(x.flatten(1, 1).shape() == Shape{2, 3, 4});
  CHECK(x.select(0, 0).select(0, 0).select(0, 0).flatten().shape() == Shape{1});
  CHECK(Reference::of(x.flatten(0, 1)).values == r.values);
  CHECK(x.transpose(0, 1).flatten(2).shape() == Shape{3, 2, 4});
  CHECK_THROWS_AS(x.transpose(0, 1).flatten(), Error);
  CHECK_THROWS_WITH_AS(x.flatten(2, 1), "flatten: axes 2..1 of [2, 3, 4]", Error);
}

TEST_CASE("tensor expand") {
  const Reference r = counting({3, 1});
  const Tensor x = r.tensor(i32, test_device());
  check_equal(x.expand({3, 4}), gather(r, {3, 4}, [](const Index& i) { return Index{i[0], 0}; }));
  check_equal(x.expand({2, 3, 4}), gather(r, {2, 3, 4}, [](const Index& i) {
                return Index{i[1], 0};
              }));
  CHECK(x.expand({2, 3, 4}).strides() == Strides{0, 1, 0});
  CHECK(x.expand({3, 0}).numel() == 0);
  CHECK_THROWS_WITH_AS(x.expand({4, 4}), "expand: [3, 1] to [4, 4]", Error);
  CHECK_THROWS_WITH_AS(x.expand({3}), "expand: [3, 1] to fewer axes [3]", Error);
  CHECK_THROWS_WITH_AS(x.expand({3, -1}), "expand: negative extent in [3, -1]", Error);
}

TEST_CASE("tensor as_strided") {
  const Tensor x = counting({20}).tensor(i32, test_device());
  Reference windows({5, 4});  // overlapping
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t k = 0; k < 4; ++k) windows.at({i, k}) = static_cast<double>(3 * i + k + 2);
  check_equal(x.as_strided({5, 4}, {3, 1}, 2), windows);
  const Tensor backward = x.as_strided({20}, {-1}, 19);
  CHECK(Reference::of(x.slice(0, 2, 5).as_strided({2}, {1}, -2)).values ==
        std::vector<double>{0, 1});
  CHECK(backward.shape() == Shape{20});
  CHECK(backward.slice(0, 19, 20).item() == 0);
  CHECK(x.as_strided({0, 100}, {100, 1}).numel() == 0);
  CHECK_THROWS_WITH_AS(x.as_strided({5, 4}, {4, 1}, 1),
                       "as_strided: shape [5, 4], strides [4, 1], offset 1 leave a storage of 20 "
                       "elements",
                       Error);
  CHECK_THROWS_AS(x.as_strided({2}, {-1}), Error);
  CHECK_THROWS_WITH_AS(x.as_strided({-2}, {1}), "as_strided: negative extent in [-2]", Error);
  CHECK_THROWS_WITH_AS(x.as_strided({2}, {1, 1}), "as_strided: shape [2], strides [1, 1]", Error);
}

TEST_CASE("tensor item and copies") {
  for (DType dtype : {u8, i32, i64, f16, bf16, f32, f64}) {
    const Tensor x = counting({2, 3}).tensor(dtype, test_device());
    CHECK(x.slice(0, 1, 2).slice(1, 2, 3).item() == 5);
  }
  CHECK(Tensor::from<bool>({true}).item() == 1);
  CHECK(std::isinf(Tensor::from<double>({std::numeric_limits<double>::infinity()}).item()));
  const Tensor x = counting({2, 3}).tensor(f32, test_device());
  CHECK_THROWS_WITH_AS(x.item(), "item: tensor of shape [2, 3] has 6 elements", Error);
  CHECK(x.to(test_device()).shares_storage(x));
  const Tensor to = Tensor::empty({2, 3}, f32);
  copy_bytes(x, to);
  CHECK(Reference::of(to).values == Reference::of(x).values);
  CHECK_THROWS_WITH_AS(copy_bytes(x, Tensor::empty({3, 2}, f32)),
                       "copy: f32 [2, 3] into f32 [3, 2]", Error);
  CHECK_THROWS_WITH_AS(copy_bytes(x, Tensor::empty({2, 3}, f16)),
                       "copy: f32 [2, 3] into f16 [2, 3]", Error);
  CHECK_THROWS_WITH_AS(copy_bytes(x.transpose(0, 1), Tensor::empty({3, 2}, f32)),
                       "copy: between devices both tensors must be contiguous: strides [1, 3] and "
                       "[2, 1] for shape [3, 2]",
                       Error);
}

TEST_CASE("tensor copies that overlap give what was there before") {
  for (const int64_t shift : {1, 3, 7, 0}) {
    for (const bool forward : {true, false}) {
      CAPTURE(shift);
      CAPTURE(forward);
      const Tensor x = counting({10}).tensor(i32, test_device());
      const Tensor low = x.slice(0, 0, 10 - shift), high = x.slice(0, shift, 10);
      const Tensor &from = forward ? low : high, &to = forward ? high : low;
      const std::vector<double> expected = Reference::of(from).values;
      copy_bytes(from, to);
      CHECK(Reference::of(to).values == expected);
      copy_bytes(low, x.slice(0, 0, 10 - shift));  // onto itself
    }
  }
}

TEST_CASE("tensor refuses misuse") {
  CHECK_THROWS_WITH_AS(Tensor::empty({2, -1}, f32), "tensor: negative extent in shape [2, -1]",
                       Error);
  float values[6] = {};
  for (const Shape& shape : {Shape{-2, -3}, Shape{-2, 0}, Shape{0, -3}})
    CHECK_THROWS_WITH_AS(Tensor::from_blob(values, shape, f32),
                         format("from_blob: shape {} is of no tensor", shape).c_str(), Error);
  CHECK_THROWS_WITH_AS(Tensor::empty({2}, f32).data<double>(),
                       "tensor: data of dtype f32 read as f64", Error);
  CHECK_THROWS_WITH_AS(Tensor::from<float>({1, 2, 3}, {2, 2}), "tensor: 3 values for shape [2, 2]",
                       Error);
  const auto text = [](const char* name) {
    return std::string(name) + ": a Tensor is undefined: nothing was assigned to it";
  };
  CHECK_THROWS_WITH_AS(Tensor().device("matmul"), text("matmul").c_str(), Error);
  CHECK_THROWS_WITH_AS(Tensor().data(), text("data").c_str(), Error);
  CHECK_THROWS_WITH_AS(Tensor().as_strided({1}, {1}), text("as_strided").c_str(), Error);
  CHECK_THROWS_WITH_AS(Tensor().expand({2}), text("expand").c_str(), Error);
  for (const auto& use : {std::function<void()>([] { Tensor().view({1}); }),
                          std::function<void()>([] { Tensor().item(); }),
                          std::function<void()>([] { Tensor().unsqueeze(0); }),
                          std::function<void()>([] { Tensor().device(); })})
    CHECK_THROWS_WITH_AS(use(), doctest::Contains(": a Tensor is undefined"), Error);
}

TEST_CASE("tensor: only a variable can be assigned to") {
  static_assert(std::is_assignable_v<Tensor&, Tensor>);
  static_assert(std::is_assignable_v<Tensor&, const Tensor&>);
  static_assert(!std::is_assignable_v<Tensor, Tensor>);
  static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
  static_assert(std::is_nothrow_move_constructible_v<Tensor>);  // vectors move them
}
