#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/tests/kernels/conv2d_cases.h>
#include <bs/tests/kernels/conv2d_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Element f16e = Element::f16, bf16e = Element::bf16, f32e = Element::f32,
                  f64e = Element::f64;

Reference integers(const Shape& shape, uint64_t seed, double most) {
  Reference r = random_reference(shape, seed, -most - 0.5, most + 0.5);
  for (double& v : r.values) v = std::round(v);
  return r;
}

Tensor packed(const Reference& r, Element e) {
  return channels_last(r.tensor(storage_dtype(e), test_device()));
}

/// The operands of a case as whole numbers, so few that sums are exact, and what comes out.
struct Operands {
  const Conv2dDescription& d;
  Reference a, b, sums, c;

  Operands(const Conv2dCase& one, uint64_t seed) : d(one.description) {
    const double most = d.a.element == f16e ? 4 : d.a.element == bf16e ? 2 : 8;
    const Shape w{one.k, one.x[1], one.filter.h, one.filter.w};
    const Shape y = conv2d_shape(one.x, w, one.options);
    a = integers(d.kind == Conv2dKind::fprop ? one.x : y, seed, most);
    b = integers(d.kind == Conv2dKind::wgrad ? one.x : w, seed + 1, most);
    sums = d.kind == Conv2dKind::fprop   ? conv2d_of(a, b, one.options)
           : d.kind == Conv2dKind::dgrad ? conv2d_dx_of(a, b, one.x, one.options)
                                         : conv2d_dw_of(b, a, w, one.options);
    c = integers(sums.shape, seed + 2, most);
  }
  Conv2dArguments arguments(const Conv2dOptions& options) const {
    const Tensor poisoned = packed(random_reference(sums.shape, 9, 1e4, 2e4), d.d.element);
    return {.a = packed(a, d.a.element),
            .b = packed(b, d.b.element),
            .d = poisoned,
            .options = options};
  }
};

/// The sizes that matter to the CPU, whose loops know no tiles.
Conv2dCase shrunk(Conv2dCase c) {
  if (test_device().is_cuda()) return c;
  if (c.x[1] > 32) c.x[1] = 24;
  c.x[2] = std::min<int64_t>(c.x[2], 20);
  c.x[3] = std::min<int64_t>(c.x[3], 20);
  c.k = std::min<int64_t>(c.k, 40);
  return c;
}

void run_case(const Conv2dCase& c, const Operands& o) {
  CAPTURE(c.name);
  CAPTURE(c.slices);
  Conv2dArguments arguments = o.arguments(c.options);
  arguments.tensors = {{"c", packed(o.c, o.d.d.element)}};
  arguments.scalars = {{"alpha", c.alpha}, {"beta", c.beta}};
  arguments.slices = c.slices;
  Conv2dOperation(c.description).run(arguments);
  Reference expected(o.sums.shape);
  for (size_t i = 0; i < expected.values.size(); ++i)
    expected[i] = rounded(c.description.d.element, c.alpha * o.sums[i] + c.beta * o.c[i]);
  CHECK(Reference::of(arguments.d).values == expected.values);
}

void run_case(const Conv2dCase& c) { run_case(c, Operands(c, 2080)); }

}  // namespace

TEST_CASE("conv2d_operation: PyCUTLASS' example commands, bit for bit") {
  for (const Conv2dCase& c : conv2d_examples()) run_case(shrunk(c));
}

TEST_CASE("conv2d_operation: problems around the tiles and slices of the depth, bit for bit") {
  const MathInstruction half = math(f16e, f32e);
  const std::vector<Conv2dProblemCase> problems = conv2d_problems();
  CHECK(problems.size() == 25);
  for (const Conv2dKind kind : {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad})
    for (const Conv2dProblemCase& p : problems) {
      Conv2dCase c{
          "problem",
          describe(kind, Conv2dIterator::optimized, half, {64, 64, 32}, {2, 2, 1}, 8, f16e),
          p.x,
          p.k,
          p.filter,
          p.options};
      // What the loops of the reference can do in a while; the CPU's kernels know no tiles.
      const int64_t most = test_device().is_cpu() ? 8 : 128;
      c.x[1] = std::min(c.x[1], most);
      c.k = std::min(c.k, most);
      c.alpha = c.beta = 2;
      const Operands operands(c, 3);
      for (const SplitK split : {SplitK::serial, SplitK::parallel})
        for (const int slices : {1, 2, 3, 4, 201}) {
          c.description.split_k = split;
          c.slices = slices;
          run_case(c, operands);
        }
    }
}

