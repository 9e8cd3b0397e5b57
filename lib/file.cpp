#include <bs/lib/file.h>

#include <bs/lib/check.h>
#include <bs/lib/host_view.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>

namespace bs {

namespace {

[[noreturn]] void fail(const char* action, const std::string& path) {
  BS_THROW(IoError, "{}: {}: {}", path, action, std::strerror(errno));
}

/// The folder of a file, with a slash behind it.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

/// Makes a rename last: the folder's entry must reach the disk too.
void synchronize(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;  // some file systems do not let folders be opened: nothing to wait for
  ::fsync(descriptor);
  ::close(descriptor);
}

constexpr size_t name_digits = 16;
constexpr std::string_view ending = ".tmp";
constexpr size_t suffix_bytes = 1 + name_digits + ending.size();

/// The front of a temporary file's name: of a long name less, since the suffix must fit, too.
std::string base_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  size_t most = NAME_MAX - suffix_bytes;
  if (name.size() <= most) return name;
  const auto inside = [&] { return (static_cast<unsigned char>(name[most]) & 0xc0) == 0x80; };
  while (most > 0 && inside()) --most;  // some file systems take no half of a character
  return name.substr(0, most);
}

/// What a path leads to: where it names a link, the file that the link names, also if that is not
/// there. The kernel follows as many links.
std::string behind_links(std::string path) {
  constexpr int most_links = 40;
  for (int i = 0; i < most_links; ++i) {
    std::string to(PATH_MAX, '\0');
    const ssize_t length = ::readlink(path.c_str(), to.data(), to.size());
    if (length <= 0) break;
    to.resize(static_cast<size_t>(length));
    path = to.front() == '/' ? to : folder_of(path).append(to);
  }
  return path;
}

/// What a temporary file has behind the name of the final one. A process id would not do: they
/// repeat, in containers from the first one on.
std::string random_suffix() {
  static std::random_device entropy;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const uint64_t bits = uint64_t{entropy()} << 32 | entropy();
  char digits[name_digits] = {};
  for (size_t i = 0; i < name_digits; ++i) digits[i] = "0123456789abcdef"[bits >> (4 * i) & 15];
  return "." + std::string(digits, name_digits) + std::string(ending);
}

/// Whether `name` is `base` with a suffix of ours.
bool is_temporary(std::string_view name, std::string_view base) {
  if (name.size() != base.size() + suffix_bytes) return false;
  if (!name.starts_with(base) || name[base.size()] != '.' || !name.ends_with(ending)) return false;
  return name.substr(base.size() + 1, name_digits).find_first_not_of("0123456789abcdef") ==
         std::string_view::npos;
}

/// Whether a temporary file is a minute old and its writer is gone.
bool is_left_over(int descriptor) {
  constexpr time_t a_while = 60;  // seconds: a writer that has just begun holds no lock yet
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  if (::time(nullptr) - facts.st_mtime < a_while) return false;
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
}

/// Removes what killed writers of this path left. What cannot be removed stays: nothing needs it.
void remove_leftovers(const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string base = base_of(path);
  // std::filesystem ends the process when it finds no memory to look into a folder.
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    if (!is_temporary(entry->d_name, base)) continue;
    const std::string name = folder + entry->d_name;
    const int descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    if (is_left_over(descriptor)) ::unlink(name.c_str());
    ::close(descriptor);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat found {};
  const bool is_there = ::stat(path_.c_str(), &found) == 0;
  // Also where the system follows no link that somebody else left in a folder for all.
  if (!is_there && errno != ENOENT) fail("cannot be written", path_);
  // What is renamed over a device, a pipe or a socket takes its place for everyone.
  if (is_there && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
    BS_THROW(IoError, "{}: is no regular file", path_);
  target_ = behind_links(path_);
  remove_leftovers(target_);
  const std::string front = folder_of(target_) + base_of(target_);
  constexpr int attempts = 100;  // of which one would do: names are 64 random bits
  for (int i = 0; i < attempts && descriptor_ < 0; ++i) {
    temporary_ = front + random_suffix();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("cannot be written", path_);
  ::flock(descriptor_, LOCK_EX | LOCK_NB);  // says that it is in use, where locks are to be had
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing failed", path_);
    from += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  const std::string folder = folder_of(target_);  // needs memory: behind the rename it is too late
  if (::fsync(descriptor_) != 0) fail("writing failed", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0 ||
      std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("cannot be replaced", path_);
  }
  synchronize(folder);
}

void Input::check_left(size_t bytes) const {
  if (static_cast<uint64_t>(left()) < bytes)
    BS_THROW(IoError, "{}: truncated: {} bytes wanted at {}, the file has {}", path_, bytes,
             position_, size_);
}

void Input::read(void* data, size_t bytes) {
  check_left(bytes);
  fetch(data, bytes);
  position_ += static_cast<int64_t>(bytes);
}

std::string Input::read_text(size_t bytes) {
  check_left(bytes);  // before memory is had for a size a file made up
  std::string text(bytes, '\0');
  read(text.data(), bytes);
  return text;
}

InputFile::InputFile(std::string name) : Input(std::move(name)) {
  // Without O_NONBLOCK a named pipe would keep us here until somebody writes to it.
  descriptor_ = ::open(path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) fail("cannot be read", path());
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    BS_THROW(IoError, "{}: is no regular file", path());
  }
  set_size(facts.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::seek(int64_t to) {
  if (to < 0 || to > size())
    BS_THROW(IoError, "{}: truncated: wanted from byte {}, the file has {}", path(), to, size());
  if (::lseek(descriptor_, to, SEEK_SET) != to) fail("reading failed", path());
  set_position(to);
}

std::shared_ptr<std::byte> InputFile::map() const {
  const auto bytes = static_cast<size_t>(size());
  void* start =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  if (start == MAP_FAILED) fail("cannot be mapped", path());
  return {static_cast<std::byte*>(start), [bytes](std::byte* p) { ::munmap(p, bytes); }};
}

void InputFile::fetch(void* data, size_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(descriptor_, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("reading failed", path());
    if (got == 0) BS_THROW(IoError, "{}: shrank while it was read", path());
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

void InputMemory::fetch(void* data, size_t bytes) {
  if (bytes > 0) std::memcpy(data, bytes_.data() + position(), bytes);
}

std::optional<int64_t> tensor_bytes(const Shape& shape, size_t element) {
  auto bytes = static_cast<int64_t>(element);
  bool empty = false;
  for (const int64_t extent : shape) {
    empty = empty || extent == 0;
    const int64_t at_most = std::numeric_limits<int64_t>::max() / 16;  // as a tensor has it
    if (bytes > at_most / std::max<int64_t>(extent, 1)) return {};
    bytes *= std::max<int64_t>(extent, 1);
  }
  return empty ? 0 : bytes;
}

void write_values(AtomicFile& file, const Tensor& tensor) {
  const Tensor host = host_copy(tensor);
  if (host.numel() > 0) file.write(host.data(), host.bytes());
}

void read_values(Input& file, const Tensor& host) {
  if (host.numel() == 0) return;
  file.read(host.data(), host.bytes());
  if (host.dtype() != boolean) return;
  const auto* bytes = static_cast<const uint8_t*>(host.data());  // not yet known to be booleans
  if (std::any_of(bytes, bytes + host.numel(), [](uint8_t b) { return b > 1; }))
    BS_THROW(IoError, "{}: a boolean is neither 0 nor 1", file.path());
}

}  // namespace bs
