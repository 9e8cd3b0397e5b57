#include <bs/tests/emulator/grid.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>

namespace bs::emulator {

namespace {

/// Steps of a thread until others have their turn, and until other CTAs have it.
constexpr uint64_t slice = 20000, long_wait = 10 * slice;
/// CTAs that are begun at a time, where some wait for others: two on each multiprocessor.
constexpr size_t most_resident = 264;
constexpr size_t shared_alignment = 1024;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct Resident : Cta {
  std::unique_ptr<std::byte, Free> memory;
};

/// What a thread stands at when it must not go on in the same way.
void stop_at(Thread& t, const Instruction& i) {
  t.waits_at = &i;
  Cta& cta = *t.cta;
  switch (i.kind) {
    case Kind::end:
      t.state = State::ended;
      --cta.alive;
      return;
    case Kind::warp:
      t.state = State::at_warp;
      return;
    case Kind::cluster_arrive:
      ++cta.arrived_at_cluster;
      return;
    case Kind::cluster_wait:
      t.state = State::at_cluster;
      return;
    default:
      break;
  }
  t.barrier = t.read<uint32_t>(i.a) % static_cast<uint32_t>(cta.arrived.size());
  t.expected = i.b < 0 ? 0 : t.read<uint32_t>(i.b);
  if (i.use == BarrierUse::arrive) {
    ++cta.arrived[t.barrier];
  } else {
    t.state = State::at_barrier;
  }
}

void run_slice(Thread& t) {
  const Instruction* const code = t.cta->program->code.data();
  const uint64_t end = t.steps + slice;
  while (t.steps < end && t.state == State::runs) {
    ++t.steps;
    const Instruction& i = code[t.next++];
    if (i.guard >= 0 && !t.holds(i.guard, i.guard_is_not)) continue;
    if (i.kind == Kind::plain) {
      i.execute(t, i);
    } else {
      stop_at(t, i);
    }
  }
}

class WarpRun {
 public:
  explicit WarpRun(std::span<Thread> threads) : threads_(threads) {
    warp_.fill(nullptr);
    for (size_t lane = 0; lane < threads.size(); ++lane) warp_[lane] = &threads[lane];
  }

  /// Until all wait for other warps or have ended, or have done much. Whether anyone moved.
  bool run() {
    constexpr int most_meetings = 256;  // lanes may ask together, again and again, for what comes
    bool moved = false, goes_on = true;
    for (int meetings = 0; goes_on && meetings < most_meetings; ++meetings) {
      bool is_cut = false;
      for (Thread& t : threads_) {
        if (t.state != State::runs) continue;
        run_slice(t);
        moved = true;
        is_cut |= t.state == State::runs;
      }
      const bool met = meet();
      moved |= met;
      goes_on = met && !is_cut;
    }
    return moved;
  }

 private:
  uint32_t mask_of(auto holds) const {
    uint32_t mask = 0;
    for (size_t lane = 0; lane < threads_.size(); ++lane)
      if (holds(threads_[lane])) mask |= 1U << lane;
    return mask;
  }

  /// Carries out what all of an instruction's lanes have come to.
  bool meet() {
    bool any = false;
    const uint32_t alive = mask_of([](const Thread& t) { return t.state != State::ended; });
    for (Thread& t : threads_) {
      if (t.state != State::at_warp) continue;
      const Instruction& i = *t.waits_at;
      const uint32_t mask = t.read<uint32_t>(i.e) & alive;
      if ((mask >> t.lane & 1) == 0) fail(*t.cta, "a lane that is not among its own", &i);
      const uint32_t here = mask_of([&](const Thread& other) {
        return other.state == State::at_warp && other.waits_at == &i;
      });
      if ((mask & ~here) != 0) continue;
      i.execute_warp(warp_, mask, i);
      for (size_t lane = 0; lane < threads_.size(); ++lane)
        if ((mask >> lane & 1) != 0) threads_[lane].state = State::runs;
      any = true;
    }
    return any;
  }

