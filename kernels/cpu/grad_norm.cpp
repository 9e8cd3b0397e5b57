#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/grad_norm.h>

#include <cmath>

namespace bs::cpu {

namespace {

template <class T>
double squares(const T* x, int64_t n) {
  RowBuffer<T> buffer(n);
  const Wide<T>* values = buffer.read(x, n);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

std::vector<Piece> cut(std::span<const Tensor> tensors) {
  return pieces_of(tensors.size(), [&](size_t i) { return tensors[i].numel(); });
}

}  // namespace

void grad_norm(std::span<const Tensor> gradients, const Tensor& norm, Stream) {
  const std::vector<Piece> pieces = cut(gradients);
  std::vector<double> partial(pieces.size());
  for_each_piece(pieces, [&](const Piece& piece, int64_t index) {
    const Tensor& g = gradients[piece.tensor];
    visit_floating("grad_norm", g.dtype(), [&]<class T>(Type<T>) {
      partial[static_cast<size_t>(index)] =
          squares(g.data<T>() + piece.begin, piece.end - piece.begin);
    });
  });
  double sum = 0;
  for (double part : partial) sum += part;
  *norm.data<double>() = std::sqrt(sum);
}

void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip, Stream) {
  const double factor = view_of(clip).factor();
  if (factor == 1) return;
  for_each_piece(cut(gradients), [&](const Piece& piece, int64_t) {
    const Tensor& g = gradients[piece.tensor];
    visit_floating("clip_gradients", g.dtype(), [&]<class T>(Type<T>) {
      T* row = g.data<T>() + piece.begin;
      const int64_t n = piece.end - piece.begin;
      RowBuffer<T> buffer(n);
      buffer.read(row, n);
      Wide<T>* values = buffer.target(row);
      for (int64_t i = 0; i < n; ++i) values[i] *= static_cast<Wide<T>>(factor);
      buffer.write(row, n);
    });
  });
}

}  // namespace bs::cpu
