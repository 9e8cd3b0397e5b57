#include <bs/lib/file.h>

#include <bs/lib/check.h>
#include <bs/lib/host_view.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace bs {

namespace {

[[noreturn]] void fail(const char* action, const std::string& path) {
  BS_THROW(IoError, "{}: {}: {}", path, action, std::strerror(errno));
}

/// Makes a rename last: the folder's entry must reach the disk too.
void synchronize_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;  // some file systems do not let folders be opened: nothing to wait for
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> count = 0;
  temporary_ = format("{}.{}-{}.tmp", path_, ::getpid(), count++);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot be written", path_);
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
  if (::fsync(descriptor_) != 0) fail("writing failed", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0 ||
      std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("cannot be replaced", path_);
  }
  synchronize_folder(path_);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail("cannot be read", path_);
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    BS_THROW(IoError, "{}: is no regular file", path_);
  }
  size_ = facts.st_size;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* data, size_t bytes) {
  if (static_cast<int64_t>(bytes) > left())
    BS_THROW(IoError, "{}: truncated: {} bytes wanted at {}, the file has {}", path_, bytes,
             position_, size_);
  auto* to = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(descriptor_, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("reading failed", path_);
    if (got == 0) BS_THROW(IoError, "{}: shrank while it was read", path_);
    to += got;
    position_ += got;
    bytes -= static_cast<size_t>(got);
  }
}

std::string InputFile::read_text(size_t bytes) {
  if (static_cast<int64_t>(bytes) > left())  // before memory is had for a size a file made up
    BS_THROW(IoError, "{}: truncated: {} bytes wanted at {}, the file has {}", path_, bytes,
             position_, size_);
  std::string text(bytes, '\0');
  read(text.data(), bytes);
  return text;
}

void write_values(AtomicFile& file, const Tensor& tensor) {
  const Tensor host = host_copy(tensor);
  if (host.numel() > 0) file.write(host.data(), host.bytes());
}

void read_values(InputFile& file, const Tensor& host) {
  if (host.numel() == 0) return;
  file.read(host.data(), host.bytes());
  if (host.dtype() != boolean) return;
  const auto* bytes = static_cast<const uint8_t*>(host.data());  // not yet known to be booleans
  if (std::any_of(bytes, bytes + host.numel(), [](uint8_t b) { return b > 1; }))
    BS_THROW(IoError, "{}: a boolean is neither 0 nor 1", file.path());
}

}  // namespace bs
