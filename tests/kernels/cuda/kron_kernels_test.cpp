#include <bs/kernels/cuda/kron/kron_kernels.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr int hopper_limit = 232448;

/// All passes that products with these factors need, forward and backward.
void add_kernels(const std::vector<KronAxis>& axes, std::vector<KronKernel>& kernels) {
  for (const auto& [dtype, tf32] :
       {std::pair(f64, false), std::pair(f32, false), std::pair(f32, true), std::pair(f16, false),
        std::pair(bf16, false)})
    for (const bool backward : {false, true}) {
      const int size = static_cast<int>(size_of(dtype));
      const KronNumbers numbers = kron_numbers(dtype, tf32);
      int64_t inner = 1;
      for (size_t last = axes.size(); last > 0;) {
        const auto rest = std::span(axes).first(last);
        const auto length =
            static_cast<size_t>(kron_pass_length(rest, inner, size, backward, hopper_limit));
        if (const auto s =
                kron_shape_of(rest.last(length), inner, numbers, backward, hopper_limit)) {
          KronKernel k = kron_kernel(dtype, *s);
          k.backward = backward;
          k.whole = s->chunk == inner;
          k.aligned = s->in() * size % 16 == 0 && s->out() * size % 16 == 0 &&
                      (k.whole || s->chunk * size % 16 == 0);
          kernels.push_back(k);
          k.finish = true;
          if (!backward) kernels.push_back(k);
        }
        for (size_t i = 0; i < length; ++i) inner *= axes[--last].q;
      }
    }
}

std::vector<KronKernel> kernels_of_many_factors() {
  std::vector<KronKernel> all;
  for (const std::vector<KronAxis>& axes :
       std::vector<std::vector<KronAxis>>{{{64, 64}, {64, 64}},
                                          {{8, 8}, {8, 8}, {8, 8}, {8, 8}, {8, 8}},
                                          {{16, 16}, {16, 16}, {16, 16}},
                                          {{128, 128}, {128, 128}},
                                          {{32, 32}, {32, 32}},
                                          {{16, 16}, {16, 16}, {16, 16}, {16, 16}},
                                          {{32, 32}, {32, 32}, {32, 32}},
                                          {{4, 4}, {3, 3}, {2, 2}},
                                          {{12, 7}, {33, 5}},
                                          {{100, 100}, {200, 200}, {210, 210}, {5, 5}},
                                          {{1, 1}},
                                          {{48, 80}, {24, 8}}})
    add_kernels(axes, all);
  return all;
}

}  // namespace

TEST_CASE("kron_matmul: the kernels compile and keep to registers") {
  test::check_kernels(kernels_of_many_factors(), kron_source, 97);
  test::check_kernels(std::vector<DType>{f16, bf16, f32, f64}, kron_sum_source, 3);
}

TEST_CASE("kron_matmul: as many factors as fit are one pass") {
  const auto length = [](int64_t extent, size_t count, int size, bool backward) {
    const std::vector<KronAxis> axes(count, {extent, extent});
    return kron_pass_length(axes, 1, size, backward, hopper_limit);
  };
  CHECK(length(64, 2, 4, false) == 2);
  CHECK(length(8, 5, 4, false) == 5);
  CHECK(length(16, 4, 2, false) == 4);
  CHECK(length(128, 2, 2, false) == 2);
  CHECK(length(64, 2, 4, true) == 2);
  CHECK(length(64, 2, 2, true) == 2);
  CHECK(length(2000, 1, 4, false) == 1);
  // Wide factors of f32 and f64 go back one by one, by dense products; forward they stay one pass.
  CHECK(length(128, 2, 4, false) == 2);
  CHECK(length(128, 2, 4, true) == 1);
  CHECK(length(96, 2, 8, true) == 1);
  CHECK(length(80, 2, 4, true) == 2);
  const std::vector<KronAxis> mixed = {{16, 16}, {128, 96}, {4, 4}, {4, 4}};
  const auto rest = [&](size_t count) { return std::span(mixed).first(count); };
  CHECK(kron_pass_length(rest(4), 1, 4, true, hopper_limit) == 2);
  CHECK(kron_pass_length(rest(2), 16, 4, true, hopper_limit) == 1);
  CHECK(kron_pass_length(rest(1), 16 * 96, 4, true, hopper_limit) == 1);
}

