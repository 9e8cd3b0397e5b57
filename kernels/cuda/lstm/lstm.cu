#include <bs/kernels/accumulate.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/lib/cuda/handles.h>

#include <bs/kernels/cuda/lstm/lstm_memory.h>
#include <bs/kernels/cuda/lstm/lstm_persistent.h>
#include <bs/kernels/cuda/lstm/lstm_graph.cuh>

#include <algorithm>
#include <utility>

namespace bs::cuda {

using namespace recurrent;

namespace {

template <class T>
T* optional_pointer(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data()) : nullptr;
}

template <class T>
LstmArgs<T> args_of(const LSTMSteps& s) {
  using W = wide<T>;
  LstmArgs<T> a{};
  a.gates = optional_pointer<T>(s.gates);
  a.h = optional_pointer<T>(s.h);
  a.c = optional_pointer<W>(s.c);
  a.outputs = optional_pointer<T>(s.outputs);
  a.lengths = optional_pointer<int64_t>(s.lengths);
  a.steps = s.steps();
  a.batch = static_cast<int>(s.batch());
  a.cells = static_cast<int>(s.cells());
  a.width = static_cast<int>(s.width());
  a.reverse = s.reverse;
  a.zoneout_hidden = static_cast<W>(s.rule.zoneout_hidden);
  a.zoneout_cell = static_cast<W>(s.rule.zoneout_cell);
  a.expected = s.rule.expected;
  a.limit_hidden = static_cast<unsigned>(threshold(s.rule.zoneout_hidden));
  a.limit_cell = static_cast<unsigned>(threshold(s.rule.zoneout_cell));
  a.state = s.rule.state;
  return a;
}

template <class T>
LstmArgs<T> args_of(const LSTMBackwardSteps& s) {
  using W = wide<T>;
  LstmArgs<T> a = args_of<T>(s.forward);
  a.dy = optional_pointer<T>(s.dy);
  a.dcells = optional_pointer<W>(s.dcells);
  a.dc = optional_pointer<W>(s.dc);
  a.dgates = optional_pointer<T>(s.dgates);
  a.dhidden = optional_pointer<T>(s.dhidden);
  return a;
}

/// A sequence with memory of its own, a launch at a time.
template <class T>
struct Steps {
  LstmShape shape;
  LstmBuffers<T> buffers;
  Tensor memory;
  LstmQueue queue;

  Steps(const LSTMSteps& s, bool backward, Stream stream)
      : shape(shape_of(s)), queue(queue_on(stream)) {
    const auto bytes = static_cast<int64_t>(buffers.place(shape, backward, nullptr));
    memory = Tensor::empty({bytes}, u8, stream.device());
    buffers.place(shape, backward, static_cast<std::byte*>(memory.data()));
  }
  void store(const LstmArgs<T>& args) const {
    store_args<<<1, 1, 0, queue.stream>>>(args, buffers.args);
    BS_CUDA_CHECK_LAUNCH("lstm");
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    BS_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                  queue.stream));
  }
};

template <class T>
void forward_steps(const LSTMSteps& s, Stream stream) {
  const Steps<T> run(s, false, stream);
  run.store(args_of<T>(s));
  const auto* hh = static_cast<const T*>(s.hh.data());
  const T* hr = optional_pointer<T>(s.hr);
  const Tensor first = s.h.select(0, s.before(s.step(0)));
  run.copy(run.buffers.hidden, first.data(), static_cast<int64_t>(first.bytes()));
  const auto steps = static_cast<int>(s.steps());
  if (!s.layout) return enqueue_forward<T>(run.shape, run.buffers, hh, hr, 0, steps, run.queue);
  for (int n = 0; n < steps; ++n) {
    const Tensor before = s.h.select(0, s.before(s.step(n)));
    const Tensor sums = cast(dds(before, {s.layout, s.hh}, {.b = true}), s.c.dtype());
    enqueue_cells<T>(run.shape, run.buffers, static_cast<const wide<T>*>(sums.data()), hr, n, false,
                     run.queue);
  }
}

