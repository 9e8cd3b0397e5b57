#include <bs/kernels/fill.h>
#include <bs/kernels/grad_norm.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<Tensor> gradients_of_all_dtypes() {
  std::vector<Tensor> gradients;
  uint64_t seed = 1;
  for (DType dtype : {f32, f64, bf16, f16, f32})
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{70001}, Shape{64, 64}})
      gradients.push_back(random_reference(shape, seed++).tensor(dtype, test_device()));
  gradients.emplace_back();
  gradients.push_back(random_reference({5, 7}, 77).tensor(f32, test_device()).transpose(0, 1));
  return gradients;
}

double naive_norm(std::span<const Tensor> gradients) {
  double sum = 0;
  for (const Tensor& g : gradients)
    if (g.defined())
      for (double v : Reference::of(g).values) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("grad_norm is the norm of all elements") {
  const std::vector<Tensor> gradients = gradients_of_all_dtypes();
  const Tensor norm = grad_norm(gradients);
  CHECK(norm.dtype() == f64);
  CHECK(norm.shape() == Shape{});
  CHECK(norm.device() == test_device());
  const double expected = naive_norm(gradients);
  CHECK(std::abs(norm.item() - expected) <= 1e-12 * expected);
  const int before = threads();
  set_threads(before == 1 ? 3 : 1);
  CHECK(grad_norm(gradients).item() == norm.item());
  set_threads(before);
  CHECK(grad_norm({}).item() == 0);
  CHECK(grad_norm(std::vector{full({3}, 1e30, f32, test_device())}).item() ==
        doctest::Approx(std::sqrt(3) * 1e30));
}

TEST_CASE("grad_norm of more elements, and of more tensors, than a GPU takes at once") {
  const std::vector many(4000, full({5}, 2, f32, test_device()));
  CHECK(grad_norm(many).item() == doctest::Approx(2 * std::sqrt(20000)).epsilon(1e-12));
  const Tensor large = random_reference({12'000'003}, 3).tensor(bf16, test_device());
  for (int again = 0; again < 2; ++again)
    CHECK(grad_norm(std::vector{large}).item() ==
          doctest::Approx(naive_norm(std::vector{large})).epsilon(1e-12));
}

TEST_CASE("clip_gradients scales what is too long and nothing else") {
  std::vector<Tensor> gradients = gradients_of_all_dtypes();
  gradients.pop_back();  // a view, which cannot be scaled in place
  std::vector<Reference> before;
  for (const Tensor& g : gradients) before.push_back(g.defined() ? Reference::of(g) : Reference());
  const Tensor norm = grad_norm(gradients);
  clip_gradients(gradients, {norm, 1e9});
  clip_gradients(gradients, {});
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) CHECK(Reference::of(gradients[i]).values == before[i].values);
  clip_gradients(gradients, {norm, 2});
  const double factor = 2 / (norm.item() + 1e-6);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Reference after = Reference::of(gradients[i]);
    for (size_t k = 0; k < after.values.size(); ++k)
      REQUIRE(std::abs(after[k] - before[i][k] * factor) <= factor * epsilon(gradients[i].dtype()));
  }
  CHECK(std::abs(naive_norm(gradients) - 2) < 0.01);
}

TEST_CASE("clip_factor keeps NaN") {
  CHECK(clip_factor(1, 2) == 1);
  CHECK(clip_factor(4, 2) == doctest::Approx(0.5));
  CHECK(std::isnan(clip_factor(std::nan(""), 2)));
}

TEST_CASE("grad_norm and clip_gradients refuse what does not fit") {
  CHECK_THROWS_WITH_AS(grad_norm(std::vector{zeros({2}, i32)}), "grad_norm: gradient of dtype i32",
                       Error);
  const Tensor g = zeros({2, 3}, f32).transpose(0, 1);
  CHECK_THROWS_WITH_AS(clip_gradients(std::vector{g}, {zeros({}, f64), 1}),
                       "clip_gradients: shape [3, 2] with strides [1, 3] has gaps", Error);
  CHECK_THROWS_WITH_AS(clip_gradients(std::vector{g}, {zeros({}, f64), -1}),
                       "clip_gradients: max_norm -1 is not positive", Error);
}
