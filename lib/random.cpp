#include <bs/lib/random.h>

#include <bs/lib/recording.h>

namespace bs {

RandomState Generator::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

void Generator::set_state(RandomState state) {
  const std::scoped_lock lock(mutex_);
  state_ = state;
}

RandomState Generator::next() {
  if (Recording* recording = Recording::current()) return recording->draw(*this);
  const std::scoped_lock lock(mutex_);
  const RandomState mine = state_;
  ++state_.offset;
  return mine;
}

RandomState Generator::advance(uint64_t count, uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  const RandomState first = state_;
  if (first.seed == seed) state_.offset += count;
  return first;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

}  // namespace bs
