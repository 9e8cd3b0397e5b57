// A model of warpgroup_forward.cuh: one warp fills a ring of keys and values, warpgroups wait for
// them, give them back and take turns, and a warp of each brings its queries and takes its results.
// What a warpgroup waits for depends on the lists alone, so it is written down first and then
// played.
#include <bs/kernels/cuda/attention/sparse_attention_plan.h>
#include <doctest/doctest.h>

#include <random>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

/// Of every item, for each of its tiles a bit a warpgroup that keeps it.
using Items = std::vector<std::vector<unsigned>>;

/// What fills a place of the ring.
struct Filling {
  bool keys = false;
  int item = 0, tile = 0;
  bool last = false;
};

std::vector<Filling> fillings_of(const Items& items) {
  std::vector<Filling> out;
  for (int item = 0; item < static_cast<int>(items.size()); ++item) {
    const int tiles = static_cast<int>(items[static_cast<size_t>(item)].size());
    for (int tile = 0; tile < tiles; ++tile) {
      out.push_back({true, item, tile, tile + 1 == tiles});
      if (tile > 0) out.push_back({false, item, tile - 1, false});
    }
    out.push_back({false, item, tiles - 1, false});
  }
  return out;
}

struct Event {
  enum Kind { wait_full, give_back, wait_queries, put_results, take_turn, pass_turn } kind;
  int at;  ///< place since the start, item, or warpgroup
};

/// The events of one warpgroup, and the tiles that it multiplies.
class Warpgroup {
 public:
  Warpgroup(const Items& items, const std::vector<Filling>& fillings, int group, int groups,
            bool turns, bool early)
      : items_(items),
        fillings_(fillings),
        group_(group),
        groups_(groups),
        turns_(turns),
        early_(early) {
    if (turns && group == groups - 1) add(Event::pass_turn, 0);
    for (int item = 0; item < static_cast<int>(items.size()); ++item) walk(item);
  }
  std::vector<Event> events;
  int products = 0;
  bool values_fit = true;  ///< each product has the values of its own tile

 private:
  void add(Event::Kind kind, int at) { events.push_back({kind, at}); }
  const Filling& at(int place) const { return fillings_[static_cast<size_t>(place)]; }
  void turn() {
    if (!turns_) return;
    add(Event::take_turn, group_);
    add(Event::pass_turn, (group_ + 1) % groups_);
  }
  void pass_values() {
    if (kept_) {
      values_ = place_;
    } else {
      add(Event::wait_full, place_);
      add(Event::give_back, place_);
    }
    ++place_;
  }
  bool seek(int most) {
    while (!finished_ && most-- > 0) {
      keys_ = place_++;
      add(Event::wait_full, keys_);
      const Filling& f = at(keys_);
      finished_ = f.last;
      if (begun_) pass_values();
      begun_ = true;
      kept_ = items_[static_cast<size_t>(f.item)][static_cast<size_t>(f.tile)] >> group_ & 1;
      if (kept_) {
        owed_ = finished_;
        return true;
      }
      add(Event::give_back, keys_);
      if (finished_) pass_values();
    }
    return false;
  }
  void multiply_values(int place, int tile) {
    add(Event::wait_full, place);
    values_fit = values_fit && !at(place).keys && at(place).tile == tile;
    ++products;
  }
  void walk(int item) {
    add(Event::wait_queries, item);
    begun_ = finished_ = kept_ = false;
    while (seek(1 << 30)) {
      turn();
      int tile = at(keys_).tile;
      add(Event::give_back, keys_);
      bool more = seek(2);
      while (more) {
        const int keys = keys_, values = values_;
        if (turns_) add(Event::take_turn, group_);
        if (early_) more = seek(1);
        multiply_values(values, tile);
        if (turns_) add(Event::pass_turn, (group_ + 1) % groups_);
        tile = at(keys).tile;
        add(Event::give_back, keys);
        if (!early_) more = seek(1);
        add(Event::give_back, values);
        more = more || seek(1);
      }
      if (owed_) pass_values();
      owed_ = false;
      turn();
      multiply_values(values_, tile);
      add(Event::give_back, values_);
    }
    add(Event::put_results, item);
  }

  const Items& items_;
  const std::vector<Filling>& fillings_;
  int group_, groups_;
  bool turns_, early_;  ///< see seeks_early
  int place_ = 0, keys_ = 0, values_ = 0;
  bool begun_ = false, finished_ = false, kept_ = false, owed_ = false;
};

/// What the warp of a warpgroup does: it brings queries of an item, or takes its results.
struct Service {
  bool brings;
  int item;
};

/// Behind the last item it is told that there are no more.
std::vector<Service> services_of(int items, int places) {
  std::vector<Service> out;
  for (int item = 0; item <= items; ++item) {
    if (places == 1 && item > 0) out.push_back({false, item - 1});
    out.push_back({true, item});
    if (places == 2 && item > 0) out.push_back({false, item - 1});
  }
  return out;
}

/// Warpgroups, the warp that fills the ring, and the warps that bring queries and take results.
class Game {
 public:
  Game(const Items& items, int slots, int query_places, int groups, bool turns, bool early)
      : items_(items),
        fillings_(fillings_of(items)),
        services_(services_of(static_cast<int>(items.size()), query_places)),
        slots_(static_cast<size_t>(slots)),
        groups_(groups),
        next_(static_cast<size_t>(groups), 0),
        served_(next_),
        given_(fillings_.size(), 0),
        turn_(next_.size(), 0),
        come_(turn_),
        put_(turn_) {
    for (int g = 0; g < groups; ++g)
      warpgroups_.emplace_back(items, fillings_, g, groups, turns, early);
  }