TEST_CASE("conv2d_operation: every instruction of every pass, bit for bit") {
  using enum MathOperation;
  const MathInstruction all[] = {math(f16e, f32e),
                                 math(f16e, f16e),
                                 math(bf16e, f32e),
                                 math(f32e, f32e),
                                 math(f32e, f32e, OpClass::tensor_op, fast_f16),
                                 math(f32e, f32e, OpClass::tensor_op, fast_bf16),
                                 math(f32e, f32e, OpClass::tensor_op, fast_f32),
                                 math(f32e, f32e, OpClass::simt),
                                 math(f64e, f64e, OpClass::simt),
                                 math(f64e, f64e)};
  for (const MathInstruction& one : all)
    for (const Conv2dKind kind : {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad}) {
      CAPTURE(to_string(one));
      run_case({to_string(kind),
                describe(kind, Conv2dIterator::analytic, one, {64, 64, 32}, {2, 2, 1}, 1, one.a),
                {2, 5, 6, 7},
                6,
                {3, 2},
                {.stride = {2, 1}, .padding = {1, 0, 2, 1}}});
    }
}

TEST_CASE("conv2d_operation: warpgroups, bit for bit") {
  for (const Element e : {f16e, bf16e})
    for (const Conv2dKind kind : {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad})
      for (const int64_t stride : {1, 2})
        for (const SplitK split : {SplitK::none, SplitK::serial, SplitK::parallel}) {
          const MathInstruction math{
              {64, 64, 16}, e, e, f32e, OpClass::warpgroup, MathOperation::multiply_add};
          Conv2dCase c{
              to_string(kind),
              describe(kind, Conv2dIterator::optimized, math, {128, 64, 64}, {8, 1, 1}, 8, e),
              {2, 64, 9, 8},
              40,
              {3, 3},
              {.stride = {stride, stride}, .padding = {1, 1, 1, 1}}};
          if (test_device().is_cpu()) c.x = {1, 64, 4, 3}, c.k = 8;
          c.description.d.alignment = 8;
          c.description.split_k = split;
          if (stride == 1) c.description.stride = StrideSupport::unit;
          c.slices = split == SplitK::none ? 1 : 3;
          run_case(c);
        }
}

TEST_CASE("conv2d_operation: bias and every activation") {
  using namespace bs::epilogue;
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  struct Function {
    Value (*value)(const Value&);
    std::function<double(double)> exact;
  };
  const Function all[] = {
      {[](const Value& x) { return epilogue::relu(x); }, [](double v) { return std::max(v, 0.0); }},
      {[](const Value& x) { return leaky_relu(x, 0.2); },
       [](double v) { return v > 0 ? v : 0.2 * v; }},
      {[](const Value& x) { return epilogue::tanh(x); }, [](double v) { return std::tanh(v); }},
      {[](const Value& x) { return epilogue::sigmoid(x); }, logistic},
      {[](const Value& x) { return epilogue::silu(x); }, [=](double v) { return v * logistic(v); }},
      {[](const Value& x) { return hardswish(x); },
       [](double v) { return v * std::clamp(v + 3, 0.0, 6.0) / 6; }},
      {[](const Value& x) { return epilogue::gelu(x); },
       [](double v) { return v * std::erfc(-v / std::sqrt(2.0)) / 2; }},
      {[](const Value& x) { return gelu_tanh(x); },
       [](double v) {
         return v / 2 * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
       }},
  };
  const Conv2dIterator iterators[] = {Conv2dIterator::few_channels, Conv2dIterator::analytic};
  for (size_t which = 0; which < 2 * std::size(all); ++which) {
    const Function& f = all[which / 2];
    const Conv2dIterator iterator = iterators[which % 2];
    Conv2dCase c{"activation " + std::to_string(which / 2) + " " + to_string(iterator),
                 describe(Conv2dKind::fprop, iterator, math(f32e, f32e, OpClass::simt),
                          {64, 64, 16}, {2, 2, 1}, 1, f32e),
                 {2, 3, 6, 5},
                 7,
                 {3, 3},
                 {.padding = {1, 1, 1, 1}}};
    CAPTURE(c.name);
    const Value t = accumulator() + row("bias", f32e);
    c.description.epilogue = GemmEpilogue(f.value(t)).store("before", t, f32e);
    c.description.split_k = SplitK::parallel;
    const Operands o(c, 5);
    const Reference bias = random_reference({7}, 6);
    Conv2dArguments arguments = o.arguments(c.options);
    const Tensor before = packed(Reference(o.sums.shape), f32e);
    arguments.tensors = {{"bias", bias.tensor(f32, test_device())}, {"before", before}};
    arguments.slices = 2;
    Conv2dOperation(c.description).run(arguments);
    Reference sums = o.sums, expected = o.sums;
    for (size_t i = 0; i < sums.values.size(); ++i) {
      sums[i] += bias[i / 30 % 7];
      expected[i] = f.exact(sums[i]);
    }
    const double bound = 8 * epsilon(f32) * largest(sums);
    check_close("before", Reference::of(before), sums, bound);
    check_close(c.name, Reference::of(arguments.d), expected, bound);
  }
}

