// Whose entries of the cache of compiled kernels are used, and what killed writers leave in it.
#include <bs/lib/check.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

using namespace bs;
using namespace bs::cuda;
using test::Environment;
namespace fs = std::filesystem;

namespace {

const std::string identity = "kernel 1\n";
const jit::Source source{.name = "k", .code = "code\n", .headers = {}};
const jit::Binary binary{.image = "machine code", .resources = {.registers = 3}, .log = ""};

void give(const std::string& path, uid_t to) {
  REQUIRE(::lchown(path.c_str(), to, static_cast<gid_t>(-1)) == 0);
}

}  // namespace

TEST_CASE("jit cache: what another user owns is neither used nor added to") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give files away");
    return;
  }
  constexpr uid_t somebody = 54321;
  const test::Scratch scratch;
  const std::string cache = scratch / "cache";
  const Environment environment("BS_CACHE_DIR", cache);
  jit::store_cached(source, identity, binary);
  jit::store_text("numbers", "1 2 3");
  const std::string entry = cache + "/" + jit::file_stem(source, identity);
  REQUIRE(jit::load_cached(source, identity));
  REQUIRE(jit::load_text("numbers"));

  give(entry, somebody);
  CHECK_FALSE(jit::load_cached(source, identity));
  give(entry, 0);
  give(cache + "/numbers", somebody);
  CHECK_FALSE(jit::load_text("numbers"));
  give(cache + "/numbers", 0);
  CHECK(jit::load_cached(source, identity));
  CHECK(jit::load_text("numbers"));

  give(cache, somebody);
  CHECK_FALSE(jit::load_cached(source, identity));
  CHECK_FALSE(jit::load_text("numbers"));
  const auto files = [&] { return std::distance(fs::directory_iterator(cache), {}); };
  const auto before = files();
  const jit::Source other{.name = "other", .code = "code\n", .headers = {}};
  jit::store_cached(other, identity, binary);
  jit::store_text("more", "4");
  CHECK(files() == before);
}

TEST_CASE("jit cache: where it is") {
  const test::Scratch scratch;
  Environment environment("BS_CACHE_DIR", "/a");
  CHECK(jit::cache_folder() == "/a");
  environment.set("BS_CACHE_DIR", "/a/b//");
  CHECK(jit::cache_folder() == "/a/b");
  environment.set("BS_CACHE_DIR", "/");
  CHECK(jit::cache_folder() == "/");
  environment.set("BS_CACHE_DIR", "");
  environment.set("XDG_CACHE_HOME", "/b");
  CHECK(jit::cache_folder() == "/b/bs");
  environment.set("XDG_CACHE_HOME", "");
  environment.set("HOME", "/c");
  CHECK(jit::cache_folder() == "/c/.cache/bs");
  environment.set("HOME", "");
  CHECK(jit::cache_folder().empty());
}

TEST_CASE("jit cache: its folder is this user's alone, whatever the mask of modes") {
  const test::Scratch scratch;
  const mode_t mask = ::umask(002);
  for (const char* const name : {"plain", "slash/", "above/slashes//"}) {
    CAPTURE(name);
    const std::string cache = scratch / name;
    const Environment environment("BS_CACHE_DIR", cache);
    jit::store_text("numbers", "1 2 3");
    CHECK((fs::status(cache).permissions() & fs::perms::all) == fs::perms::owner_all);
    CHECK(jit::load_text("numbers") == "1 2 3");
  }
  ::umask(mask);
}

TEST_CASE("jit cache: an error names the folder that takes no dumps") {
  const test::Scratch scratch;
  test::write_file(scratch / "file", "");
  const std::string folder = scratch / "file/dump";
  const Environment environment("BS_JIT_DUMP", folder);
  CHECK_THROWS_WITH_AS(jit::dump(source, identity, binary, "made"),
                       ("BS_JIT_DUMP: " + folder + ": Not a directory").c_str(), IoError);
}

// Run by the test below in a process of its own: a process sweeps once.
TEST_CASE("jit cache worker" * doctest::skip()) { jit::store_cached(source, identity, binary); }

TEST_CASE("jit cache: what killed writers left goes once it is old, and nothing else") {
  const test::Scratch scratch;
  const std::string cache = scratch / "cache";
  const Environment environment("BS_CACHE_DIR", cache);
  jit::store_text("numbers", "1 2 3");  // makes the folder
  const auto make = [&](const std::string& name, std::chrono::hours age) {
    const std::string folder = cache + "/" + name;
    fs::create_directories(folder);
    test::write_file(folder + "/kernel.cu", "half a ker");
    fs::last_write_time(folder, fs::file_time_type::clock::now() - age);
  };
  using std::chrono::hours;
  make("new-old", hours(2));
  make("new-old.old", hours(2));  // an entry on its way out
  make("new-fresh", hours(0));    // of a writer that is at work
  make("other-kernel", hours(1000));
  test::write_file(cache + "/new-file", "half a text");
  fs::last_write_time(cache + "/new-file", fs::file_time_type::clock::now() - hours(2));
  fs::create_directory_symlink(cache + "/other-kernel", cache + "/new-link");
  const std::string worker = fs::read_symlink("/proc/self/exe").string() +
                             " --no-skip -tc='jit cache worker' >" + (scratch / "out") + " 2>&1";
  CHECK(std::system(worker.c_str()) == 0);
  CHECK_FALSE(fs::exists(cache + "/new-old"));
  CHECK_FALSE(fs::exists(cache + "/new-old.old"));
  CHECK_FALSE(fs::exists(cache + "/new-file"));
  CHECK(fs::exists(cache + "/new-fresh"));
  CHECK(fs::exists(cache + "/other-kernel/kernel.cu"));  // a link leads nowhere
  CHECK(jit::load_text("numbers") == "1 2 3");
  CHECK(jit::load_cached(source, identity));
}