  /// Whether everybody comes to the end, whoever is quick or slow.
  bool ends(std::mt19937& random) {
    for (bool moved = true; moved;) {
      moved = false;
      const auto hurry =
          static_cast<size_t>(random() % 4);  // who moves as far as it can before the others
      if (hurry == 3)
        while (fill()) moved = true;
      for (size_t g = 0; g < next_.size(); ++g)
        for (int i = hurry == g ? 1000 : 1; i > 0 && step(g); --i) moved = true;
      for (size_t g = 0; g < next_.size(); ++g) moved = serve(g) || moved;
      moved = fill() || moved;
    }
    for (size_t g = 0; g < next_.size(); ++g)
      if (next_[g] != warpgroups_[g].events.size() || served_[g] != services_.size()) return false;
    return true;
  }

  /// That every place was given back by all, and every tile multiplied by who keeps it.
  void check_work() const {
    for (const int count : given_) CHECK(count == groups_);
    for (int g = 0; g < groups_; ++g) {
      int kept = 0;
      for (const auto& tiles : items_)
        for (const unsigned bits : tiles) kept += bits >> g & 1;
      CHECK(warpgroups_[static_cast<size_t>(g)].products == kept);
      CHECK(warpgroups_[static_cast<size_t>(g)].values_fit);
    }
  }

 private:
  bool tell() {
    for (const int of : come_)
      if (told_ >= of + 2) return false;
    ++told_;
    return true;
  }
  bool fill() {
    if (filled_ == fillings_.size()) return told_ <= static_cast<int>(items_.size()) && tell();
    if (told_ <= fillings_[filled_].item) return tell();
    if (filled_ >= slots_ && given_[filled_ - slots_] < groups_) return false;
    ++filled_;
    return true;
  }
  bool serve(size_t g) {
    if (served_[g] == services_.size()) return false;
    const Service& service = services_[served_[g]];
    if (service.brings ? told_ <= service.item : put_[g] <= service.item) return false;
    if (service.brings) ++come_[g];
    ++served_[g];
    return true;
  }
  bool step(size_t g) {
    if (next_[g] == warpgroups_[g].events.size()) return false;
    const Event e = warpgroups_[g].events[next_[g]];
    const auto at = static_cast<size_t>(e.at);
    if (e.kind == Event::wait_full && filled_ <= at) return false;
    if (e.kind == Event::wait_queries && come_[g] <= e.at) return false;
    if (e.kind == Event::take_turn && turn_[at]-- == 0) {
      turn_[at] = 0;
      return false;
    }
    if (e.kind == Event::give_back) ++given_[at];
    if (e.kind == Event::put_results) ++put_[g];
    if (e.kind == Event::pass_turn) ++turn_[at];
    ++next_[g];
    return true;
  }

  const Items& items_;
  std::vector<Filling> fillings_;
  std::vector<Service> services_;
  size_t slots_;
  int groups_;
  std::vector<Warpgroup> warpgroups_;
  std::vector<size_t> next_, served_;  ///< events of each warpgroup, services of its warp
  std::vector<int> given_;             ///< back, of each filling
  std::vector<int> turn_;
  std::vector<int> come_, put_;  ///< items whose queries have come, whose results are there
  size_t filled_ = 0;
  int told_ = 0;
};

bool plays(const Items& items, int slots, int query_places, int groups, bool turns, bool early,
           std::mt19937& random) {
  Game game(items, slots, query_places, groups, turns, early);
  if (!game.ends(random)) return false;
  game.check_work();
  return true;
}

Items random_items(std::mt19937& random, int groups, bool turns) {
  Items items(1 + random() % 6);
  for (auto& tiles : items) {
    const auto share = static_cast<unsigned>(1 + random() % 10);
    const unsigned all = (1U << groups) - 1;
    if (turns && random() % 5 == 0) {
      tiles = {0};
      continue;
    }
    tiles.assign(1 + random() % 8, turns ? all : 0);
    for (unsigned& bits : tiles)
      for (int g = 0; g < groups && !turns; ++g) bits |= (random() % 10 < share ? 1U : 0U) << g;
  }
  return items;
}

}  // namespace

TEST_CASE("sparse_attention: nobody waits for ever on the ring of keys and values") {
  std::mt19937 random(3);
  for (const int head_dim : {64, 128, 192, 256})
    for (const int block : {64, 128}) {
      const WarpgroupForward k =
          warpgroup_forward({bf16, head_dim, head_dim, block, 90, 227 * 1024});
      for (int trial = 0; trial < 2000; ++trial)
        for (const bool early : {false, k.turns})
          REQUIRE(plays(random_items(random, k.groups, k.turns), k.slots, k.query_places, k.groups,
                        k.turns, early, random));
    }
}

TEST_CASE("sparse_attention: a ring of four places is too short, which the model finds") {
  std::mt19937 random(5);
  int stuck = 0;
  for (int trial = 0; trial < 1000; ++trial)
    stuck += !plays(random_items(random, 2, false), 4, 1, 2, false, false, random);
  CHECK(stuck > 0);
}
