#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/file.h>
#include <bs/lib/sha256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace bs::cuda::jit {

namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string read_whole(const std::string& path) {
  constexpr int64_t most = 64 << 20;  // a sparse file can claim any size
  InputFile file(path);
  if (file.size() > most) BS_THROW(IoError, "{}: {} bytes are no kernel's", path, file.size());
  return file.read_text(static_cast<size_t>(file.size()));
}

/// No wait for the disk: what a crash leaves half written fails its checksum and is made anew.
void write_whole(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file && std::fclose(file) == 0;
  if (!written || !closed) BS_THROW(IoError, "{}: {}", path, std::strerror(errno));
}

/// Tells once a process what a cache that cannot be used costs.
void warn(const std::string& reason) {
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  std::fprintf(stderr,
               "bs: compiled kernels are not kept, and every run compiles them again: %s. "
               "Set BS_CACHE_DIR to a folder that can be written.\n",
               reason.c_str());
}

/// Whether only this user, or the system's administrator, can have written what is there: machine
/// code of anybody else's is not run.
bool is_trusted(const std::string& path, mode_t kind = S_IFDIR) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || (facts.st_mode & S_IFMT) != kind) return false;
  const bool ours = facts.st_uid == ::geteuid() || facts.st_uid == 0;
  return ours && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Whether the cache's folder is there, and trusted.
bool has_trusted_root(const std::string& root) {
  std::error_code error;
  const fs::path real = fs::canonical(root, error);
  return !error && is_trusted(real);
}

/// Makes the cache's folder, for this user alone. @throws IoError where it cannot be trusted
void make_root(const std::string& root) {
  const fs::path above = fs::path(root).parent_path();
  std::error_code error;
  if (!above.empty()) fs::create_directories(above, error);
  if (error) BS_THROW(IoError, "{}: {}", root, error.message());
  if (::mkdir(root.c_str(), 0700) != 0 && errno != EEXIST)
    BS_THROW(IoError, "{}: {}", root, std::strerror(errno));
  if (!is_trusted(fs::canonical(root)))
    BS_THROW(IoError, "{}: others can write there (chmod go-w makes it yours alone)", root);
}

constexpr const char* unfinished = "new-";

/// Removes what killed writers left, once a process.
void remove_leftovers(const std::string& root) {
  static std::atomic<bool> done = false;
  if (done.exchange(true)) return;
  constexpr auto a_while = std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (!at->path().filename().string().starts_with(unfinished)) continue;
    const auto changed = at->last_write_time(ignored);
    if (!ignored && fs::file_time_type::clock::now() - changed > a_while)
      fs::remove_all(at->path(), ignored);
  }
}

/// What kernel.txt holds: the identity, then facts of the machine code.
std::string description(const std::string& identity, const Binary& binary) {
  const Resources& r = binary.resources;
  return format("{}cubin {} {}\nresources {} {} {} {}\n{}\n", identity, binary.image.size(),
                sha256(binary.image), r.registers, r.local_bytes, r.spill_bytes, r.shared_bytes,
                binary.log);
}

/// The four numbers after "resources ".
bool read_resources(std::string_view text, Resources& r) {
  const std::string_view word = "resources ";
  if (text.substr(0, word.size()) != word) return false;
  const char* at = text.data() + word.size();
  const char* const end = text.data() + text.size();
  for (int* number : {&r.registers, &r.local_bytes, &r.spill_bytes, &r.shared_bytes}) {
    const auto [after, error] = std::from_chars(at, end, *number);
    if (error != std::errc() || after == end) return false;
    at = after + 1;
  }
  return true;
}

/// Reads an entry; nothing where any part of it is not what it should be.
std::optional<Binary> read_entry(const std::string& folder, const Source& source,
                                 const std::string& identity) {
  const std::string text = read_whole(folder + "/kernel.txt");
  if (std::string_view(text).substr(0, identity.size()) != identity) return {};
  if (read_whole(folder + "/kernel.cu") != source.code) return {};
  Binary binary;
  binary.image = read_whole(folder + "/kernel.cubin");
  std::string_view rest = std::string_view(text).substr(identity.size());
  const std::string cubin = format("cubin {} {}\n", binary.image.size(), sha256(binary.image));
  if (rest.substr(0, cubin.size()) != cubin) return {};
  rest.remove_prefix(cubin.size());
  if (!read_resources(rest, binary.resources)) return {};
  binary.log = rest.substr(std::min(rest.size(), rest.find('\n') + 1));
  if (!binary.log.empty()) binary.log.pop_back();
  // Cut short anywhere, or changed: then writing it again would give another text.
  if (description(identity, binary) != text) return {};
  return binary;
}

/// Puts a complete folder in its place. Another process may have been faster; a damaged entry that
/// stands there goes.
void move_into_place(const std::string& made, const std::string& place, bool replace) {
  std::error_code error;
  if (replace) {
    const std::string away = made + ".old";
    fs::rename(place, away, error);
    fs::remove_all(away, error);
  }
  fs::rename(made, place, error);
  if (error && !fs::exists(place)) BS_THROW(IoError, "{}: {}", place, error.message());
}

}  // namespace

