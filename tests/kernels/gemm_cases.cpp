#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/devices.h>

#include <random>

namespace bs::test {

using enum MathOperation;

namespace {

constexpr Element f64e = Element::f64, f32e = Element::f32, f16e = Element::f16,
                  bf16e = Element::bf16, i8e = Element::i8, i32e = Element::i32;
constexpr OpClass tensor_op = OpClass::tensor_op;

MatrixLayout layout_of(char c) {
  return c == 'r' ? MatrixLayout::row_major : MatrixLayout::column_major;
}

GemmCase with(GemmCase c, SplitK split, int slices) {
  c.description.split_k = split;
  c.slices = slices;
  return c;
}
GemmCase with(GemmCase c, Swizzle swizzle) {
  c.description.swizzle = swizzle;
  return c;
}

uint8_t integer_bits(Element element, double value) {
  if (element == Element::i8) return static_cast<uint8_t>(static_cast<int8_t>(value));
  return encode_fp8(static_cast<float>(value), element);
}

void write(Element element, const Tensor& host, size_t i, double value) {
  if (host.dtype() == u8) {
    host.data<uint8_t>()[i] = integer_bits(element, value);
  } else if (host.dtype() == i32) {
    host.data<int32_t>()[i] = static_cast<int32_t>(value);
  } else {
    visit_floating("test", host.dtype(),
                   [&]<class T>(Type<T>) { host.data<T>()[i] = static_cast<T>(value); });
  }
}

double read_element(Element element, const Tensor& host, size_t i) {
  if (element == Element::i8) return static_cast<int8_t>(host.data<uint8_t>()[i]);
  if (host.dtype() == u8) return decode_fp8(host.data<uint8_t>()[i], element);
  if (host.dtype() == i32) return host.data<int32_t>()[i];
  double value = 0;
  visit_floating("test", host.dtype(),
                 [&]<class T>(Type<T>) { value = static_cast<double>(host.data<T>()[i]); });
  return value;
}

/// The place in memory of element number `i` of a batch of matrices.
size_t place(const Shape& shape, MatrixLayout layout, size_t i) {
  if (layout == MatrixLayout::row_major) return i;
  const auto rows = static_cast<size_t>(shape[-2]), columns = static_cast<size_t>(shape[-1]);
  const size_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
  return (matrix * columns + column) * rows + row;
}

MatrixLayout layout_of(const Tensor& t) {
  return t.is_contiguous() ? MatrixLayout::row_major : MatrixLayout::column_major;
}

Matrix matrix(Element element, const Shape& shape, MatrixLayout layout,
              std::vector<double> values) {
  Shape stored = shape;
  if (layout == MatrixLayout::column_major) std::swap(stored[-1], stored[-2]);
  const Tensor host = Tensor::empty(stored, storage_dtype(element));
  for (size_t i = 0; i < values.size(); ++i)
    write(element, host, place(shape, layout, i), values[i]);
  const Tensor on_device = host.to(test_device());
  return {element, shape, std::move(values),
          layout == MatrixLayout::row_major ? on_device : on_device.transpose(-1, -2)};
}

}  // namespace

MathInstruction math(Element a, Element accumulator, OpClass op_class, MathOperation operation) {
  for (const MathInstruction& row : math_instructions())
    if (row.a == a && row.b == a && row.accumulator == accumulator && row.op_class == op_class &&
        row.operation == operation)
      return row;
  BS_THROW(Error, "test: no such instruction");
}

GemmDescription describe(const MathInstruction& instruction, std::array<int, 3> threadblock,
                         int stages, std::array<int, 3> warps, const std::string& layouts,
                         Element d) {
  GemmDescription out{.tile = {threadblock, stages, warps, instruction, {1, 1}},
                      .a = {instruction.a, layout_of(layouts[0]), 16 / size_of(instruction.a)},
                      .b = {instruction.b, layout_of(layouts[1]), 16 / size_of(instruction.b)},
                      .d = {d, layout_of(layouts[2]), 1},
                      .epilogue = GemmEpilogue::linear_combination(d)};
  return out;
}

std::vector<GemmCase> example_cases() {
  const auto fast = [](MathOperation operation) { return math(f32e, f32e, tensor_op, operation); };
  const MathInstruction f64_small = math(f64e, f64e), half = math(f16e, f32e);
  const MathInstruction brain = math(bf16e, f32e);
  const auto saturating = math(i8e, i32e, tensor_op, multiply_add_saturate);
  std::vector<GemmCase> cases = {
      {"f64", describe(f64_small, {32, 32, 16}, 4, {2, 2, 1}, "crr", f64e)},
      with({"f64 serial", describe(f64_small, {64, 64, 16}, 4, {2, 2, 1}, "rcr", f64e)},
           SplitK::serial, 2),
      {"fast_bf16", describe(fast(fast_bf16), {128, 128, 32}, 3, {2, 2, 1}, "rcr", f32e)},
      with({"tf32 parallel",
            describe(fast(multiply_add), {128, 128, 16}, 3, {2, 2, 1}, "ccr", f32e)},
           SplitK::parallel, 2),
      with({"3xtf32 serial", describe(fast(fast_f32), {64, 64, 32}, 3, {2, 2, 1}, "rcr", f32e)},
           SplitK::serial, 4),
      with({"f16 to f32", describe(half, {128, 128, 32}, 3, {2, 2, 1}, "crc", f32e)},
           Swizzle::identity4),
      with(with({"f16 serial", describe(half, {128, 128, 32}, 3, {2, 2, 1}, "ccr", f16e)},
                SplitK::serial, 2),
           Swizzle::identity2),
      with({"f16 256x128", describe(half, {256, 128, 32}, 3, {4, 2, 1}, "ccr", f16e)},
           SplitK::parallel, 3),
      with({"bf16 parallel", describe(brain, {64, 128, 64}, 4, {2, 2, 1}, "crr", bf16e)},
           SplitK::parallel, 5),
      {"i8", describe(saturating, {128, 128, 128}, 3, {2, 4, 1}, "rcr", i8e), 512, 512, 512, 1, 0},
  };
  cases.back().description.epilogue =
      GemmEpilogue(epilogue::clamp(epilogue::scalar("alpha") * epilogue::accumulator() +
                                       epilogue::scalar("beta") * epilogue::tensor("c", i8e),
                                   -128, 127));
  return cases;
}

std::vector<GemmCase> portable_cases() {
  std::vector<GemmCase> cases;
  const OpClass simt = OpClass::simt;
  for (const std::string layouts : {"rrr", "rcr", "crr", "ccr", "rrc", "rcc", "crc", "ccc"}) {
    cases.push_back(
        {"f16", describe(math(f16e, f32e), {64, 128, 32}, 3, {2, 2, 1}, layouts, f16e)});
    cases.push_back(
        {"tf32", describe(math(f32e, f32e), {64, 64, 32}, 3, {2, 2, 1}, layouts, f32e)});
    cases.push_back({"f64", describe(math(f64e, f64e), {64, 32, 16}, 3, {2, 2, 1}, layouts, f64e)});
    cases.push_back(
        {"simt", describe(math(f32e, f32e, simt), {64, 64, 8}, 3, {2, 2, 1}, layouts, f32e)});
    cases.push_back({"i8", describe(math(i8e, i32e), {64, 64, 64}, 3, {2, 2, 1}, layouts, i32e)});
  }
  cases.push_back(
      {"simt f64", describe(math(f64e, f64e, simt), {32, 64, 8}, 2, {1, 2, 1}, "rcr", f64e)});
  cases.push_back(
      {"f16 sums", describe(math(f16e, f16e), {64, 64, 32}, 3, {2, 2, 1}, "rcr", f16e)});
  cases.push_back({"fast_f16", describe(math(f32e, f32e, tensor_op, fast_f16), {64, 64, 16}, 3,
                                        {2, 2, 1}, "crr", f32e)});
  cases.push_back({"3xtf32", describe(math(f32e, f32e, tensor_op, fast_f32), {128, 64, 16}, 3,
                                      {2, 2, 1}, "ccr", f32e)});
  cases.push_back({"sliced", describe(math(f16e, f32e), {128, 64, 64}, 3, {2, 1, 2}, "rcr", f16e)});
  cases.push_back(
      {"one step", describe(math(bf16e, f32e), {64, 64, 16}, 3, {2, 2, 1}, "rcr", bf16e)});
  for (const Swizzle swizzle : {Swizzle::identity8, Swizzle::stream_k})
    cases.push_back(
        with({"swizzle", describe(math(bf16e, f32e), {64, 64, 32}, 3, {2, 2, 1}, "rcr", bf16e), 712,
              552, 1000},
             swizzle));
  GemmCase unaligned{"unaligned",
                     describe(math(f16e, f32e), {64, 64, 32}, 3, {2, 2, 1}, "rcr", f16e), 65, 79,
                     131};
  unaligned.description.a.alignment = unaligned.description.b.alignment = 1;
  cases.push_back(unaligned);
  GemmCase halves{"4-byte aligned",
                  describe(math(bf16e, f32e), {64, 64, 32}, 3, {2, 2, 1}, "crr", bf16e), 66, 78,
                  130};
  halves.description.a.alignment = halves.description.b.alignment = 2;
  cases.push_back(halves);
  return cases;
}

namespace {

/// An instruction of warpgroups over n columns.
MathInstruction wide(Element e, Element sum, int n, MathOperation operation = multiply_add) {
  MathInstruction m = math(e, sum, OpClass::warpgroup, operation);
  m.shape[1] = n;
  return m;
}

void add_elements(std::vector<GemmCase>& cases) {
  for (const std::string layouts : {"rrr", "rcr", "crr", "ccr", "rcc", "crc"}) {
    cases.push_back({"bf16",
                     describe(wide(bf16e, f32e, 256), {128, 256, 64}, 4, {8, 1, 1}, layouts, bf16e),
                     712, 552, 1000});
    if (layouts[2] == 'c')
      std::swap(cases.back().description.tile.threadblock[0],
                cases.back().description.tile.threadblock[1]);
  }
  cases.push_back({"f16",
                   describe(wide(f16e, f32e, 128), {256, 128, 64}, 4, {8, 1, 1}, "rcr", f16e), 512,
                   256, 128});
  cases.push_back({"f16 to f32",
                   describe(wide(f16e, f32e, 64), {64, 64, 64}, 6, {4, 1, 1}, "ccr", f32e), 104, 72,
                   200});
  cases.push_back({"tf32",
                   describe(wide(f32e, f32e, 128), {128, 128, 32}, 5, {8, 1, 1}, "rcr", f32e), 300,
                   260, 520});
  cases.push_back({"i8", describe(wide(i8e, i32e, 128), {128, 128, 128}, 4, {8, 1, 1}, "rcr", i8e),
                   512, 512, 512});
  cases.push_back({"i8 to i32",
                   describe(wide(i8e, i32e, 192, multiply_add_saturate), {128, 192, 128}, 4,
                            {8, 1, 1}, "rcr", i32e),
                   300, 400, 272});
  cases.push_back(
      {"e4m3", describe(wide(Element::e4m3, f32e, 128), {128, 128, 128}, 4, {8, 1, 1}, "rcr", f16e),
       200, 304, 400});
  cases.push_back(
      {"e5m2",
       describe(wide(Element::e5m2, f32e, 256), {128, 256, 128}, 3, {8, 1, 1}, "rcr", bf16e), 200,
       304, 400});
}

/// f32 as three products of TF32, whole and in parts.
void add_split_operands(std::vector<GemmCase>& cases) {
  for (const std::string layouts : {"rrr", "rcr", "crr", "ccr", "rcc", "crc"}) {
    const bool turned = layouts[2] == 'c';
    cases.push_back(
        {"3xtf32",
         describe(wide(f32e, f32e, 128, fast_f32), {turned ? 128 : 64, turned ? 64 : 128, 32}, 3,
                  {4, 1, 1}, layouts, f32e),
         201, 303, 777});
    cases.back().description.a.alignment = cases.back().description.b.alignment = 1;
  }
  GemmCase parts{
      "3xtf32",
      describe(wide(f32e, f32e, 192, fast_f32), {128, 192, 32}, 2, {8, 1, 1}, "rcr", f32e), 300,
      700, 500};
  cases.push_back(parts);
  cases.push_back(with(parts, SplitK::serial, 3));
  cases.push_back(with(parts, Swizzle::stream_k));
  parts.description =
      describe(wide(f32e, f32e, 128, fast_f32), {128, 128, 32}, 3, {8, 1, 1}, "crr", f32e);
  parts.description.tile.cluster = {2, 1};
  cases.push_back(parts);
}

void add_clusters(std::vector<GemmCase>& cases) {
  const GemmCase plain{"bf16",
                       describe(wide(bf16e, f32e, 256), {128, 256, 64}, 4, {8, 1, 1}, "rcr", bf16e),
                       1000, 1416, 1000};
  cases.push_back(with(plain, SplitK::serial, 3));
  cases.push_back(with(plain, SplitK::parallel, 5));
  cases.push_back(with(plain, Swizzle::stream_k));
  for (const std::array<int, 2> cluster : {std::array{2, 1}, std::array{1, 2}}) {
    GemmCase c = with(plain, Swizzle::identity8);
    c.description.tile.cluster = cluster;
    cases.push_back(c);
    c.description.a.layout = MatrixLayout::column_major;
    c.description.b.layout = MatrixLayout::row_major;
    cases.push_back(c);
  }
  // Odd numbers of tiles, down and across: the last row's or column's make pairs of their own.
  for (const std::array<int, 2> cluster : {std::array{2, 1}, std::array{1, 2}})
    for (const auto& [m, n] : {std::pair{304, 712}, std::pair{40, 1000}, std::pair{496, 200}}) {
      GemmCase c = plain;
      c.description.tile.cluster = cluster;
      c.m = m;
      c.n = n;
      c.k = 200;
      cases.push_back(c);
    }
}

void add_clusters_along_depth(std::vector<GemmCase>& cases) {
  const auto along_depth = [&](GemmCase c, int ctas) {
    c.name += " cluster_k";
    c.description.tile.cluster_k = ctas;
    cases.push_back(c);
  };
  along_depth(
      {"bf16 crr", describe(wide(bf16e, f32e, 128), {128, 128, 64}, 4, {8, 1, 1}, "crr", bf16e),
       1000, 1416, 1000},
      2);
  along_depth({"bf16", describe(wide(bf16e, f32e, 192), {128, 192, 64}, 2, {8, 1, 1}, "rcr", bf16e),
               300, 1000, 1000},
              4);
  along_depth({"f16 crc", describe(wide(f16e, f32e, 64), {64, 128, 64}, 6, {8, 1, 1}, "crc", f16e),
               200, 1000, 500},
              3);
  along_depth(
      {"f16 to f32, more parts than steps",
       describe(wide(f16e, f32e, 64), {64, 64, 64}, 6, {4, 1, 1}, "ccr", f32e), 104, 72, 200},
      8);
  along_depth({"i8", describe(wide(i8e, i32e, 128), {128, 128, 128}, 4, {8, 1, 1}, "rcr", i8e), 300,
               400, 1040},
              3);
  along_depth({"tf32", describe(wide(f32e, f32e, 128), {128, 128, 32}, 3, {8, 1, 1}, "rcr", f32e),
               300, 260, 520},
              5);
  along_depth({"3xtf32",
               describe(wide(f32e, f32e, 128, fast_f32), {128, 128, 32}, 2, {8, 1, 1}, "crr", f32e),
               300, 700, 500},
              2);
}

/// Every other case may store boxes, and then those of 32 bits again that may.
void add_boxes(std::vector<GemmCase>& cases) {
  for (size_t i = 0; i < cases.size(); i += 2)
    if (size_of(cases[i].description.d.element) == 2) cases[i].description.d.alignment = 8;
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    GemmCase c = cases[i];
    if (size_of(c.description.d.element) != 4) continue;
    if ((c.description.d.layout == MatrixLayout::row_major ? c.n : c.m) % 4 != 0) {
      c.m = 204;
      c.n = 300;
    }
    c.description.d.alignment = 4;
    if (!stores_boxes(c.description)) continue;
    c.name += " in boxes";
    cases.push_back(c);
  }
}

}  // namespace

