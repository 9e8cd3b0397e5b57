#include <bs/lib/check.h>
#include <bs/lib/recording.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <vector>

using namespace bs;

namespace {

const Device cpu = Device::cpu();

/// Does what a replay does before its launch.
void replay(Recording& recording) {
  const auto words = recording.refresh();
  std::memcpy(recording.words(), words.data(), words.size_bytes());
}

Tensor bytes(int64_t count) { return Tensor::empty({count}, u8, cpu); }

}  // namespace

TEST_CASE("what a thread records has memory of its own, which lives as long as it is used") {
  Tensor outside = bytes(1000);
  Tensor made;
  const int64_t before = memory_statistics(cpu).live;
  {
    Recording recording(cpu, {});
    {
      const Recording::Scope scope(recording);
      CHECK(Recording::current(cpu) == &recording);
      CHECK(!Capturing::none(cpu));
      CHECK(&memory_resource(cpu) == &recording.memory());
      made = bytes(300);
      const void* freed = bytes(5000).data();
      CHECK(bytes(5000).data() == freed);  // what comes later in the record may have it
      CHECK_THROWS_WITH_AS(Recording::Scope{recording}, "graph: this thread records one already",
                           Error);
    }
    CHECK(Recording::current() == nullptr);
    CHECK(Capturing::none(cpu));
    CHECK(&memory_resource(cpu) != &recording.memory());
    CHECK(recording.bytes() >= 5300);
  }
  std::memset(made.data(), 1, 300);  // the arena is still there
  made = Tensor();
  CHECK(memory_statistics(cpu).live == before);
}

TEST_CASE("memory from before a recording that is freed in it stays until the recording goes") {
  const int64_t before = memory_statistics(cpu).live;
  {
    Recording recording(cpu, {});
    const int64_t own = memory_statistics(cpu).live;
    Tensor outside = bytes(1 << 20);
    void* const address = outside.data();
    {
      const Recording::Scope scope(recording);
      outside = Tensor();
    }
    CHECK(memory_statistics(cpu).live == own + 1);
    const Tensor other = bytes(1 << 20);
    CHECK(other.data() != address);
  }
  CHECK(memory_statistics(cpu).live == before);
}

TEST_CASE("numbers of the host go on from replay to replay") {
  double rate = 1;
  int steps = 0;
  Recording recording(cpu, {});
  Tensor a, b;
  {
    const Recording::Scope scope(recording);
    a = recording.live(2, [&](std::span<double> to) {
      to[0] = rate;
      to[1] = steps + 1;
    });
    recording.at_refresh([&] { ++steps; });
    b = recording.live(1, [&](std::span<double> to) { to[0] = steps; });
  }
  for (int i = 1; i <= 3; ++i) {
    rate = 10 * i;
    replay(recording);
    CHECK(a.data<double>()[0] == 10 * i);
    CHECK(a.data<double>()[1] == i);
    CHECK(b.data<double>()[0] == i);  // after what was asked for before
  }
  CHECK(steps == 3);
}

TEST_CASE("a recorded draw is the generator's next one at each replay") {
  Generator recorded(5), eager(5);
  recorded.next();
  eager.next();
  Recording recording(cpu, {});
  RandomState first, second;
  {
    const Recording::Scope scope(recording);
    first = recorded.next();
    second = recorded.next();
  }
  CHECK(recorded.state() == eager.state());  // nothing was drawn yet
  for (int i = 0; i < 3; ++i) {
    replay(recording);
    for (const RandomState& state : {first, second}) {
      const RandomState expected = eager.next();
      CHECK(state.seed == expected.seed);
      CHECK(state.sequence() == expected.sequence());
    }
    CHECK(recorded.state() == eager.state());
    recorded.next();  // between replays anything may draw
    eager.next();
  }
  recorded.manual_seed(6);
  CHECK_THROWS_WITH_AS(recording.refresh(),
                       "graph: recorded with random numbers of seed 5, which is 6 now", Error);
}

