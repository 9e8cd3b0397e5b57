#include <bs/lib/dtype.h>
#include <doctest/doctest.h>

#include <array>

using namespace bs;

namespace {
constexpr std::array all = {boolean, u8, i32, i64, f16, bf16, f32, f64};
}

TEST_CASE("dtype names and sizes") {
  const char* names[] = {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  const char* torch[] = {"bool",    "uint8",    "int32",   "int64",
                         "float16", "bfloat16", "float32", "float64"};
  const size_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(to_string(all[i]) == names[i]);
    CHECK(parse_dtype(names[i]) == all[i]);
    CHECK(parse_dtype(torch[i]) == all[i]);
    CHECK(size_of(all[i]) == sizes[i]);
    CHECK(is_floating(all[i]) == (i >= 4));
    CHECK(is_low_precision(all[i]) == (i == 4 || i == 5));
  }
  CHECK_THROWS_WITH_AS(parse_dtype("f8"),
                       "dtype: unknown name 'f8'; known: bool u8 i32 i64 f16 bf16 f32 f64", Error);
}

TEST_CASE("dtype promotion is PyTorch's") {
  // torch.promote_types(row, column), as PyTorch 2 prints it.
  const DType expected[8][8] = {{boolean, u8, i32, i64, f16, bf16, f32, f64},   // bool
                                {u8, u8, i32, i64, f16, bf16, f32, f64},        // uint8
                                {i32, i32, i32, i64, f16, bf16, f32, f64},      // int32
                                {i64, i64, i64, i64, f16, bf16, f32, f64},      // int64
                                {f16, f16, f16, f16, f16, f32, f32, f64},       // float16
                                {bf16, bf16, bf16, bf16, f32, bf16, f32, f64},  // bfloat16
                                {f32, f32, f32, f32, f32, f32, f32, f64},       // float32
                                {f64, f64, f64, f64, f64, f64, f64, f64}};      // float64
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < all.size(); ++b) CHECK(promote(all[a], all[b]) == expected[a][b]);
}

TEST_CASE("dtype becomes a type") {
  for (DType d : all) CHECK(visit_any(d, []<class T>(Type<T>) { return dtype_of<T>; }) == d);
  for (DType d : {f16, bf16, f32, f64})
    CHECK(visit_floating("op", d, []<class T>(Type<T>) { return dtype_of<T>; }) == d);
  for (DType d : {i32, i64})
    CHECK(visit_index("op", d, []<class T>(Type<T>) { return dtype_of<T>; }) == d);
  const auto nothing = []<class T>(Type<T>) {};
  CHECK_THROWS_WITH_AS(visit_floating("softmax", i64, nothing),
                       "softmax: dtype i64 is not supported; expected f64, f32, f16 or bf16",
                       Error);
  CHECK_THROWS_WITH_AS(visit_index("embedding", f32, nothing),
                       "embedding: dtype f32 is not supported; expected i64 or i32", Error);
}
