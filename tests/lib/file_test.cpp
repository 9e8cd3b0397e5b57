#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

using namespace bs;
using namespace bs::test;

TEST_CASE("file appears whole or not at all") {
  const Scratch folder;
  const std::string path = folder / "a";
  {
    AtomicFile file(path);
    file.write("abc", 3);
    CHECK(folder.files() == 1);  // the temporary one
    CHECK_THROWS_AS(InputFile{path}, IoError);
  }
  CHECK(folder.files() == 0);
  {
    AtomicFile file(path);
    file.write("ab", 2);
    file.write("c", 1);
    file.write(nullptr, 0);
    file.commit();
    CHECK(read_file(path) == "abc");
  }
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(read_file(path) == "abc");
    file.commit();
  }
  CHECK(read_file(path) == "new");
  CHECK(folder.files() == 1);
}

TEST_CASE("file: what killed writers left is removed, what is in use is not") {
  const Scratch folder;
  const std::string path = folder / "a";
  const auto leave = [&](const std::string& name, int seconds_old) {
    write_file(folder / name, "half");
    const timespec then{::time(nullptr) - seconds_old, 0};
    const timespec times[2] = {then, then};
    REQUIRE(::utimensat(AT_FDCWD, (folder / name).c_str(), times, 0) == 0);
  };
  leave("a.0123456789abcdef.tmp", 3600);
  leave("a.00000000deadbeef.tmp", 10);    // may be of a writer that has just begun
  leave("a.0123456789abcdeX.tmp", 3600);  // not a name of ours
  leave("b.0123456789abcdef.tmp", 3600);  // of another file
  leave("a.fedcba9876543210.tmp", 3600);  // in use
  const int held = ::open((folder / "a.fedcba9876543210.tmp").c_str(), O_RDONLY);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  {
    AtomicFile file(path);
    file.write("abc", 3);
    file.commit();
  }
  CHECK(read_file(path) == "abc");
  CHECK_THROWS_AS(InputFile{folder / "a.0123456789abcdef.tmp"}, IoError);
  for (const char* stays : {"a.00000000deadbeef.tmp", "a.0123456789abcdeX.tmp",
                            "b.0123456789abcdef.tmp", "a.fedcba9876543210.tmp"})
    CHECK(read_file(folder / stays) == "half");
  ::close(held);
}

TEST_CASE("file: a name may be as long as the folder takes") {
  const Scratch folder;
  for (const size_t length : {234UL, 235UL, 250UL, 255UL}) {
    CAPTURE(length);
    const std::string name(length, 'n'), path = folder / name;
    const std::string left = folder / (name.substr(0, 234) + ".0123456789abcdef.tmp");
    write_file(left, "half");
    const timespec long_ago[2] = {};
    REQUIRE(::utimensat(AT_FDCWD, left.c_str(), long_ago, 0) == 0);
    AtomicFile file(path);
    file.write("abc", 3);
    file.commit();
    CHECK(read_file(path) == "abc");
    CHECK_THROWS_AS(InputFile{left}, IoError);
  }
  const std::string accented = folder / (std::string(233, 'n') + "\u00e9.npy");  // cut before it
  AtomicFile file(accented);
  file.commit();
  CHECK(read_file(accented).empty());
  const std::string long_name = folder / std::string(256, 'n');
  CHECK_THROWS_WITH_AS(AtomicFile{long_name},
                       (long_name + ": cannot be written: File name too long").c_str(), IoError);
}

TEST_CASE("file: a link stays one, and what it leads to is replaced") {
  const Scratch folder, other;
  const auto save = [](const std::string& path, const std::string& text) {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  };
  const auto is_link = [](const std::string& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
  };
  write_file(other / "a", "old");
  REQUIRE(::symlink((other / "a").c_str(), (folder / "absolute").c_str()) == 0);
  REQUIRE(::symlink("absolute", (folder / "relative").c_str()) == 0);
  save(folder / "relative", "new");
  CHECK(read_file(other / "a") == "new");
  CHECK(is_link(folder / "absolute"));
  CHECK(is_link(folder / "relative"));
  CHECK(other.files() == 1);
  REQUIRE(::symlink("b", (folder / "early").c_str()) == 0);  // leads nowhere yet
  save(folder / "early", "first");
  CHECK(is_link(folder / "early"));
  CHECK(read_file(folder / "b") == "first");
  REQUIRE(::symlink("circle", (folder / "circle").c_str()) == 0);
  CHECK_THROWS_WITH_AS(
      AtomicFile{folder / "circle"},
      ((folder / "circle") + ": cannot be written: Too many levels of symbolic links").c_str(),
      IoError);
}

TEST_CASE("file: a process number that comes back is in nobody's way") {
  const Scratch folder;
  // What an earlier version left behind, under the number of this process.
  for (int i = 0; i < 8; ++i)
    write_file(folder / ("a." + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp"), "");
  for (int i = 0; i < 4; ++i) {
    AtomicFile file(folder / "a");
    file.write("x", 1);
    file.commit();
  }
  CHECK(read_file(folder / "a") == "x");
}

TEST_CASE("file: a named pipe is refused at once") {
  const Scratch folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(InputFile{folder / "pipe"},
                       ((folder / "pipe") + ": is no regular file").c_str(), IoError);
  // Nor does a file take its place.
  CHECK_THROWS_WITH_AS(AtomicFile{folder / "pipe"},
                       ((folder / "pipe") + ": is no regular file").c_str(), IoError);
}

TEST_CASE("file that cannot be written") {
  const Scratch folder;
  const std::string missing = folder / "no/such/folder";
  CHECK_THROWS_WITH_AS(AtomicFile{missing},
                       (missing + ": cannot be written: No such file or directory").c_str(),
                       IoError);
  // A folder in the way of the final name.
  write_file(folder / "b", "");
  const Scratch other;
  const std::string taken = other / "";
  AtomicFile file(taken.substr(0, taken.size() - 1));
  CHECK_THROWS_AS(file.commit(), IoError);
}

TEST_CASE("file is read in order, and no further than it goes") {
  const Scratch folder;
  const std::string path = folder / "a";
  write_file(path, "hello world");
  InputFile file(path);
  CHECK(file.size() == 11);
  CHECK(file.read_text(5) == "hello");
  CHECK(file.left() == 6);
  char rest[6];
  file.read(rest, 6);
  CHECK(std::string(rest, 6) == " world");
  CHECK(file.read_text(0).empty());
  CHECK_THROWS_WITH_AS(file.read(rest, 1),
                       (path + ": truncated: 1 bytes wanted at 11, the file has 11").c_str(),
                       IoError);
  CHECK_THROWS_AS(file.read_text(size_t{1} << 60), IoError);
  CHECK_THROWS_WITH_AS(InputFile{folder / "none"},
                       ((folder / "none") + ": cannot be read: No such file or directory").c_str(),
                       IoError);
  CHECK_THROWS_WITH_AS(InputFile{folder / ""}, ((folder / "") + ": is no regular file").c_str(),
                       IoError);
}
