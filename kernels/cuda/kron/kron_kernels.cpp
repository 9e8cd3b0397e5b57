#include <bs/kernels/cuda/kron/kron_kernels.h>

#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/jit/emit.h>

#include <string>

namespace bs::cuda {

namespace {

std::string list_of(const std::array<int, device::KronShape::most>& values, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(values[static_cast<size_t>(i)]);
  return text;
}

std::string name_of(const KronKernel& k) {
  std::string name = k.backward ? "kron_backward_" : "kron_";
  name += to_string(k.dtype);
  for (int i = 0; i < k.count; ++i)
    name += format("_{}x{}", k.p[static_cast<size_t>(i)], k.q[static_cast<size_t>(i)]);
  name += format("_r{}_c{}_t{}", k.rows, k.chunk, k.threads);
  if (k.products > 0) name += k.products == 1 ? "_tf32" : "_3xtf32";
  return name + (k.whole ? "" : "_part") + (k.aligned ? "" : "_odd") + (k.finish ? "_finish" : "");
}

}  // namespace

device::KronShape KronKernel::shape() const {
  device::KronShape s{.size = static_cast<int>(size_of(dtype)),
                      .products = products,
                      .rows = rows,
                      .chunk = chunk,
                      .threads = threads,
                      .count = count,
                      .p = {},
                      .q = {}};
  for (size_t i = 0; i < p.size(); ++i) s.p[i] = p[i], s.q[i] = q[i];
  return s;
}

KronKernel kron_kernel(DType dtype, const device::KronShape& s) {
  KronKernel k{.dtype = dtype,
               .products = s.products,
               .rows = s.rows,
               .chunk = s.chunk,
               .threads = s.threads,
               .count = s.count};
  for (size_t i = 0; i < k.p.size(); ++i) k.p[i] = s.p[i], k.q[i] = s.q[i];
  return k;
}

jit::Source kron_source(const KronKernel& k) {
  const std::string name = name_of(k);
  const char* const pass = k.backward ? "backward" : "forward";
  std::string code = format(
      "#include <bs/kernels/cuda/device/kron/kron_{}.cuh>\n\nusing namespace bs::cuda::device;\n"
      "constexpr KronShape shape{.size = {}, .products = {}, .rows = {}, .chunk = {},\n"
      "                          .threads = {}, .count = {}, .p = {{}}, .q = {{}}};\n",
      pass, size_of(k.dtype), k.products, k.rows, k.chunk, k.threads, k.count,
      list_of(k.p, k.count), list_of(k.q, k.count));
  code +=
      format("static_assert(shape.{}_bytes() == {});\n\n", pass, kron_bytes(k.shape(), k.backward));
  code += format(
      "extern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "    {}(const __grid_constant__ {} arguments) {\n",
      k.threads, k.backward || k.finish ? 1 : k.shape().ctas(), name,
      k.backward ? "KronBackwardArguments" : "KronForwardArguments");
  code += format("  kron_{}<{}, shape, {}, {}{}>(arguments);\n}\n", pass, device_type_name(k.dtype),
                 k.whole, k.aligned, k.backward ? "" : (k.finish ? ", true" : ", false"));
  return {name, code, device_headers()};
}

jit::Source kron_sum_source(DType dtype) {
  const std::string name = "kron_sum_" + to_string(dtype);
  return {name,
          format("#include <bs/kernels/cuda/device/kron/kron_backward.cuh>\n\n"
                 "using namespace bs::cuda::device;\n"
                 "extern \"C\" __global__ void {}(const __grid_constant__ KronSumArguments a) {\n"
                 "  kron_sum<{}>(a);\n}\n",
                 name, device_type_name(dtype)),
          device_headers()};
}

}  // namespace bs::cuda
