#include <bs/lib/overlap.h>
#include <doctest/doctest.h>

#include <set>
#include <vector>

using namespace bs;

namespace {

/// The places of all elements, one by one.
std::set<const char*> places(const Tensor& x) {
  if (x.rank() == 0) return {static_cast<const char*>(x.data())};
  std::set<const char*> all;
  for (int64_t i = 0; i < x.size(0); ++i) all.merge(places(x[i]));
  return all;
}

bool share(const Tensor& a, const Tensor& b) {
  const std::set<const char*> of_a = places(a);
  for (const char* place : places(b))
    if (of_a.contains(place)) return true;
  return false;
}

}  // namespace

TEST_CASE("may_share_elements knows parts of a tensor that take turns") {
  const Tensor x = Tensor::empty({4, 6, 8}, DType::f32);
  std::vector<Tensor> parts = {x, x[1], x.transpose(0, 2), Tensor::empty({4, 6, 8}, DType::f32)};
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t n = x.size(axis);
    parts.push_back(x.slice(axis, 0, n / 2));
    parts.push_back(x.slice(axis, n / 2, n));
    parts.push_back(x.slice(axis, 0, n, 2));
    parts.push_back(x.slice(axis, 1, n, 2));
    parts.push_back(x.slice(axis, 1, n / 2 + 1).transpose(0, 1));
    parts.push_back(x.select(axis, 1));
  }
  parts.push_back(x.slice(1, 0, 3).slice(2, 0, 4));
  parts.push_back(x.slice(1, 0, 3).slice(2, 4, 8).transpose(1, 2));
  parts.push_back(x.slice(1, 3, 6).slice(2, 2, 6));
  parts.push_back(x.slice(2, 0, 0));
  parts.push_back(x.slice(0, 1, 2).expand({3, 6, 8}));
  int apart = 0;
  for (const Tensor& a : parts)
    for (const Tensor& b : parts) {
      CAPTURE(a.shape());
      CAPTURE(a.strides());
      CAPTURE(b.shape());
      CAPTURE(b.strides());
      CHECK(may_share_elements(a, b) == share(a, b));
      apart += share(a, b) ? 0 : 1;
    }
  CHECK(apart > 100);
}

TEST_CASE("may_share_elements says no only where it is certain") {
  const Tensor x = Tensor::empty({64}, DType::f32);
  for (const int64_t rows : {1, 2, 3})
    for (const int64_t step : {1, 2, 3, 5, 7})
      for (const int64_t other : {1, 2, 4, 6})
        for (int64_t from = 0; from < 12; ++from) {
          const Tensor a = x.as_strided({rows, 3}, {step, other}, 4);
          const Tensor b = x.as_strided({2, 2}, {other, step}, from);
          if (share(a, b)) CHECK(may_share_elements(a, b));
          if (share(a, b)) CHECK(may_share_elements(b, a));
        }
}

TEST_CASE("same_elements is true of one view alone") {
  const Tensor x = Tensor::empty({4, 4}, DType::f32);
  CHECK(same_elements(x, x.view({4, 4})));
  CHECK(same_elements(x.slice(0, 0, 1), x.as_strided({1, 4}, {9, 1})));
  CHECK_FALSE(same_elements(x, x.transpose(0, 1)));
  CHECK_FALSE(same_elements(x, x.view({16})));
  CHECK_FALSE(same_elements(x[0], x[1]));
  CHECK_FALSE(same_elements(x, Tensor::from_blob(x.data(), {4, 4}, DType::i32)));
}