TEST_CASE("kron_matmul: the library multiplies factors beyond the chip") {
  // That factors fit in plain arithmetic decides, so TF32 changes nothing; see the numbers of
  // "factors beyond the chip" in kron_test.cpp.
  const auto fits = [](std::vector<KronAxis> axes, int64_t inner, DType dtype, bool backward) {
    const bool plain =
        kron_shape_of(axes, inner, kron_numbers(dtype, false), backward, hopper_limit).has_value();
    CHECK(
        plain ==
        kron_shape_of(axes, inner, kron_numbers(dtype, true), backward, hopper_limit).has_value());
    return plain;
  };
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t inner : {1, 2, 6}) {
      CHECK_FALSE(fits({{300, 260}}, inner, dtype, false));
      CHECK_FALSE(fits({{260, 300}}, inner, dtype, false));
      CHECK_FALSE(fits({{300, 300}}, inner, dtype, true));
      CHECK_FALSE(fits({{200, 200}}, inner, dtype, true));  // its sums are more than registers
      CHECK(fits({{200, 200}}, inner, dtype, false) == (dtype != f64));
      CHECK(fits({{100, 100}}, inner, dtype, true) == (size_of(dtype) == 2));  // wide
      CHECK(fits({{100, 64}}, inner, dtype, true));
    }
  // Such a factor is a pass of its own.
  const std::vector<KronAxis> axes = {{2, 2}, {300, 300}, {3, 3}};
  CHECK(kron_pass_length(axes, 1, 4, false, hopper_limit) == 1);
  CHECK(kron_pass_length(std::span(axes).first(2), 3, 4, false, hopper_limit) == 1);
}

TEST_CASE("kron_matmul: what is multiplied on tensor cores, and by how many products") {
  using Kind = device::KronStepKind;
  struct Case {
    int64_t extent;
    DType dtype;
    bool tf32;
    int products;
    Kind slow, fast;  ///< of the two factors
  };
  constexpr Kind columns = Kind::mma_columns, inner = Kind::along_inner, rows = Kind::along_rows;
  for (const Case& c :
       {Case{96, f32, false, 3, columns, columns}, Case{128, f32, false, 3, columns, columns},
        Case{32, f32, false, 0, inner, rows}, Case{64, f32, false, 0, inner, rows},
        Case{32, f32, true, 1, columns, columns}, Case{64, f32, true, 1, columns, columns},
        Case{16, f32, true, 0, inner, rows}, Case{65, f32, true, 0, inner, inner},
        Case{16, f64, false, 0, columns, columns}, Case{64, f64, true, 0, columns, columns},
        Case{8, f64, false, 0, inner, rows},
        Case{64, bf16, false, 0, Kind::mma_inner, Kind::mma_rows}}) {
    CAPTURE(c.extent);
    const std::vector<KronAxis> axes(2, {c.extent, c.extent});
    const auto s = kron_shape_of(axes, 1, kron_numbers(c.dtype, c.tf32), false, hopper_limit);
    REQUIRE(s);
    CHECK(s->products == c.products);
    CHECK(s->step(0).kind() == c.slow);
    CHECK(s->step(1).kind() == c.fast);
    CHECK(s->forward_bytes() <= hopper_limit);
    CHECK(s->contract(0).tensor() ==
          (c.dtype == bf16 || (c.extent % 16 == 0 && (c.dtype == f64 || c.products == 1))));
  }
}

TEST_CASE("kron_matmul: passes are the same whether TF32 is allowed or not") {
  // Where a factor has no room in the layout of tensor cores, it is multiplied in plain arithmetic.
  for (const int limit : {hopper_limit, 101376, 49152})
    for (const int64_t extent : {int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}})
      for (const bool backward : {false, true}) {
        const std::vector<KronAxis> axes(2, {extent, extent});
        const int length = kron_pass_length(axes, 1, 4, backward, limit);
        const auto pass = std::span(axes).last(static_cast<size_t>(length));
        const bool plain = kron_shape_of(pass, 1, {4}, backward, limit).has_value();
        for (const bool tf32 : {false, true})
          CHECK(kron_shape_of(pass, 1, kron_numbers(f32, tf32), backward, limit).has_value() ==
                plain);
      }
}