TEST_CASE("conv2d_operation: a column vector, and a tensor that need not be given") {
  using namespace bs::epilogue;
  Conv2dDescription d = describe(Conv2dKind::wgrad, Conv2dIterator::analytic,
                                 math(f32e, f32e, OpClass::simt), {64, 64, 16}, {2, 2, 1}, 1, f32e);
  d.epilogue = GemmEpilogue(accumulator() * column("scale", f32e) +
                            scalar("beta") * epilogue::tensor("c", f32e));
  const Conv2dCase c{"column", d, {2, 3, 4, 4}, 5, {2, 2}, {}};
  const Operands o(c, 7);
  Conv2dArguments arguments = o.arguments({});
  const Reference scale = integers({5}, 8, 4);
  arguments.tensors = {{"scale", scale.tensor(f32, test_device())}};
  arguments.scalars = {{"beta", 0}};
  Conv2dOperation(d).run(arguments);
  Reference expected = o.sums;
  for (size_t i = 0; i < expected.values.size(); ++i) expected[i] *= scale[i / 12];
  CHECK(Reference::of(arguments.d).values == expected.values);
}

TEST_CASE("conv2d_operation: kernels, keys and names") {
  const Conv2dCase c = conv2d_examples().front();
  Conv2dDescription d = c.description;
  const Conv2dOperation one(d);
  CHECK(one.to_source().find("conv2d_fprop_tensor_op_f32_128x128x16") != std::string::npos);
  CHECK(one.key() == Conv2dOperation(d).key());
  d.split_k = SplitK::serial;
  CHECK(one.key() != Conv2dOperation(d).key());
  // Iterators check channels: the kernel is one.
  for (const Conv2dIterator iterator : {Conv2dIterator::optimized, Conv2dIterator::few_channels}) {
    Conv2dDescription other = c.description;
    other.iterator = iterator;
    CHECK(Conv2dOperation(other).to_source() == one.to_source());
  }
  // A strided gradient of the input is stored as conv2d stores it, row by row.
  const MathInstruction math{
      {64, 64, 16}, f16e, f16e, f32e, OpClass::warpgroup, MathOperation::multiply_add};
  Conv2dDescription strided = describe(Conv2dKind::dgrad, Conv2dIterator::optimized, math,
                                       {128, 64, 64}, {8, 1, 1}, 8, f16e);
  strided.d.alignment = 8;
  const auto has = [&](const char* loader) {
    return Conv2dOperation(strided).to_source().find(loader) != std::string::npos;
  };
  CHECK(has("Conv2dPhaseLoader"));
  strided.stride = StrideSupport::unit;
  CHECK(has("Conv2dPixelLoader"));
}

namespace {

/// A description that works, but for what `change` does to it.
template <class Change>
Conv2dDescription broken(Change change) {
  Conv2dDescription d = describe(Conv2dKind::fprop, Conv2dIterator::fixed_channels,
                                 math(f16e, f32e), {64, 64, 32}, {2, 2, 1}, 8, f16e);
  change(d);
  return d;
}

}  // namespace

