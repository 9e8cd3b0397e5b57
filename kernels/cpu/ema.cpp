#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/ema.h>

namespace bs::cpu {

void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& given, Stream) {
  const double share = given.defined() ? *given.data<double>() : 1 - decay;
  const auto numel = [&](size_t i) { return parameters[i].value.numel(); };
  for_each_piece(parameters.size(), numel, [&](const Piece& piece) {
    const EmaParameter& p = parameters[piece.tensor];
    visit_floating("ema", p.value.dtype(), [&]<class T>(Type<T>) {
      using W = Wide<T>;
      const int64_t n = piece.end - piece.begin;
      PieceBuffer<T> buffer;
      const W* value = buffer.read(p.value.data<T>() + piece.begin, n);
      W* average = p.average.data<W>() + piece.begin;
      const auto mix = static_cast<W>(share);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) average[i] += mix * (value[i] - average[i]);
    });
  });
}

}  // namespace bs::cpu
