#pragma once
/** @file Inputs that are words, and the command line that they make. */
#include <bs/examples/sparse_transformer/options.h>
#include <bs/tests/fuzz/harness.h>

#include <string>
#include <string_view>
#include <vector>

namespace bs::fuzz {

/** @brief The lines of an input. */
inline std::vector<std::string> lines_of(std::string_view bytes) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    lines.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/** @brief What becomes of a command line of the sparse transformer. */
struct Parsed {
  bool taken = false;    ///< else refused
  bool goes_on = false;  ///< else help was asked for
  example::Options options;
};
inline Parsed parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "sparse_transformer");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Parsed result;
  result.taken = takes([&] {
    result.goes_on = parse_options(static_cast<int>(words.size()), argv.data(), result.options);
  });
  return result;
}

}  // namespace bs::fuzz
