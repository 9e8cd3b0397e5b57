#include <bs/kernels/cuda/jit/warpgroup_mma.h>
#include <bs/lib/check.h>

namespace bs::cuda {

namespace {

/// `item(0), item(1), ...` in lines of eight.
template <class Item>
std::string list(int count, const char* indent, Item&& item) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += i % 8 == 0 ? std::string(",") + indent : ", ";
    text += item(i);
  }
  return text;
}

void check_columns(int n) {
  BS_CHECK(n > 0 && n <= 256 && n % 8 == 0, "wgmma: {} columns are no multiple of 8 up to 256", n);
}

const char* check_type(DType dtype) {
  BS_CHECK(dtype == f16 || dtype == bf16, "wgmma: dtype {} is neither f16 nor bf16", dtype);
  return dtype == f16 ? "f16" : "bf16";
}

}  // namespace

std::string warpgroup_mma_tf32(int n) {
  check_columns(n);
  const int sums = n / 2;
  std::string code = "struct Mma {\n";
  code += format(
      "  static void multiply(float (&d)[{}], const unsigned (&a)[4], unsigned long long b, int "
      "add) "
      "{\n    asm volatile(\n",
      sums);
  code += format("        \"{.reg .pred add; setp.ne.b32 add, %{}, 0;\\n\"\n", sums + 5);
  code +=
      format("        \"wgmma.mma_async.sync.aligned.m64n{}k8.f32.tf32.tf32 {\"\n        \"", n);
  code += list(sums, "\"\n        \"", [](int i) { return format("%{}", i); });
  code += format("\"\n        \"}, {%{}, %{}, %{}, %{}}, %{}, add, 1, 1;}\"\n        : ", sums,
                 sums + 1, sums + 2, sums + 3, sums + 4);
  code += list(sums, "\n          ", [](int i) { return format("\"+f\"(d[{}])", i); });
  return code +
         "\n        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
         "\"r\"(add));\n  }\n};\n";
}

std::string warpgroup_mma(int n, DType dtype, bool a_along_k, bool b_along_k) {
  check_columns(n);
  const char* const type = check_type(dtype);
  const int sums = n / 2;
  std::string code = "struct Mma {\n";
  code += format(
      "  static void multiply(float (&d)[{}], unsigned long long a, unsigned long long b,", sums);
  code += " int add) {\n    asm volatile(\n";
  code += format("        \"{.reg .pred add; setp.ne.b32 add, %{}, 0;\\n\"\n", sums + 2);
  code += format("        \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {\"\n        \"", n,
                 type, type);
  code += list(sums, "\"\n        \"", [](int i) { return format("%{}", i); });
  code += format("\"\n        \"}, %{}, %{}, add, 1, 1, {}, {};}\"\n        : ", sums, sums + 1,
                 a_along_k ? 0 : 1, b_along_k ? 0 : 1);
  code += list(sums, "\n          ", [](int i) { return format("\"+f\"(d[{}])", i); });
  return code + "\n        : \"l\"(a), \"l\"(b), \"r\"(add));\n  }\n};\n";
}

std::string warpgroup_mma_left(int n, DType dtype, bool b_along_k) {
  check_columns(n);
  const char* const type = check_type(dtype);
  const int sums = n / 2;
  std::string code = "struct Mma {\n";
  code += format(
      "  static void multiply(float (&d)[{}], const unsigned (&a)[4], unsigned long long b,", sums);
  code += " int add) {\n    asm volatile(\n";
  code += format("        \"{.reg .pred add; setp.ne.b32 add, %{}, 0;\\n\"\n", sums + 5);
  code += format("        \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {\"\n        \"", n,
                 type, type);
  code += list(sums, "\"\n        \"", [](int i) { return format("%{}", i); });
  code += format("\"\n        \"}, {%{}, %{}, %{}, %{}}, %{}, add, 1, 1, {};}\"\n        : ", sums,
                 sums + 1, sums + 2, sums + 3, sums + 4, b_along_k ? 0 : 1);
  code += list(sums, "\n          ", [](int i) { return format("\"+f\"(d[{}])", i); });
  return code +
         "\n        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
         "\"r\"(add));\n  }\n};\n";
}

}  // namespace bs::cuda