TEST_CASE("conv2d_operation: descriptions that do not fit say why") {
  const auto refused = [&](auto change, const char* message) {
    CHECK_THROWS_WITH_AS(Conv2dOperation(broken(change)), message, Error);
  };
  refused([](Conv2dDescription& d) { d.kind = Conv2dKind::wgrad; },
          "conv2d_operation: fixed_channels is for fprop, not wgrad");
  refused([](Conv2dDescription& d) { d.b.element = f32e; },
          "conv2d_operation: a is f16, b is f32; they are alike");
  refused([](Conv2dDescription& d) { d.a.element = Element::i8; },
          "conv2d_operation: operands of i8; expected f16, bf16, f32 or f64");
  refused([](Conv2dDescription& d) { d.swizzle = Swizzle::stream_k; },
          "conv2d_operation: stream_k; the depth of a convolution goes in slices");
  refused([](Conv2dDescription& d) { d.epilogue.row_sum("s", epilogue::accumulator()); },
          "conv2d_operation: an epilogue with the reduction 's'; there are none for convolutions");
  refused(
      [](Conv2dDescription& d) {
        d.tile.threadblock[2] = 96, d.tile.warps = {2, 1, 1};
      },
      "conv2d_operation: 64 threads do not share 96 elements of f16, which are gathered in "
      "pieces of 16 bytes");
}

TEST_CASE("conv2d_operation: arguments that do not fit say why") {
  const Conv2dDescription good = broken([](Conv2dDescription&) {});
  const auto image = [](const Shape& s) { return channels_last(zeros(s, f16, test_device())); };
  const Conv2dArguments fits{.a = image({1, 8, 4, 4}),
                             .b = image({16, 8, 3, 3}),
                             .d = image({1, 16, 2, 2}),
                             .tensors = {{"c", image({1, 16, 2, 2})}},
                             .scalars = {{"alpha", 1}, {"beta", 1}}};
  const auto fails = [&](const Conv2dDescription& d, auto change, const char* message) {
    Conv2dArguments a = fits;
    change(a);
    CHECK_THROWS_WITH_AS(Conv2dOperation(d).run(a), message, Error);
  };
  fails(
      good,
      [&](Conv2dArguments& a) {
        a.a = image({1, 16, 4, 4}), a.b = image({16, 16, 3, 3});
      },
      "conv2d_operation: 16 channels; fixed_channels takes the alignment of a, 8");
  fails(
      broken([](Conv2dDescription& d) { d.iterator = Conv2dIterator::few_channels; }),
      [&](Conv2dArguments& a) {
        a.a = image({1, 32, 4, 4}), a.b = image({16, 32, 3, 3});
      },
      "conv2d_operation: 32 channels; few_channels takes less than a stage's depth of 32");
  fails(
      broken([](Conv2dDescription& d) { d.iterator = Conv2dIterator::analytic; }),
      [&](Conv2dArguments& a) {
        a.a = image({1, 12, 4, 4}), a.b = image({16, 12, 3, 3});
      },
      "conv2d_operation: a has 12 channels; the description says a multiple of 8");
  fails(
      broken([](Conv2dDescription& d) { d.stride = StrideSupport::unit; }),
      [&](Conv2dArguments& a) {
        a.options.stride = {2, 1}, a.d = image({1, 16, 1, 2});
      },
      "conv2d_operation: a stride of 2x1; the description says unit");
  fails(
      good,
      [&](Conv2dArguments& a) {
        a.d = image({1, 16, 4, 4});
      },
      "conv2d_operation: x [1, 8, 4, 4] and weight [16, 8, 3, 3] make y [1, 16, 2, 2], not "
      "[1, 16, 4, 4]");
  fails(
      good, [](Conv2dArguments& a) { a.a = contiguous(a.a); },
      "conv2d_operation: a [1, 8, 4, 4] with strides [128, 16, 4, 1] is not dense and "
      "channels-last");
  fails(
      good, [](Conv2dArguments& a) { a.slices = 2; },
      "conv2d_operation: 2 slices of the depth; the description's split_k is none");
  fails(
      good, [](Conv2dArguments& a) { a.tensors.clear(); },
      "conv2d_operation: the epilogue's tensor 'c' is missing");
}
