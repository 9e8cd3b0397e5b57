#define BS_REPORTS_GIVING_UP
#include <bs/kernels/cuda/device/lstm/lstm_persistent.cuh>
#include <bs/kernels/cuda/lstm/lstm_persistent_launch.cuh>

namespace bs::cuda {

namespace {

template <class T>
void run(std::span<const LSTMSteps> directions, const LstmDivision& division, Stream stream) {
  using D = device_type<T>;
  std::vector<device::PersistentLstm<D>> all;
  for (const LSTMSteps& s : directions) {
    const int64_t from = s.reverse ? 0 : 1;
    recurrent::clear_words(s.h.slice(0, from, from + s.steps()), stream);
    all.push_back({pointer<T>(s.gates), pointer<T>(s.h), s.c.data<float>(), pointer<T>(s.hh),
                   recurrent::lengths_of(s), static_cast<int>(s.steps()),
                   static_cast<int>(s.batch()), s.reverse, s.rule.hard});
  }
  recurrent::run_persistent<device::LstmCta, D>(std::span<const device::PersistentLstm<D>>(all),
                                                directions.front().cells(), division, 1, stream);
}

}  // namespace

LstmHost lstm_host(Device device) {
  return recurrent::host_of<device::LstmCta<__half, 1, 1, 16>>(device, 1);
}

void lstm_persistent(std::span<const LSTMSteps> directions, const LstmDivision& division,
                     Stream stream) {
  if (directions.front().gates.dtype() == f16) return run<half>(directions, division, stream);
  run<bfloat16>(directions, division, stream);
}

}  // namespace bs::cuda
