// What one does all day in PyTorch, done here. docs/from_pytorch.md has the whole table.
#include <bs/nn.h>

#include <cstdio>
#include <iostream>

using namespace bs;

int main() {
  manual_seed(4);

  // Make and look at tensors.
  const Tensor x = arange(12, f32).view({3, 4});
  std::cout << x << "\n";
  std::printf("%s of %s on %s\n", to_string(x.shape()).c_str(), to_string(x.dtype()).c_str(),
              to_string(x.device()).c_str());

  // Views share memory; operations make new tensors.
  const Tensor column = x.select(1, 2), corner = x.slice(0, 0, 2).slice(1, 0, 2);
  std::cout << column << corner << x.transpose(0, 1) << "\n";

  // Arithmetic broadcasts and promotes.
  const Tensor centred = x - mean(x, Dims{0}, true);
  std::cout << centred * 2 + arange(4) << "\n";

  // Reductions, order, choice.
  const Indexed top = topk(x, 2, 1);
  std::cout << sum(x, Dims{1}) << top.values << top.indices << "\n";
  std::cout << where(gt(x, 5), x, 0) << masked_select(x, gt(x, 5)) << "\n";
  std::cout << gather(x, 1, Tensor::from<int64_t>({0, 2, 3}, {3, 1})) << "\n";
  std::cout << unique(remainder(arange(10), 3)).counts << one_hot(arange(3), 3) << "\n";

  // Products.
  const Tensor q = randn({2, 3, 5, 4}), k = randn({2, 3, 6, 4});
  std::cout << to_string(einsum("bhid,bhjd->bhij", {q, k}).shape()) << "\n";

  // Gradients.
  const Variable w(randn({4, 2}), true);
  const Variable loss = mse_loss(matmul(x, w), zeros({3, 2}));
  loss.backward();
  std::printf("loss %.3f, |gradient| %.3f\n", loss.data().item(), vector_norm(w.grad()).item());

  // Errors name the operation and show the values.
  try {
    matmul(x, x);
  } catch (const Error& error) {
    std::printf("as wanted: %s\n", error.what());
  }
  return 0;
}
