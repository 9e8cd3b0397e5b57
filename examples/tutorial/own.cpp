// A layer and an operation that the library does not have, with a gradient that is checked.
#include <bs/nn.h>

#include <cstdio>
#include <cstdlib>

using namespace bs;

namespace {

/// x for |x| <= 1, 0 beyond: a window. Its gradient is a window too.
Tensor window(const Tensor& x) { return where(le(abs(x), 1), x, 0); }
Tensor window_backward(const Tensor& x, const Tensor& dy) { return where(le(abs(x), 1), dy, 0); }

Variable window(const Variable& x) {
  return tape().record("window", {x}, window(x.data()),
                       [x = x.data()](const Tensor& dy) { return Grads{window_backward(x, dy)}; });
}

/// y = x + V window(U x), with a matrix of low rank U, V.
struct LowRank : nn::Module {
  struct Options {
    int64_t width = 0;
    int64_t rank = 4;
  };
  Variable u, v;

  explicit LowRank(const Options& options) {
    BS_CHECK(options.width > 0 && options.rank > 0, "low_rank: width {}, rank {}", options.width,
             options.rank);
    u = register_parameter("u", randn({options.width, options.rank}) * 0.1);
    v = register_parameter("v", randn({options.rank, options.width}) * 0.1);
  }
  Variable forward(const Variable& x) const { return x + matmul(window(matmul(x, u)), v); }
};

}  // namespace

int main() {
  manual_seed(2);
  const Variable x(randn({9}, f64), true);
  gradcheck([](const std::vector<Variable>& in) { return window(in[0]); }, {x});
  std::puts("the gradient of window is right");

  nn::Sequential model;
  model.add<LowRank>({.width = 16});
  model.add<LowRank>({.width = 16, .rank = 2});
  std::puts(to_string(model).c_str());

  const Tensor inputs = randn({256, 16});
  const Tensor goal = inputs + matmul(matmul(inputs, randn({16, 3}) * 0.1), randn({3, 16}));
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const Variable loss = mse_loss(model.forward(inputs), goal);
    loss.backward();
    optimizer.step();
    last = loss.data().item();
    if (step == 0) first = last;
  }
  std::printf("loss %.3f, then %.3f\n", first, last);
  return last < 0.8 * first ? EXIT_SUCCESS : EXIT_FAILURE;
}
