#include <bs/lib/cuda/tensor_map.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

/// 100 x 64 elements of f16 in rows of 128 bytes; a box of 32 x 64.
TiledTensor usual(const void* address = reinterpret_cast<const void*>(4096)) {
  return {.element = TensorMapElement::f16,
          .address = address,
          .rank = 2,
          .dims = {64, 100},
          .strides = {0, 128},
          .box = {64, 32},
          .swizzle = TensorMapSwizzle::bytes_128};
}

template <class Change>
std::string broken(Change&& change) {
  TiledTensor tensor = usual();
  change(tensor);
  try {
    check_tiled("gemm", tensor);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace

TEST_CASE("tensor_map: what TMA can address passes") {
  check_tiled("gemm", usual());
  TiledTensor other = usual();
  other.rank = 5;
  other.dims = {1, 1, int64_t{1} << 32, 3, 4};
  other.strides = {7, 0, 16, (int64_t{1} << 40) - 16, 32};
  other.box = {8, 256, 1, 1, 1};
  check_tiled("gemm", other);
}

TEST_CASE("tensor_map: each rule is named when it is broken, with the values") {
  CHECK(broken([](TiledTensor& t) { t.rank = 6; }) == "gemm: TMA takes 1 to 5 dimensions, not 6");
  CHECK(broken([](TiledTensor& t) { t.address = reinterpret_cast<const void*>(4104); }) ==
        "gemm: TMA wants an address that is a multiple of 16 bytes, not 4104");
  CHECK(broken([](TiledTensor& t) { t.address = nullptr; }) ==
        "gemm: TMA wants an address that is a multiple of 16 bytes, not 0");
  CHECK(broken([](TiledTensor& t) { t.dims[1] = 0; }) ==
        "gemm: TMA takes dimensions of 1 to 2^32 elements: dims [64, 0]");
  CHECK(broken([](TiledTensor& t) { t.strides[1] = 130; }) ==
        "gemm: TMA wants strides that are multiples of 16 bytes: strides [0, 130]");
  CHECK(broken([](TiledTensor& t) { t.strides[1] = -128; }) ==
        "gemm: TMA takes strides of 0 to 2^40 bytes: strides [0, -128]");
  CHECK(broken([](TiledTensor& t) { t.box[1] = 257; }) ==
        "gemm: a TMA box has 1 to 256 elements a side: box [64, 257]");
  CHECK(broken([](TiledTensor& t) { t.box[0] = 12; }) ==
        "gemm: a line of a TMA box must be a multiple of 16 bytes: 12 x 2 bytes");
  CHECK(broken([](TiledTensor& t) { t.swizzle = TensorMapSwizzle::bytes_64; }) ==
        "gemm: a line of a TMA box must fit the swizzle: 64 x 2 bytes, swizzle of 64 bytes");
}

TEST_CASE("tensor_map: a driver encodes what the checks let pass" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Tensor memory = Tensor::empty({4096}, f32, test::test_device());
  const auto words = [&](auto&& change) {
    TiledTensor tensor = usual(memory.data());
    change(tensor);
    const TensorMap map = encode_tiled("gemm", tensor);
    return std::vector<uint64_t>(std::begin(map.words), std::end(map.words));
  };
  const auto first = words([](TiledTensor&) {});
  CHECK(std::any_of(first.begin(), first.end(), [](uint64_t word) { return word != 0; }));
  CHECK(words([](TiledTensor&) {}) == first);
  CHECK(words([](TiledTensor& t) { t.dims[1] = 50; }) != first);
  CHECK(words([](TiledTensor& t) { t.swizzle = TensorMapSwizzle::none; }) != first);
  for (const TensorMapElement element :
       {TensorMapElement::u8, TensorMapElement::u16, TensorMapElement::u32, TensorMapElement::i32,
        TensorMapElement::u64, TensorMapElement::f16, TensorMapElement::bf16, TensorMapElement::f32,
        TensorMapElement::tf32, TensorMapElement::f64})
    words([&](TiledTensor& t) {
      t.element = element;
      t.box[0] = 16;
    });
}
