// replay NAME FOLDER COUNT [SEED]: gives a harness the files of a folder, then COUNT inputs made of
// them by chance, the same each time. Needs no fuzzer, and so runs with every compiler. An input
// that ends the harness is written to NAME.failed.
#include <bs/tests/fuzz/harness.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <vector>

namespace {

using bs::fuzz::Harness;

std::vector<std::string> seeds_of(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

/// Inputs made of seeds; number i depends on i alone.
class Inputs {
 public:
  Inputs(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), seed_(seed) {}

  std::string at(size_t i) const {
    if (i < seeds_.size()) return seeds_[i];
    std::mt19937_64 random(seed_ + i);
    std::string text = seeds_[random() % seeds_.size()];
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) change(text, random);
    return text;
  }
  size_t seeds() const { return seeds_.size(); }

 private:
  void change(std::string& text, std::mt19937_64& random) const {
    constexpr const char* words[] = {"-1",
                                     "0",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "\n",
                                     "\"",
                                     "}",
                                     "[[[[[[[[",
                                     "nan",
                                     "1e999",
                                     ",",
                                     "\\ud800",
                                     "../"};
    const size_t at = text.empty() ? 0 : random() % (text.size() + 1);
    const size_t length = text.empty() ? 0 : random() % std::min<size_t>(16, text.size());
    switch (random() % 7) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        return;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random());
        return;
      case 2:
        text.erase(at, length);
        return;
      case 3:
        text.insert(at, text.substr(at, length));
        return;
      case 4:
        text.insert(at, words[random() % std::size(words)]);
        return;
      case 5: {
        const std::string& other = seeds_[random() % seeds_.size()];
        const size_t from = other.empty() ? 0 : random() % other.size();
        text = text.substr(0, at) + other.substr(from);
        return;
      }
      default: {  // a number of eight bytes that is at an end of its range
        const uint64_t value = (uint64_t{1} << random() % 64) - random() % 3;
        for (size_t b = 0; b < 8 && at + b < text.size(); ++b)
          text[at + b] = static_cast<char>(value >> (8 * b));
      }
    }
  }
  std::vector<std::string> seeds_;
  uint64_t seed_;
};

/// Runs inputs from `at` on in a process of its own, which may die; both see how far it is.
bool survives(const Harness& harness, const Inputs& inputs, size_t count, std::atomic<size_t>& at,
              bool silent) {
  const pid_t child = ::fork();
  if (child == 0) {
    // What a program prints for --help, say, is of no interest here.
    if (!std::freopen("/dev/null", "w", stdout)) std::abort();
    if (silent && !std::freopen("/dev/null", "w", stderr)) std::abort();
    for (; at < count; ++at) harness.run(inputs.at(at));
    std::exit(0);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Harness* harness = bs::fuzz::harnesses();
  while (harness && (argc < 4 || std::string(harness->name) != argv[1])) harness = harness->next;
  if (!harness) {
    std::fputs("usage: replay NAME FOLDER COUNT [SEED]; names:", stderr);
    for (harness = bs::fuzz::harnesses(); harness; harness = harness->next)
      std::fprintf(stderr, " %s", harness->name);
    std::fputs("\n", stderr);
    return 2;
  }
  const Inputs inputs(seeds_of(argv[2]), argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
  bs::fuzz::require(inputs.seeds() > 0, "seeds are there");
  const size_t count = inputs.seeds() + std::strtoull(argv[3], nullptr, 10);
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  bs::fuzz::require(shared != MAP_FAILED, "shared memory");
  auto& at = *new (shared) std::atomic<size_t>(0);
  if (survives(*harness, inputs, count, at, true)) {
    std::printf("%s: %zu inputs\n", harness->name, count);
    return 0;
  }
  const size_t bad = at;
  survives(*harness, inputs, bad + 1, at, false);  // once more, to hear why
  const std::string path = std::string(harness->name) + ".failed";
  std::ofstream(path, std::ios::binary) << inputs.at(bad);
  std::fprintf(stderr, "%s: input %zu of %zu failed; it is in %s\n", harness->name, bad, count,
               path.c_str());
  return 1;
}
