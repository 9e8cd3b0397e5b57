#include <bs/tests/faults/system_call_faults.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace bs::test {

Fault fault;

std::span<const FaultyCall> faulty_calls() {
  static const FaultyCall calls[] = {{Call::open, "open", {EACCES, ENOSPC, EMFILE}},
                                     {Call::write, "write", {0, EINTR, ENOSPC, EIO}},
                                     {Call::read, "read", {0, EINTR, EIO}},
                                     {Call::fsync, "fsync", {EIO, ENOSPC}},
                                     {Call::close, "close", {EIO}},
                                     {Call::rename, "rename", {EACCES, ENOSPC}},
                                     {Call::flock, "flock", {ENOLCK}},
                                     {Call::fstat, "fstat", {EIO}},
                                     {Call::lseek, "lseek", {EIO}},
                                     {Call::unlink, "unlink", {EACCES, EIO}},
                                     {Call::opendir, "opendir", {EACCES, EMFILE}}};
  return calls;
}

}  // namespace bs::test

namespace {

using bs::test::Call;
using bs::test::fault;

bool goes_wrong(Call call) {
  if (call != fault.call || fault.seen++ != fault.number) return false;
  errno = fault.reason;
  return true;
}

}  // namespace

extern "C" {
int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int file, const void* data, size_t bytes);
ssize_t __real_read(int file, void* data, size_t bytes);
int __real_fsync(int file);
int __real_close(int file);
int __real_rename(const char* from, const char* to);
int __real_flock(int file, int operation);
int __real_fstat(int file, struct stat* facts);
off_t __real_lseek(int file, off_t to, int from);
int __real_unlink(const char* path);
DIR* __real_opendir(const char* path);

int __wrap_open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return goes_wrong(Call::open) ? -1 : __real_open(path, flags, mode);
}
ssize_t __wrap_write(int file, const void* data, size_t bytes) {
  if (!goes_wrong(Call::write)) return __real_write(file, data, bytes);
  return fault.reason == 0 ? __real_write(file, data, (bytes + 1) / 2) : -1;
}
ssize_t __wrap_read(int file, void* data, size_t bytes) {
  if (!goes_wrong(Call::read)) return __real_read(file, data, bytes);
  return fault.reason == 0 ? __real_read(file, data, (bytes + 1) / 2) : -1;
}
int __wrap_fsync(int file) { return goes_wrong(Call::fsync) ? -1 : __real_fsync(file); }
int __wrap_close(int file) {
  const bool wrong = goes_wrong(Call::close);
  const int status = __real_close(file);
  return wrong ? -1 : status;
}
int __wrap_rename(const char* from, const char* to) {
  return goes_wrong(Call::rename) ? -1 : __real_rename(from, to);
}
int __wrap_flock(int file, int operation) {
  return goes_wrong(Call::flock) ? -1 : __real_flock(file, operation);
}
int __wrap_fstat(int file, struct stat* facts) {
  return goes_wrong(Call::fstat) ? -1 : __real_fstat(file, facts);
}
off_t __wrap_lseek(int file, off_t to, int from) {
  return goes_wrong(Call::lseek) ? -1 : __real_lseek(file, to, from);
}
int __wrap_unlink(const char* path) { return goes_wrong(Call::unlink) ? -1 : __real_unlink(path); }
DIR* __wrap_opendir(const char* path) {
  return goes_wrong(Call::opendir) ? nullptr : __real_opendir(path);
}
}
