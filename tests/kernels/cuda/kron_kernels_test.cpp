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
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const bool backward : {false, true}) {
      const int size = static_cast<int>(size_of(dtype));
      int64_t inner = 1;
      for (size_t last = axes.size(); last > 0;) {
        const auto rest = std::span(axes).first(last);
        const auto length =
            static_cast<size_t>(kron_pass_length(rest, inner, size, backward, hopper_limit));
        if (const auto s = kron_shape_of(rest.last(length), inner, size, backward, hopper_limit)) {
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
}
