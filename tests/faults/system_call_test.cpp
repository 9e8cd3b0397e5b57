// Every system call of a save fails in turn, in each way that it can. After each the path names the
// old file, whole, and an error has come, or the new one, whole; nothing else is left, and the next
// save works.
#include <bs/kernels/fill.h>
#include <bs/lib/npy.h>
#include <bs/lib/npz.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/adamw.h>
#include <bs/tests/faults/system_call_faults.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

using namespace bs;
using namespace bs::test;

namespace {

Safetensors content(double value) {
  Safetensors all;
  for (const char* name : {"a", "b", "c"}) all.tensors[name] = full({3, 5}, value);
  all.metadata["step"] = std::to_string(value);
  return all;
}

/// What a writer of `path` left that was killed two minutes ago: the next one removes it.
void leave_behind(const std::string& path) {
  const std::string name = path + ".0123456789abcdef.tmp";
  write_file(name, "half");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(name, now - std::chrono::minutes(2));
}

/// Replaces what `old` writes by what `next` writes, with each fault. @return faults tried
template <class Save>
int save_with_faults(const char* name, const Save& old, const Save& next) {
  const Scratch folder;
  const std::string path = folder / "run";
  next(path);
  const std::string after = read_file(path);
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    old(path);
    const std::string before = read_file(path);
    REQUIRE(before != after);
    leave_behind(path);
    bool fails = false;
    const bool met = meets(given, fails, [&] { next(path); });
    CHECK(read_file(path) == (fails ? before : after));
    next(path);
    CHECK(read_file(path) == after);
    CHECK(folder.files() == 1);
    errors += fails;
    return met;
  });
  MESSAGE(std::string(name), ": ", tried, " faults of a save, ", errors, " errors");
  CHECK(errors >= 15);
  return tried;
}

/// A training run of some steps.
struct Run {
  nn::Linear layer{{.in = 7, .out = 5}};
  std::unique_ptr<optim::Optimizer> optimizer =
      std::make_unique<optim::AdamW>(optim::AdamW::decay_groups(layer, {}));
  Generator generator{3};

  nn::TrainingState state(int64_t step) {
    return {.model = &layer,
            .optimizer = optimizer.get(),
            .generator = &generator,
            .step = step,
            .metadata = {{"key", "value"}}};
  }
  std::string bytes() const {
    std::string all = std::to_string(optimizer->steps()) + std::to_string(generator.state().seed);
    const auto append = [&](const Tensor& t) {
      all.append(static_cast<const char*>(t.data()), t.bytes());
    };
    for (const Variable& p : layer.parameters()) append(p.data());
    for (const auto& s : optimizer->state()) append(s.tensor);
    return all;
  }
};

}  // namespace

TEST_CASE("faults: a system call of a save fails") {
  using Save = std::function<void(const std::string&)>;
  save_with_faults("safetensors",
                   Save([](const std::string& path) { save_safetensors(path, content(1)); }),
                   Save([](const std::string& path) { save_safetensors(path, content(2)); }));
  save_with_faults("npz", Save([](const std::string& path) { save_npz(path, content(1).tensors); }),
                   Save([](const std::string& path) { save_npz(path, content(2).tensors); }));
  Run run;
  save_with_faults("checkpoint",
                   Save([&](const std::string& path) { nn::save_checkpoint(path, run.state(1)); }),
                   Save([&](const std::string& path) { nn::save_checkpoint(path, run.state(2)); }));
}

TEST_CASE("faults: a system call of a load fails") {
  const Scratch folder;
  const std::string path = folder / "run";
  save_safetensors(path, content(2));
  save_npy(folder / "array", full({4}, 1));
  save_npz(folder / "arrays", content(2).tensors);
  const std::string old = read_file(path);
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    bool fails = false;
    Safetensors loaded;
    std::map<std::string, Tensor> arrays;
    const bool met = meets(given, fails, [&] {
      loaded = load_safetensors(path);
      load_npy(folder / "array");
      arrays = load_npz(folder / "arrays");
    });
    CHECK((fails || (loaded.tensors.size() == 3 && arrays.size() == 3)));
    CHECK(read_file(path) == old);
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of a load, ", errors, " errors");
  CHECK(errors >= 10);
}

TEST_CASE("faults: a system call of a resume fails") {
  const Scratch folder;
  const std::string path = folder / "run";
  Run saved, resumed;
  nn::save_checkpoint(path, saved.state(9));
  const std::string after = saved.bytes(), before = resumed.bytes();
  REQUIRE(before != after);
  nn::save_checkpoint(folder / "start", resumed.state(0));
  const nn::Checkpoint start(folder / "start");
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    start.restore(resumed.state(0));
    bool fails = false;
    const bool met = meets(given, fails, [&] { nn::Checkpoint(path).restore(resumed.state(0)); });
    CHECK(resumed.bytes() == (fails ? before : after));
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of a resume, ", errors, " errors");
  CHECK(errors >= 4);
}