template <class T>
void backward_steps(const LSTMBackwardSteps& s, Stream stream) {
  const Steps<T> run(s.forward, true, stream);
  run.store(args_of<T>(s));
  const LSTMSteps& f = s.forward;
  const auto* hh = static_cast<const T*>(f.hh.data());
  const T* hr = optional_pointer<T>(f.hr);
  const auto bytes = static_cast<int64_t>(s.dh.bytes());
  const auto steps = static_cast<int>(f.steps());
  run.copy(run.buffers.dh, s.dh.data(), bytes);
  if (!f.layout) {
    enqueue_backward<T>(run.shape, run.buffers, hh, hr, steps - 1, steps, run.queue);
  } else {
    const Tensor dh = Tensor::from_blob(run.buffers.dh, s.dh.shape(), s.dh.dtype(), s.dh.device());
    for (int n = steps - 1; n >= 0; --n) {
      enqueue_cells_backward<T>(run.shape, run.buffers, hr, n, false, run.queue);
      const Tensor through = dds(s.dgates.select(0, f.step(n)), {f.layout, f.hh});
      // Without variants and projection dh was read and is not cleared.
      if (run.shape.variants || run.shape.projects) {
        accumulate(dh, cast(through, dh.dtype()));
      } else {
        bs::copy(through, dh);
      }
    }
  }
  run.copy(s.dh.data(), run.buffers.dh, bytes);
}

bool is_aligned(const LSTMSteps& s) { return reinterpret_cast<uintptr_t>(s.hh.data()) % 4 == 0; }

/// Whether what is chosen for one suits the other, so that they may share a launch or a graph.
bool alike(const LSTMSteps& a, const LSTMSteps& b) {
  return shape_of(a) == shape_of(b) && a.rule.zoneout() == b.rule.zoneout() &&
         (a.layout == nullptr) == (b.layout == nullptr) && is_aligned(a) == is_aligned(b);
}
bool alike(const LSTMBackwardSteps& a, const LSTMBackwardSteps& b) {
  return alike(a.forward, b.forward);
}

template <class S>
bool all_alike(std::span<const S> directions) {
  return std::ranges::all_of(directions, [&](const S& s) { return alike(directions.front(), s); });
}

/// @param[in] s one of directions that are alike
LstmQuery query_of(const LSTMSteps& s, size_t directions, bool backward, Stream stream) {
  const DeviceProperties& device = device_properties(stream.device());
  const LstmHost host = backward ? lstm_backward_host(stream.device()) : lstm_host(stream.device());
  const LstmShape shape = shape_of(s);
  return {.dtype = shape.dtype,
          .steps = s.steps(),
          .batch = shape.batch,
          .cells = shape.cells,
          .directions = static_cast<int>(directions),
          .projects = shape.projects,
          .zoneout = s.rule.zoneout(),
          .sparse = s.layout != nullptr,
          .aligned = is_aligned(s),
          .backward = backward,
          .capturing = is_captured(stream),
          .known = true,
          .capability = host.capability,
          .multiprocessors = device.multiprocessors,
          .shared_bytes = device.shared_memory_optin,
          .cooperative = host.cooperative,
          .pairs = host.pairs};
}

/// The plan of directions that a graph is to run; null where they are to be launched step by step.
template <class T>
GraphPlan<T>* plan_for(const LSTMSteps& s, size_t directions, bool backward, Stream stream) {
  LstmQuery query = query_of(s, directions, backward, stream);
  if (lstm_algorithm(query) != LstmAlgorithm::graph) return nullptr;
  GraphPlan<T>& plan = graph_plan<T>({stream.handle(), stream.device().index(), shape_of(s),
                                      static_cast<int>(directions), backward});
  query.known = std::exchange(plan.known, true);
  return lstm_algorithm(query) == LstmAlgorithm::graph ? &plan : nullptr;
}

void copy_in(void* to, const Tensor& from, cudaStream_t stream) {
  if (from.defined())
    BS_CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.bytes(), cudaMemcpyDeviceToDevice, stream));
}

