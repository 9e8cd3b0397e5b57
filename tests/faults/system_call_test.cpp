// Every system call of a save fails in turn, in each way that it can. The linker puts the functions
// here in the place of libc's (--wrap). After each the path names the old file, whole, and an error
// has come, or the new one, whole; nothing else is left, and the next save works.
#include <bs/kernels/fill.h>
#include <bs/lib/file.h>
#include <bs/lib/npy.h>
#include <bs/lib/safetensors.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

enum class Call { none, open, write, fsync, close, rename, flock, fstat, read };

/// What is to go wrong: the call of this number, with `reason`, or for 0 by doing half its work.
struct Fault {
  Call call = Call::none;
  int number = 0;
  int reason = 0;
  int seen = 0;  ///< calls of this kind so far
} fault;

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
}

namespace {

struct Kind {
  Call call;
  const char* name;
  std::vector<int> reasons;
};
const Kind kinds[] = {{Call::open, "open", {EACCES, ENOSPC, EMFILE}},
                      {Call::write, "write", {0, EINTR, ENOSPC, EIO}},
                      {Call::read, "read", {0, EINTR, EIO}},
                      {Call::fsync, "fsync", {EIO, ENOSPC}},
                      {Call::close, "close", {EIO}},
                      {Call::rename, "rename", {EACCES, ENOSPC}},
                      {Call::flock, "flock", {ENOLCK}},
                      {Call::fstat, "fstat", {EIO}}};

/// Calls `attempt` once for each fault that its work meets. @return how many these are
template <class Attempt>
int for_faults(Attempt&& attempt) {
  int tried = 0;
  for (const Kind& kind : kinds)
    for (const int reason : kind.reasons)
      for (int number = 0;; ++number) {
        CAPTURE(kind.name);
        CAPTURE(reason);
        CAPTURE(number);
        if (!attempt(Fault{kind.call, number, reason})) break;
        ++tried;
      }
  return tried;
}

/// Does `work` with a fault. @return whether it met it
template <class Work>
bool meets(const Fault& given, bool& fails, Work&& work) {
  fault = given;
  fails = false;
  try {
    work();
  } catch (const IoError&) {
    fails = true;
  }
  const bool met = fault.seen > fault.number;
  fault = {};
  return met;
}

Safetensors content(double value) {
  Safetensors all;
  for (const char* name : {"a", "b", "c"}) all.tensors[name] = full({3, 5}, value);
  all.metadata["step"] = std::to_string(value);
  return all;
}

}  // namespace

TEST_CASE("faults: a system call of a save fails") {
  const Scratch folder;
  const std::string path = folder / "run";
  save_safetensors(path, content(2));
  const std::string next = read_file(path);
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    save_safetensors(path, content(1));
    const std::string old = read_file(path);
    bool fails = false;
    const bool met = meets(given, fails, [&] { save_safetensors(path, content(2)); });
    CHECK(read_file(path) == (fails ? old : next));
    CHECK(folder.files() == 1);
    save_safetensors(path, content(2));
    CHECK(read_file(path) == next);
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of a save, ", errors, " errors");
  CHECK(errors >= 15);
}

TEST_CASE("faults: a system call of a load fails") {
  const Scratch folder;
  const std::string path = folder / "run";
  save_safetensors(path, content(2));
  save_npy(folder / "array", full({4}, 1));
  const std::string old = read_file(path);
  int errors = 0;
  const int tried = for_faults([&](const Fault& given) {
    bool fails = false;
    Safetensors loaded;
    const bool met = meets(given, fails, [&] {
      loaded = load_safetensors(path);
      load_npy(folder / "array");
    });
    CHECK((fails || loaded.tensors.size() == 3));
    CHECK(read_file(path) == old);
    errors += fails;
    return met;
  });
  MESSAGE(tried, " faults of a load, ", errors, " errors");
  CHECK(errors >= 5);
}
