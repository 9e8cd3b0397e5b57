#include <bs/nn.h>
#include <bs/version.h>

#include <cmath>
#include <cstdio>

int main() {
  const bs::Variable x(bs::Tensor::from<double>({1, 2, 3}), true);
  bs::softmax(x).backward(bs::Tensor::from<double>({1, 0, 0}));
  const double p = 1 / (1 + std::exp(1) + std::exp(2));
  std::printf("bs %s: %s\n", BS_VERSION, bs::to_string(x.grad()).c_str());
  return std::abs(x.grad().select(0, 0).item() - p * (1 - p)) < 1e-12 ? 0 : 1;
}
