#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

using Lines = std::vector<std::string>;

const fs::path root = BS_SOURCE_DIR;

/// The lines of a file without the white space around them: blocks are indented in their own way.
Lines lines_of(const fs::path& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), path.string(), " cannot be read");
  Lines lines;
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(" \t");
    const size_t last = line.find_last_not_of(" \t");
    lines.push_back(first == std::string::npos ? "" : line.substr(first, last - first + 1));
  }
  return lines;
}

bool contains(const Lines& all, const Lines& part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

/// Every page for a reader: README.md and its neighbours, docs/*.md, and the notes of bench.
std::vector<fs::path> pages() {
  std::vector<fs::path> pages;
  for (const char* folder : {".", "docs", "bench", "bench/notes", "bench/results"})
    for (const auto& entry : fs::directory_iterator(root / folder))
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
  return pages;
}

/// The file named by a line `<!-- from FILE -->`, else nothing.
std::string source_named_by(const std::string& line) {
  constexpr std::string_view begin = "<!-- from ", end = " -->";
  if (!line.starts_with(begin) || !line.ends_with(end)) return {};
  return line.substr(begin.size(), line.size() - begin.size() - end.size());
}

Lines without_code(const Lines& lines) {
  Lines text;
  bool code = false;
  for (const std::string& line : lines) {
    if (line.starts_with("```")) code = !code;
    if (!code) text.push_back(line);
  }
  return text;
}

}  // namespace

TEST_CASE("code blocks stand in the files they name, word for word") {
  int blocks = 0;
  for (const fs::path& page : pages()) {
    const Lines lines = lines_of(page);
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      const std::string source = source_named_by(lines[i]);
      if (source.empty()) continue;
      const std::string place = page.string() + ":" + std::to_string(i + 1);
      CAPTURE(place);
      REQUIRE(lines[i + 1].starts_with("```"));
      Lines block;
      for (size_t k = i + 2; k < lines.size() && lines[k] != "```"; ++k) block.push_back(lines[k]);
      CHECK(!block.empty());
      CHECK_MESSAGE(contains(lines_of(root / source), block), "no such lines in ", source);
      ++blocks;
    }
  }
  CHECK(blocks > 0);
}

TEST_CASE("links between pages and into the tree lead somewhere") {
  for (const fs::path& page : pages())
    for (const std::string& line : without_code(lines_of(page)))
      for (size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
        const std::string link = line.substr(at + 2, line.find_first_of("#)", at) - at - 2);
        // Doxygen finds no section by a link within its own page, so a page names it in words.
        CHECK_MESSAGE(!link.empty(), page.string() << " links to a section of its own: " << line);
        if (link.empty() || link.starts_with("http")) continue;
        CHECK_MESSAGE(fs::exists(page.parent_path() / link), page.string() << " links to " << link);
      }
}
