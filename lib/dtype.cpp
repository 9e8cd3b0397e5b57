#include <bs/lib/dtype.h>

#include <algorithm>
#include <array>

namespace bs {

namespace {
struct Name {
  DType dtype;
  const char* ours;
  const char* torch;
};
constexpr std::array<Name, 8> names{{{DType::boolean, "bool", "bool"},
                                     {DType::u8, "u8", "uint8"},
                                     {DType::i32, "i32", "int32"},
                                     {DType::i64, "i64", "int64"},
                                     {DType::f16, "f16", "float16"},
                                     {DType::bf16, "bf16", "bfloat16"},
                                     {DType::f32, "f32", "float32"},
                                     {DType::f64, "f64", "float64"}}};
}  // namespace

std::string to_string(DType d) { return names[static_cast<size_t>(d)].ours; }

DType parse_dtype(std::string_view name) {
  for (const Name& n : names)
    if (name == n.ours || name == n.torch) return n.dtype;
  BS_THROW(Error, "dtype: unknown name '{}'; known: bool u8 i32 i64 f16 bf16 f32 f64", name);
}

DType promote(DType a, DType b) {
  if (is_low_precision(a) && is_low_precision(b) && a != b) return DType::f32;
  return std::max(a, b);
}

namespace detail {
void unsupported_dtype(const char* op, DType d, const char* expected) {
  BS_THROW(Error, "{}: dtype {} is not supported; expected {}", op, d, expected);
}
}  // namespace detail

}  // namespace bs