template <class T>
void forward(std::span<const LSTMSteps> directions, Stream stream) {
  GraphPlan<T>* plan = plan_for<T>(directions.front(), directions.size(), false, stream);
  if (!plan) {
    for (const LSTMSteps& s : directions) forward_steps<T>(s, stream);
    return;
  }
  const cudaStream_t queue = native(stream);
  for (size_t i = 0; i < directions.size(); ++i) {
    const LSTMSteps& s = directions[i];
    const auto& branch = plan->branches()[i];
    store_args<<<1, 1, 0, queue>>>(args_of<T>(s), branch.buffers.args);
    BS_CUDA_CHECK_LAUNCH("lstm");
    copy_in(branch.hh, s.hh, queue);
    copy_in(branch.hr, s.hr, queue);
    copy_in(branch.buffers.hidden, s.h.select(0, s.before(s.step(0))), queue);
  }
  plan->run(directions.front().steps(), stream);
  plan->done(stream);
}

template <class T>
void backward(std::span<const LSTMBackwardSteps> directions, Stream stream) {
  GraphPlan<T>* plan = plan_for<T>(directions.front().forward, directions.size(), true, stream);
  if (!plan) {
    for (const LSTMBackwardSteps& s : directions) backward_steps<T>(s, stream);
    return;
  }
  const cudaStream_t queue = native(stream);
  const int64_t steps = directions.front().forward.steps();
  for (size_t i = 0; i < directions.size(); ++i) {
    const LSTMBackwardSteps& s = directions[i];
    const auto& branch = plan->branches()[i];
    LstmArgs<T> args = args_of<T>(s);
    args.base = steps - 1;
    store_args<<<1, 1, 0, queue>>>(args, branch.buffers.args);
    BS_CUDA_CHECK_LAUNCH("lstm_backward");
    copy_in(branch.hh, s.forward.hh, queue);
    copy_in(branch.hr, s.forward.hr, queue);
    copy_in(branch.buffers.dh, s.dh, queue);
  }
  plan->run(steps, stream);
  for (size_t i = 0; i < directions.size(); ++i)
    BS_CUDA_CHECK(cudaMemcpyAsync(directions[i].dh.data(), plan->branches()[i].buffers.dh,
                                  directions[i].dh.bytes(), cudaMemcpyDeviceToDevice, queue));
  plan->done(stream);
}

}  // namespace

void lstm(std::span<const LSTMSteps> directions, Stream stream) {
  if (!all_alike(directions)) {
    for (const LSTMSteps& s : directions) lstm({&s, 1}, stream);
    return;
  }
  const LstmQuery query = query_of(directions.front(), directions.size(), false, stream);
  if (lstm_algorithm(query) == LstmAlgorithm::persistent)
    return lstm_persistent(directions, lstm_division(query), stream);
  visit_floating("lstm", directions.front().gates.dtype(),
                 [&]<class T>(Type<T>) { forward<device_type<T>>(directions, stream); });
}

void lstm_backward(std::span<const LSTMBackwardSteps> directions, Stream stream) {
  if (!all_alike(directions)) {
    for (const LSTMBackwardSteps& s : directions) lstm_backward({&s, 1}, stream);
    return;
  }
  const LstmQuery query = query_of(directions.front().forward, directions.size(), true, stream);
  if (lstm_algorithm(query) == LstmAlgorithm::persistent)
    return lstm_persistent_backward(directions, lstm_division(query), stream);
  visit_floating("lstm_backward", directions.front().dgates.dtype(),
                 [&]<class T>(Type<T>) { backward<device_type<T>>(directions, stream); });
}

void lstm_chunk(const LSTMSteps& layer, bool backward, int64_t& chunk, Stream stream) {
  chunk = lstm_wavefront(query_of(layer, 1, backward, stream));
}

void release_lstm_graphs(Device device) {
  const auto release = [&]<class T>(Type<T>) {
    graph_plans<device_type<T>>().remove_if(
        [&](const auto& plan) { return plan.key().device == device.index(); });
  };
  release(Type<half>{});
  release(Type<bfloat16>{});
  release(Type<float>{});
  release(Type<double>{});
}

}  // namespace bs::cuda
