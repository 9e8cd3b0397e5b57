#include <bs/tests/support/decimal_comma.h>

#include <clocale>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace bs::test {

namespace {

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// LC_NUMERIC as glibc's localedef writes it: a mark, the number of fields, where each begins.
std::string numeric_category() {
  const auto word = [](uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  using namespace std::string_literals;
  const std::string fields[] = {",\0\0\0"s, ".\0\0\0"s, "\3\0\0\0"s,
                                word(','),  word('.'),  "UTF-8\0\0\0"s};
  constexpr uint32_t mark = 0x20031115 ^ LC_NUMERIC, count = 6;
  std::string head = word(mark) + word(count), body;
  for (const std::string& field : fields) {
    head += word(static_cast<uint32_t>((2 + count) * sizeof(uint32_t) + body.size()));
    body += field;
  }
  return head + body;
}

}  // namespace

DecimalComma::DecimalComma()
    : path_("LOCPATH", folder_ / ""),
      before_(std::setlocale(LC_NUMERIC, nullptr)),
      streams_(std::locale::global(std::locale(std::locale(), new Comma))) {
  std::filesystem::create_directory(folder_ / "comma");
  write_file(folder_ / "comma/LC_NUMERIC", numeric_category());
  std::setlocale(LC_NUMERIC, "comma");
  char text[8];
  std::snprintf(text, sizeof text, "%.1f", 1.5);
  in_c_ = std::string_view(text) == "1,5";
}

DecimalComma::~DecimalComma() {
  std::locale::global(streams_);
  std::setlocale(LC_NUMERIC, before_.c_str());
}

}  // namespace bs::test