std::vector<GemmCase> warpgroup_cases() {
  std::vector<GemmCase> cases;
  add_elements(cases);
  add_split_operands(cases);
  add_clusters(cases);
  add_clusters_along_depth(cases);
  add_boxes(cases);
  return cases;
}

Matrix Matrix::integers(Element element, const Shape& shape, MatrixLayout layout, uint64_t seed,
                        int low, int high) {
  std::mt19937_64 generator(seed);
  const auto range = static_cast<uint64_t>(high - low + 1);
  std::vector<double> values(static_cast<size_t>(shape.product()));
  for (double& v : values) v = static_cast<double>(generator() % range) + low;
  return matrix(element, shape, layout, std::move(values));
}

Matrix Matrix::poison(Element element, const Shape& shape, MatrixLayout layout) {
  return matrix(element, shape, layout,
                std::vector<double>(static_cast<size_t>(shape.product()), -77));
}

std::vector<double> Matrix::read() const {
  const MatrixLayout layout = layout_of(tensor);
  const Tensor stored = layout == MatrixLayout::row_major ? tensor : tensor.transpose(-1, -2);
  const Tensor host = stored.to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = read_element(element, host, place(shape, layout, i));
  return out;
}

std::vector<double> product(const Matrix& a, const Matrix& b) {
  const int64_t m = a.shape[-2], k = a.shape[-1], n = b.shape[-1];
  const int64_t batch = a.shape.slice(0, a.shape.rank() - 2).product();
  std::vector<double> out(static_cast<size_t>(batch * m * n));
  for (int64_t s = 0; s < batch; ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l) {
        const double x = a.values[static_cast<size_t>((s * m + i) * k + l)];
        const double* row = b.values.data() + (s * k + l) * n;
        double* to = out.data() + (s * m + i) * n;
        for (int64_t j = 0; j < n; ++j) to[j] += x * row[j];
      }
  return out;
}

}  // namespace bs::test
