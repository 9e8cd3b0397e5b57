#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/file.h>
#include <bs/lib/json.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

namespace bs::cuda::jit {

void record(const Source& source, int capability) {
  const char* const path = std::getenv("BS_JIT_RECORD");
  if (!path || !*path) return;
  const Json line(
      Json::Object{{"name", source.name}, {"capability", capability}, {"code", source.code}});
  const std::string text = line.dump() + "\n";
  // One write at the end of the file: lines of several processes do not mix.
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const ssize_t written = file < 0 ? -1 : ::write(file, text.data(), text.size());
  const int reason = errno;
  if (file >= 0) ::close(file);
  if (written != static_cast<ssize_t>(text.size()))
    BS_THROW(IoError, "BS_JIT_RECORD: {}: {}", path, std::strerror(reason));
}

std::vector<Recorded> read_recorded(const std::string& path, std::span<const Header> headers) {
  InputFile file(path);
  const std::string text = file.read_text(static_cast<size_t>(file.size()));
  std::vector<Recorded> all;
  std::set<std::string_view> seen;
  int number = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    ++number;
    if (!seen.insert(line).second) continue;
    try {
      const Json json = Json::parse(line);
      const Json *name = json.find("name"), *capability = json.find("capability"),
                 *code = json.find("code");
      if (!name || !capability || !code) BS_THROW(IoError, "name, capability or code is missing");
      // It becomes a file's name.
      if (!is_kernel_name(name->string()))
        BS_THROW(IoError, "{} is no name of a kernel", name->string());
      all.push_back({.source = {name->string(), code->string(), headers},
                     .capability = static_cast<int>(capability->integer())});
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}: line {} is no recorded kernel: {}", path, number, error.what());
    }
  }
  return all;
}

}  // namespace bs::cuda::jit
