#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/cuda/reduce/reduce_parts.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/cuda/runtime.h>

#include <algorithm>

namespace bs::cuda {

namespace {

using device::GemmParams;
using device::WarpgroupGemmParams;

const jit::Kernel& kernel_of(const GemmOperation& operation, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(operation.key(), device, [&] {
    return jit::Source{kernel_name(operation.description()), operation.to_source(),
                       device_headers()};
  });
}

const jit::Kernel& join_of(const GemmOperation& operation, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(operation.key(), device, [&] {
    const GemmDescription& d = operation.description();
    return jit::Source{join_name(d), to_join_source(d), device_headers()};
  });
}

/// One call on its way to the GPU.
class Launch {
 public:
  Launch(const GemmLaunch& launch, Stream stream)
      : launch_(launch),
        d_(launch.operation->description()),
        stream_(stream),
        kernel_(kernel_of(*launch.operation, stream.device())),
        warpgroup_(d_.tile.math.op_class == OpClass::warpgroup),
        several_(d_.mode == GemmMode::array || d_.mode == GemmMode::grouped) {
    for (const GemmTensors& p : launch.products) seen_.emplace_back(d_, p);
    for (const SeenGemm& s : seen_) tiles_ += s.tiles(d_);
    BS_CHECK(tiles_ * launch.slices < (int64_t{1} << 31), "gemm: {} tiles are too many", tiles_);
  }

  void run() {
    count_ctas();
    GemmMemory memory(d_, seen_, tiles_, launch_.slices, ctas_, several_);
    memory.allocate(stream_);
    memory.split(stream_);
    WarpgroupGemmParams params{};
    GemmParams& gemm = params.gemm;
    gemm.tiles = static_cast<int>(tiles_);
    gemm.slices = launch_.slices;
    for (size_t i = 0; i < launch_.scalars.size(); ++i) {
      gemm.scalars.in_f32[i] = static_cast<float>(launch_.scalars[i]);
      gemm.scalars.in_f64[i] = launch_.scalars[i];
    }
    memory.describe(params, warpgroup_);
    const jit::LaunchShape shape{.grid = dim3(static_cast<unsigned>(ctas_)),
                                 .block = dim3(static_cast<unsigned>(d_.tile.threads())),
                                 .cluster = d_.tile.cluster_ctas(),
                                 .shared_bytes = shared_bytes(d_)};
    if (warpgroup_) {
      jit::launch(kernel_, shape, stream_, params);
    } else {
      jit::launch(kernel_, shape, stream_, gemm);
    }
    if (d_.split_k == SplitK::parallel && launch_.slices > 1) join(gemm);
    for (size_t i = 0; i < seen_.size(); ++i)
      for (size_t r = 0; r < d_.epilogue.reductions().size(); ++r)
        reduce_parts(memory.partial(i, r), launch_.products[i].reductions[r],
                     d_.epilogue.reductions()[r].is_max, stream_);
  }

 private:
  void join(const GemmParams& gemm) const {
    const jit::LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(join_ctas(d_, tiles_, launch_.slices))),
        .block = dim3(join_threads)};
    jit::launch(join_of(*launch_.operation, stream_.device()), shape, stream_, gemm);
  }

  void count_ctas() {
    const int64_t work = tiles_ * launch_.slices;
    const bool persistent = warpgroup_ || several_ || d_.swizzle == Swizzle::stream_k;
    if (!persistent) {
      ctas_ = static_cast<int>(work);
      return;
    }
    kernel_.allow(shared_bytes(d_), 1);
    const int multiprocessors = device_properties(stream_.device()).multiprocessors;
    const int64_t resident =
        int64_t{multiprocessors} * kernel_.ctas_per_sm(d_.tile.threads(), shared_bytes(d_));
    const int64_t wanted =
        d_.swizzle == Swizzle::stream_k ? tiles_ * seen_.front().steps(d_) : work;
    const int cluster = d_.tile.cluster_ctas();
    const int64_t clusters = std::min(resident / cluster, wanted);
    ctas_ = static_cast<int>(std::max<int64_t>(clusters, 1) * cluster);
  }

  const GemmLaunch& launch_;
  const GemmDescription& d_;
  Stream stream_;
  const jit::Kernel& kernel_;
  bool warpgroup_, several_;
  std::vector<SeenGemm> seen_;
  int64_t tiles_ = 0;
  int ctas_ = 0;
};

}  // namespace

void gemm_operation(const GemmLaunch& launch, Stream stream) {
  const GemmDescription& d = launch.operation->description();
  const int needed = minimum_capability(d.tile.math);
  const int capability = device_properties(stream.device()).capability;
  BS_CHECK(runs_on(d.tile.math, capability),
           "gemm: {} needs a GPU of compute capability {}.{}; {} has {}.{}", d.tile.math,
           needed / 10, needed % 10, stream.device(), capability / 10, capability % 10);
  Launch(launch, stream).run();
}

}  // namespace bs::cuda
