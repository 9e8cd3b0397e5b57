#include <bs/lib/tensor.h>
#include <bs/lib/tensor_from.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

using namespace bs;

TEST_CASE("slice: ends and steps as large as numbers are") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = -most - 1;
  const Tensor x = Tensor::from<float>({0, 1, 2, 3, 4});
  CHECK(x.slice(0, least, most).shape() == Shape{5});
  CHECK(x.slice(0, most, least).shape() == Shape{0});
  const Tensor one = x.slice(0, 1, most, most);
  CHECK(one.shape() == Shape{1});
  CHECK(one.item() == 1);
  CHECK(one.slice(0, 0, most, most).slice(0, least, most, most - 1).item() == 1);
  CHECK(x.slice(0, 3, 3, most).numel() == 0);
  CHECK(x.slice(0, 0, 5, 4).strides() == Strides{4});
  CHECK_THROWS_AS(x.slice(0, 0, 5, least), Error);
  CHECK_THROWS_AS(x.select(0, least), Error);
  CHECK_THROWS_AS(x.select(0, most), Error);
}

TEST_CASE("views without elements: positions and strides as large as numbers are") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), far = int64_t{1} << 62;
  const Tensor none = Tensor::empty({0}, f32).as_strided({8, far, 0}, {far, 1, 1});
  CHECK(none.select(0, 7).shape() == Shape{far, 0});
  CHECK(none.slice(0, 7, 8).slice(1, 1 << 20, most, 3).numel() == 0);
  const Tensor x = Tensor::from<float>({1, 2});
  const Tensor odd = x.as_strided({4, 0}, {far, -far}, most);
  CHECK(odd.select(0, 3).shape() == Shape{0});
  CHECK(odd.slice(0, 1, 4, 2).as_strided({0}, {1}, most).numel() == 0);
  const Tensor one = x.slice(0, 1, 2).as_strided({1}, {most});
  CHECK(one.slice(0, 1, 1).numel() == 0);
  CHECK(odd.data() == x.data());
  CHECK(Tensor::empty({0, far, far}, f32).is_contiguous());
}

TEST_CASE("permute: an axis is a whole number, not its lower bits") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(x.permute({int64_t{1} << 32, 1}),
                       "permute: axis 4294967296 is out of range for rank 2", Error);
}

TEST_CASE("tensor: one that was moved away gives no views, though it keeps its shape") {
  Tensor x = Tensor::empty({2, 1}, f32);
  const Tensor y = std::move(x);
  CHECK(y.defined());
  CHECK(!x.defined());  // NOLINT(bugprone-use-after-move): that is what is asked
  const std::pair<const char*, std::function<void()>> uses[] = {
      {"select", [&] { x[0]; }},
      {"slice", [&] { x.slice(0, 0, 1); }},
      {"squeeze", [&] { x.squeeze(1); }},
      {"permute",
       [&] {
         x.permute({1, 0});
       }},
      {"transpose", [&] { x.transpose(0, 1); }}};
  for (const auto& use : uses)
    CHECK_THROWS_WITH_AS(
        use.second(),
        (std::string(use.first) + ": a Tensor is undefined: nothing was assigned to it").c_str(),
        Error);
}

TEST_CASE("tensor: an axis too many is an error of what was called") {
  CHECK_THROWS_WITH_AS(
      Tensor::empty({1, 2, 1, 1, 1, 1, 1, 1}, f32).unsqueeze(0),
      "unsqueeze: [1, 2, 1, 1, 1, 1, 1, 1] has 8 axes already, the most there may be", Error);
}