  std::span<Thread> threads_;
  Warp warp_;
};

/// Lets those go on who wait at a barrier that all have come to.
bool release(Cta& cta, uint32_t barrier) {
  const auto waits = [=](const Thread& t) {
    return t.state == State::at_barrier && t.barrier == barrier;
  };
  uint32_t here = 0, expected = 0, votes = 0;
  for (const Thread& t : cta.threads) {
    if (!waits(t)) continue;
    ++here;
    expected = std::max(expected, t.expected);
    if (t.waits_at->c >= 0 && t.holds(t.waits_at->c, t.waits_at->c_is_not)) ++votes;
  }
  if (here == 0) return false;
  if (expected == 0) expected = cta.alive;
  const uint32_t come = here + cta.arrived[barrier];
  if (come < expected) return false;
  if (come > expected) fail(cta, "more threads at a barrier than it expects");
  cta.arrived[barrier] = 0;
  for (Thread& t : cta.threads) {
    if (!waits(t)) continue;
    t.state = State::runs;
    const Instruction& i = *t.waits_at;
    if (i.use == BarrierUse::count) t.write(i.to, votes);
    if (i.use == BarrierUse::all) t.registers[i.to] = votes == come ? 1 : 0;
    if (i.use == BarrierUse::any) t.registers[i.to] = votes > 0 ? 1 : 0;
  }
  return true;
}

/// Whether anything happened.
bool run_cta(Cta& cta) {
  bool moved = false;
  for (size_t first = 0; first < cta.threads.size(); first += warp_size) {
    const size_t lanes = std::min<size_t>(warp_size, cta.threads.size() - first);
    moved |= WarpRun(std::span(cta.threads).subspan(first, lanes)).run();
  }
  for (uint32_t barrier = 0; barrier < cta.arrived.size(); ++barrier)
    moved |= release(cta, barrier);
  return moved;
}

class Grid {
 public:
  Grid(const Program& program, const Launch& launch, std::byte* parameters)
      : program_(program), launch_(launch), parameters_(parameters) {
    for (size_t d = 0; d < 3; ++d) {
      clusters_[d] = launch.grid[d] / launch.cluster[d];
      all_ *= clusters_[d];
      of_cluster_ *= launch.cluster[d];
    }
  }

  void run() {
    while (begun_ < all_ || !active_.empty()) {
      if (active_.empty()) begin_cluster();
      bool moved = false, ended = false;
      for (auto cluster = active_.begin(); cluster != active_.end();) {
        moved |= run_cluster(**cluster);
        const bool is_over = std::all_of((*cluster)->ctas.begin(), (*cluster)->ctas.end(),
                                         [](const Resident& cta) { return cta.alive == 0; });
        ended |= is_over;
        cluster = is_over ? active_.erase(cluster) : cluster + 1;
      }
      if (!ended && begun_ < all_ && active_.size() * of_cluster_ < most_resident) {
        begin_cluster();
      } else if (!moved && !ended) {
        tell_deadlock();
      }
    }
  }

 private:
  struct Cluster {
    std::deque<Resident> ctas;
    std::vector<Cta*> members;
  };

  void begin_cluster() {
    auto cluster = std::make_unique<Cluster>();
    const std::array<uint64_t, 3> place = {begun_ % clusters_[0],
                                           begun_ / clusters_[0] % clusters_[1],
                                           begun_ / clusters_[0] / clusters_[1]};
    ++begun_;
    for (uint32_t rank = 0; rank < of_cluster_; ++rank) {
      Resident& cta = cluster->ctas.emplace_back();
      cta.rank = rank;
      uint32_t rest = rank;
      for (size_t d = 0; d < 3; rest /= launch_.cluster[d++])
        cta.index[d] =
            static_cast<uint32_t>(place[d]) * launch_.cluster[d] + rest % launch_.cluster[d];
      begin(cta);
      cluster->members.push_back(&cta);
    }
    for (Resident& cta : cluster->ctas) cta.cluster = cluster->members;
    active_.push_back(std::move(cluster));
  }

