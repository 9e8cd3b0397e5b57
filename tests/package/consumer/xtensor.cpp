#include <bs/interop/xtensor.h>

int main() {
  const bs::Tensor x = bs::Tensor::from<float>({1, 2, 3});
  return bs::from_xtensor(2.0F * bs::to_xtensor<float>(x)).select(0, 2).item() == 6 ? 0 : 1;
}
