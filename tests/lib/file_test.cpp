#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

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
