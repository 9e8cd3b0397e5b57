#include <bs/lib/check.h>
#include <bs/lib/cuda/encoded_maps.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

TiledTensor usual(uintptr_t address = 4096) {
  return {.element = TensorMapElement::f16,
          .address = reinterpret_cast<const void*>(address),
          .rank = 2,
          .dims = {64, 100},
          .strides = {0, 128},
          .box = {64, 32},
          .swizzle = TensorMapSwizzle::bytes_128};
}

}  // namespace

TEST_CASE("encoded maps: a tensor is encoded once, and again where anything of it differs") {
  EncodedMaps maps;
  uint64_t made = 0;
  const auto get = [&](const TiledTensor& tensor) {
    return maps.get(tensor, [&] { return TensorMap{.words = {++made}}; }).words[0];
  };
  CHECK(get(usual()) == 1);
  CHECK(get(usual()) == 1);
  const std::vector<std::function<void(TiledTensor&)>> changes = {
      [](TiledTensor& t) { t.element = TensorMapElement::bf16; },
      [](TiledTensor& t) { t.address = reinterpret_cast<const void*>(8192); },
      [](TiledTensor& t) { t.rank = 3; },
      [](TiledTensor& t) { t.dims[1] = 101; },
      [](TiledTensor& t) { t.strides[1] = 256; },
      [](TiledTensor& t) { t.box[1] = 16; },
      [](TiledTensor& t) { t.swizzle = TensorMapSwizzle::none; },
      [](TiledTensor& t) { t.promotion = TensorMapPromotion::none; }};
  for (const auto& change : changes) {
    TiledTensor other = usual();
    change(other);
    const uint64_t before = made;
    CHECK(get(other) == before + 1);
    CHECK(get(other) == before + 1);
  }
}

TEST_CASE("encoded maps: nothing is kept of a tensor that cannot be encoded") {
  EncodedMaps maps;
  int tries = 0;
  const auto fails = [&]() -> TensorMap {
    ++tries;
    BS_THROW(Error, "no map");
  };
  CHECK_THROWS_AS(maps.get(usual(), fails), Error);
  CHECK_THROWS_AS(maps.get(usual(), fails), Error);
  CHECK(tries == 2);
  const TensorMap map{.words = {7}};
  CHECK(maps.get(usual(), [&] { return map; }).words[0] == 7);
  CHECK(maps.get(usual(), fails).words[0] == 7);
}

TEST_CASE("encoded maps: addresses a block apart fill the places evenly") {
  std::set<size_t> places;
  constexpr size_t tensors = EncodedMaps::places;
  for (size_t i = 1; i <= tensors; ++i) {
    const size_t place = EncodedMaps::place_of(usual(i * 65536));
    REQUIRE(place < EncodedMaps::places);
    places.insert(place);
  }
  CHECK(places.size() > tensors / 2);
}
