#include <bs/examples/support/history.h>
#include <bs/lib/file.h>
#include <bs/lib/json.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace bs::example {

double Metrics::at(const std::string& name) const {
  const auto found =
      std::ranges::find_if(values, [&](const auto& value) { return value.first == name; });
  if (found == values.end()) BS_THROW(IoError, "no member '{}'", name);
  return found->second;
}

namespace {

Metrics metrics_of(const Json& line) {
  Metrics metrics;
  for (const auto& [name, value] : line.object()) {
    if (name == "step") {
      metrics.step = value.integer();
    } else {  // JSON has no other word for what is not finite
      metrics.values.emplace_back(name, value.is_null() ? NAN : value.number());
    }
  }
  if (line.find("step") == nullptr) BS_THROW(IoError, "no member 'step'");
  return metrics;
}

bool is_step(const Metrics& metrics) {
  return std::ranges::any_of(metrics.values, [](const auto& v) { return v.first == "loss"; });
}

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

namespace {

/// The lock of a folder, which ends with its process however that ends.
Descriptor lock(const std::string& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) BS_THROW(IoError, "{}: {}", folder, std::strerror(errno));
  if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    BS_THROW(IoError, "{}: another run is writing there", folder);
  return descriptor;
}

std::string line_of(const Metrics& metrics) {
  Json::Object line{{"step", metrics.step}};
  for (const auto& [name, value] : metrics.values) line.emplace_back(name, value);
  return Json(std::move(line)).dump() + "\n";
}

}  // namespace

History::History(const std::string& folder, int64_t step)
    : path_(folder + "/metrics.jsonl"), lock_(lock(folder)) {
  AtomicFile whole(path_);
  if (step > 0 && std::filesystem::exists(path_)) read(step, whole);
  whole.commit();
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file_.get() < 0) BS_THROW(IoError, "{}: cannot be written: {}", path_, std::strerror(errno));
}

void History::read(int64_t last, AtomicFile& to) {
  InputFile file(path_);
  const std::string text = file.read_text(static_cast<size_t>(file.size()));
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) {  // a kill in the middle of a write
      std::fprintf(stderr, "%s:%lld: half a line is dropped\n", path_.c_str(),
                   static_cast<long long>(number));
      return;
    }
    try {
      Metrics metrics = metrics_of(Json::parse(std::string_view(text).substr(begin, end - begin)));
      if (metrics.step <= last) {
        const std::string line = line_of(metrics);
        to.write(line.data(), line.size());
        remember(std::move(metrics));
      }
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}:{}: {}; move the file away to go on without it", path_, number,
               error.what());
    }
    begin = end + 1;
  }
}

void History::Series::add(Metrics metrics) {
  // The last one is kept whatever its number, until the next.
  if (!kept_.empty() && (seen_ - 1) % every_ != 0) kept_.pop_back();
  kept_.push_back(std::move(metrics));
  if (seen_++ % every_ != 0 || kept_.size() <= most) return;
  size_t count = 0;
  for (size_t i = 0; i < kept_.size(); i += 2) std::swap(kept_[count++], kept_[i]);
  kept_.resize(count);
  every_ *= 2;
}

void History::remember(Metrics metrics) {
  (is_step(metrics) ? steps_ : evaluations_).add(std::move(metrics));
}

void History::add(const Metrics& metrics) {
  const std::string line = line_of(metrics);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) BS_THROW(IoError, "{}: writing failed: {}", path_, std::strerror(errno));
    done += static_cast<size_t>(written);
  }
  remember(metrics);
}

namespace {

/// Moves what a run has left in `folder` into a new folder of it.
void set_aside(const std::filesystem::path& folder) {
  constexpr const char* names[] = {"checkpoint.safetensors", "metrics.jsonl"};
  const auto is_there = [&](const char* name) { return std::filesystem::exists(folder / name); };
  if (std::ranges::none_of(names, is_there)) return;
  std::filesystem::path to;
  for (int i = 1; to.empty() || std::filesystem::exists(to); ++i)
    to = folder / ("previous-" + std::to_string(i));
  std::filesystem::create_directory(to);
  for (const char* name : names)
    if (is_there(name)) std::filesystem::rename(folder / name, to / name);
  std::fprintf(stderr, "the run that was in %s is now in %s\n", folder.c_str(), to.c_str());
}

}  // namespace

History open_history(const std::string& folder, int64_t step, bool goes_on) try {
  std::filesystem::create_directories(folder);
  if (!goes_on) {
    const Descriptor held = lock(folder);
    set_aside(folder);
  }
  return {folder, goes_on ? step : 0};
} catch (const std::filesystem::filesystem_error& error) {
  BS_THROW(IoError, "--out {}: {}", folder, error.code().message());
}

}  // namespace bs::example