  void begin(Resident& cta) const {
    constexpr std::byte unknown{0xcd};  // what memory holds before anyone writes there
    cta.program = &program_;
    cta.grid = launch_.grid;
    cta.block = launch_.block;
    cta.cluster_shape = launch_.cluster;
    cta.parameters = parameters_;
    cta.dynamic_shared = launch_.dynamic_shared;
    cta.shared_end = program_.dynamic_begins + launch_.dynamic_shared;
    const size_t bytes = (cta.shared_end / shared_alignment + 1) * shared_alignment;
    cta.memory.reset(static_cast<std::byte*>(std::aligned_alloc(shared_alignment, bytes)));
    cta.shared = cta.memory.get();
    std::fill_n(cta.shared, bytes, unknown);
    cta.alive = launch_.block[0] * launch_.block[1] * launch_.block[2];
    cta.threads.resize(cta.alive);
    const auto registers = static_cast<size_t>(program_.registers);
    cta.registers.resize(cta.alive * registers);
    const size_t local = (program_.local_bytes + 31) / 16 * 16;
    cta.local.assign(cta.alive * local + 16, unknown);
    std::byte* const aligned =
        cta.local.data() + (16 - reinterpret_cast<uint64_t>(cta.local.data()) % 16);
    for (uint32_t number = 0; number < cta.alive; ++number) {
      Thread& t = cta.threads[number];
      t.cta = &cta;
      t.registers = cta.registers.data() + number * registers;
      for (const auto& [constant, value] : program_.constants) t.registers[constant] = value;
      t.local = aligned + number * local;
      t.lane = number % warp_size;
      t.index = {number % cta.block[0], number / cta.block[0] % cta.block[1],
                 number / cta.block[0] / cta.block[1]};
    }
  }

  /// Whether anything happened.
  static bool run_cluster(Cluster& cluster) {
    bool moved = false;
    uint32_t alive = 0, waiting = 0;
    for (Resident& cta : cluster.ctas) {
      const auto waits_long = [](const Thread& t) {
        return t.state == State::runs && t.steps > long_wait;
      };
      while (cta.alive > 0 && run_cta(cta)) {
        moved = true;
        if (std::any_of(cta.threads.begin(), cta.threads.end(), waits_long)) break;
      }
      alive += cta.alive;
      for (const Thread& t : cta.threads) waiting += t.state == State::at_cluster ? 1 : 0;
    }
    if (waiting == 0 || waiting < alive) return moved;
    for (Resident& cta : cluster.ctas)
      for (Thread& t : cta.threads)
        if (t.state == State::at_cluster) t.state = State::runs;
    return true;
  }

  [[noreturn]] void tell_deadlock() const {
    for (const auto& cluster : active_)
      for (const Resident& cta : cluster->ctas)
        for (const Thread& t : cta.threads)
          if (t.state != State::ended && t.waits_at != nullptr)
            fail(cta, "a deadlock: thread " + std::to_string(&t - cta.threads.data()) + " waits",
                 t.waits_at);
    std::abort();
  }

  const Program& program_;
  const Launch& launch_;
  std::byte* parameters_;
  std::array<uint64_t, 3> clusters_{};
  uint64_t all_ = 1, begun_ = 0;
  uint32_t of_cluster_ = 1;
  std::vector<std::unique_ptr<Cluster>> active_;
};

}  // namespace

void fail(const Cta& cta, const std::string& text, const Instruction* at) {
  std::fprintf(stderr, "emulator: %s, in CTA (%u, %u, %u) of %s%s%s\n", text.c_str(), cta.index[0],
               cta.index[1], cta.index[2], cta.program->name.c_str(), at != nullptr ? ": " : "",
               at != nullptr ? at->text.c_str() : "");
  std::abort();
}

std::byte* Cta::shared_at(uint64_t address, size_t bytes) const {
  const uint64_t offset = address & 0xffffff, window = address >> 24;
  const Cta* const owner = window == 0                ? this
                           : window <= cluster.size() ? cluster[window - 1]
                                                      : nullptr;
  if (owner == nullptr || offset < shared_begins || offset + bytes > owner->shared_end)
    fail(*this, "shared memory ends at " + std::to_string(shared_end) + ", not at " +
                    std::to_string(offset + bytes));
  return owner->shared + offset;
}

void run_grid(Kernel& kernel, const Launch& launch, const std::byte* parameters) {
  constexpr size_t alignment = 64;
  std::vector<std::byte> copy(kernel.parameter_bytes + alignment);
  std::byte* const aligned =
      copy.data() + (alignment - reinterpret_cast<uint64_t>(copy.data()) % alignment) % alignment;
  std::copy_n(parameters, kernel.parameter_bytes, aligned);
  Grid(kernel.program(), launch, aligned).run();
}

}  // namespace bs::emulator
