#define BS_REPORTS_GIVING_UP
#include <bs/kernels/cuda/device/lstm/lstm_persistent_backward.cuh>
#include <bs/kernels/cuda/lstm/lstm_persistent_launch.cuh>

namespace bs::cuda {

namespace {

template <class T>
void run(std::span<const LSTMBackwardSteps> directions, const LstmDivision& division,
         Stream stream) {
  using D = device_type<T>;
  std::vector<device::PersistentLstmBackward<D>> all;
  for (const LSTMBackwardSteps& s : directions) {
    const LSTMSteps& f = s.forward;
    recurrent::clear_words(s.dgates, stream);
    all.push_back({pointer<T>(f.gates), f.c.data<float>(), pointer<T>(f.hh),
                   s.dy.defined() ? pointer<T>(s.dy) : nullptr,
                   s.dcells.defined() ? s.dcells.data<float>() : nullptr, s.dh.data<float>(),
                   s.dc.data<float>(), pointer<T>(s.dgates), recurrent::lengths_of(f),
                   static_cast<int>(f.steps()), static_cast<int>(f.batch()), f.reverse,
                   f.rule.hard});
  }
  recurrent::run_persistent<device::LstmBackwardCta, D>(
      std::span<const device::PersistentLstmBackward<D>>(all), directions.front().forward.cells(),
      division, 2, stream);
}

}  // namespace

LstmHost lstm_backward_host(Device device) {
  return recurrent::host_of<device::LstmBackwardCta<__half, 1, 1, 16>>(device, 2);
}

void lstm_persistent_backward(std::span<const LSTMBackwardSteps> directions,
                              const LstmDivision& division, Stream stream) {
  if (directions.front().forward.gates.dtype() == f16)
    return run<half>(directions, division, stream);
  run<bfloat16>(directions, division, stream);
}

}  // namespace bs::cuda
