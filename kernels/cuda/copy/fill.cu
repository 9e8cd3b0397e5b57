#include <bs/kernels/fill.h>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/unit_pack.cuh>

#include <bit>

namespace bs::cuda {

namespace {

template <class W>
struct Constant {
  W value;
  __device__ W operator()() const { return value; }
};

}  // namespace

void fill(const Tensor& x, double value, Stream stream) {
  const auto loop = ordered_loop<1>(x.shape(), {x.strides()});
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const Constant<Bits<sizeof(T)>> constant{std::bit_cast<Bits<sizeof(T)>>(static_cast<T>(value))};
    auto* const to = static_cast<Bits<sizeof(T)>*>(x.data());
    for_each_part(loop, {}, [&](const StridedLoop<1>& part, const Offsets<1>& from) {
      auto* const first = to + from[0];
      constexpr int N = 16 / static_cast<int>(sizeof(T));
      if (part.rank == 1 && detail::packable<N>(part, 0, first)) {
        detail::launch_map<N, 1>(constant, part.numel(), detail::DenseWalk<1, N>{}, first, stream);
      } else {
        detail::launch_map<1, 4>(constant, part.numel(), Walk<1>(part, 1), first, stream);
      }
    });
  });
  BS_CUDA_CHECK_LAUNCH("fill");
}

}  // namespace bs::cuda