std::vector<const Header*> included(const Source& source) {
  std::vector<const Header*> found;
  const auto scan = [&](std::string_view text) {
    constexpr std::string_view word = "#include";
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const size_t first = text.find_first_of("<\"\n", at + word.size());
      if (first == std::string_view::npos || text[first] == '\n') continue;
      const size_t last = text.find_first_of(">\"\n", first + 1);
      if (last == std::string_view::npos) continue;
      const std::string_view name = text.substr(first + 1, last - first - 1);
      const auto header = std::find_if(source.headers.begin(), source.headers.end(),
                                       [&](const Header& h) { return h.name == name; });
      if (header == source.headers.end()) continue;  // NVRTC says so, if it comes to that
      if (std::find(found.begin(), found.end(), &*header) == found.end()) found.push_back(&*header);
    }
  };
  scan(source.code);
  for (size_t i = 0; i < found.size(); ++i) scan(found[i]->text);  // found grows meanwhile
  return found;
}

bool is_kernel_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), fits);
}

std::string file_stem(const Source& source, const std::string& identity) {
  return source.name + "-" + sha256(identity + source.code).substr(0, 32);
}

std::string cache_folder() {
  if (std::string own = environment("BS_CACHE_DIR"); !own.empty()) {
    while (own.size() > 1 && own.back() == '/') own.pop_back();  // the folder above has no slash
    return own;
  }
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/bs";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/bs";
  return "";
}

std::optional<Binary> load_cached(const Source& source, const std::string& identity) {
  const std::string root = cache_folder();
  const std::string folder = root + "/" + file_stem(source, identity);
  if (root.empty() || ::access(folder.c_str(), F_OK) != 0) return {};
  if (!has_trusted_root(root) || !is_trusted(folder)) return {};
  try {
    return read_entry(folder, source, identity);
  } catch (const IoError&) {
    return {};  // a part is missing, or another process replaces the entry just now
  }
}

void store_cached(const Source& source, const std::string& identity, const Binary& binary) {
  const std::string root = cache_folder();
  if (root.empty()) return warn("none of BS_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  const std::string place = root + "/" + file_stem(source, identity);
  std::string made = root + "/" + unfinished + "XXXXXX";
  try {
    make_root(root);
    remove_leftovers(root);
    if (!::mkdtemp(made.data())) BS_THROW(IoError, "{}: {}", root, std::strerror(errno));
    // mkdtemp keeps others out; they may read an entry of a folder that they may read.
    struct stat facts {};
    if (::stat(root.c_str(), &facts) == 0) ::chmod(made.c_str(), facts.st_mode & 0755);
    write_whole(made + "/kernel.cu", source.code);
    write_whole(made + "/kernel.cubin", binary.image);
    write_whole(made + "/kernel.txt", description(identity, binary));
    const bool damaged = fs::exists(place) && !load_cached(source, identity);
    move_into_place(made, place, damaged);
  } catch (const std::exception& error) {
    warn(error.what());
  }
  std::error_code ignored;
  fs::remove_all(made, ignored);
}

std::optional<std::string> load_text(const std::string& name) {
  const std::string root = cache_folder(), path = root + "/" + name;
  if (root.empty() || !has_trusted_root(root) || !is_trusted(path, S_IFREG)) return {};
  try {
    return read_whole(path);
  } catch (const IoError&) {
    return {};
  }
}

void store_text(const std::string& name, std::string_view text) {
  const std::string root = cache_folder();
  if (root.empty()) return;
  std::string made;
  try {
    make_root(root);
    made = root + "/" + unfinished + "XXXXXX";
    const int descriptor = ::mkstemp(made.data());  // of mode 0600
    if (descriptor < 0) return;
    ::close(descriptor);
    write_whole(made, text);
    struct stat facts {};
    if (::stat(root.c_str(), &facts) == 0) ::chmod(made.c_str(), facts.st_mode & 0644);
    fs::rename(made, root + "/" + name);
  } catch (const std::exception&) {
    std::error_code ignored;
    if (!made.empty()) fs::remove(made, ignored);
  }
}

void dump(const Source& source, const std::string& identity, const Binary& binary,
          std::string_view origin) {
  const std::string folder = environment("BS_JIT_DUMP");
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) BS_THROW(IoError, "BS_JIT_DUMP: {}: {}", folder, error.message());
  const std::string stem = folder + "/" + file_stem(source, identity);
  write_whole(stem + ".cu", source.code);
  write_whole(stem + ".cubin", binary.image);
  const Resources& r = binary.resources;
  std::fprintf(stderr,
               "bs jit: %s: %d registers, %d bytes spilled, %d bytes local, %d bytes shared, %s\n",
               stem.c_str(), r.registers, r.spill_bytes, r.local_bytes, r.shared_bytes,
               std::string(origin).c_str());
}

}  // namespace bs::cuda::jit