TEST_CASE("replays and other threads draw from one generator, and never the same") {
  Generator generator(5);
  Recording recording(cpu, {});
  RandomState recorded;
  {
    const Recording::Scope scope(recording);
    recorded = generator.next();
    generator.next();
  }
  constexpr int times = 20000;
  std::vector<uint64_t> drawn, beside;
  std::thread other([&] {
    for (int i = 0; i < times; ++i) beside.push_back(generator.next().sequence());
  });
  for (int i = 0; i < times; ++i) {
    replay(recording);
    for (const uint64_t more : {0UL, 1UL}) drawn.push_back(recorded.sequence() + more);
  }
  other.join();
  drawn.insert(drawn.end(), beside.begin(), beside.end());
  std::ranges::sort(drawn);
  CHECK(std::ranges::adjacent_find(drawn) == drawn.end());
  CHECK(generator.state().offset == 3 * times);
}

TEST_CASE("zeroed words of a recording lie where nothing else is written") {
  Recording recording(cpu, {});
  const Recording::Scope scope(recording);
  Tensor used = bytes(1 << 21);
  std::memset(used.data(), 7, used.bytes());
  used = Tensor();
  int fills = 0;
  const auto fill = [&](void* memory, size_t size) {
    std::memset(memory, 0, size);
    ++fills;
  };
  std::vector<int*> taken;
  for (int i = 0; i < 40; ++i) taken.push_back(recording.zeroed(2000, fill));
  CHECK(fills == 2);
  const Tensor later = bytes(1 << 21);
  std::memset(later.data(), 7, later.bytes());
  for (size_t i = 0; i < taken.size(); ++i)
    for (int k = 0; k < 2000; ++k) {
      REQUIRE(taken[i][k] == 0);
      taken[i][k] = static_cast<int>(i) + 1;  // and they are of one operation each
    }
}

TEST_CASE("the workspace of a recording is shared and grows") {
  Recording recording(cpu, {});
  const Recording::Scope scope(recording);
  void* const a = recording.workspace(1000);
  CHECK(recording.workspace(500) == a);
  CHECK(recording.workspace(2000) != a);
  CHECK(bytes(1000).data() != a);  // operations recorded before still use it
}

TEST_CASE("recordings that share memory hold it once, and what is still in use is not shared") {
  const int64_t before = memory_statistics(cpu).live;
  {
    const auto memory = Arena::make(memory_resource(cpu), {});
    Recording first(cpu, {}, memory), second(cpu, {}, memory);
    Tensor result;
    const void* freed = nullptr;
    {
      const Recording::Scope scope(first);
      result = bytes(5 << 20);
      const Tensor temporary = bytes(9 << 20);
      freed = temporary.data();
      CHECK(first.workspace(7 << 20) != nullptr);
    }
    const int64_t held = memory->reserved();
    std::memset(result.data(), 1, result.bytes());
    {
      const Recording::Scope scope(second);
      const Tensor again = bytes(9 << 20);
      CHECK(again.data() == freed);
      std::memset(again.data(), 2, again.bytes());
      std::memset(second.workspace(7 << 20), 3, 7 << 20);
    }
    CHECK(memory->reserved() == held);
    CHECK(first.bytes() == second.bytes());
    const auto* const values = result.data<uint8_t>();
    CHECK(std::all_of(values, values + result.numel(), [](uint8_t v) { return v == 1; }));
  }
  CHECK(memory_statistics(cpu).live == before);
}

TEST_CASE("what looks at values says that no graph can record it") {
  const Tensor one = Tensor::from<float>(std::vector<float>{1}, {1});
  Recording recording(cpu, {});
  const Recording::Scope scope(recording);
  CHECK_THROWS_WITH_AS(one.item(), "item: reads a value of the device, which no graph can record",
                       Error);
}
