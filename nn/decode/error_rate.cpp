#include <bs/nn/decode/error_rate.h>

#include <bs/nn/data/alphabet.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

namespace bs::decode {

double Errors::rate() const {
  if (length == 0 && count() > 0) return std::numeric_limits<double>::infinity();
  return length == 0 ? 0 : static_cast<double>(count()) / static_cast<double>(length);
}

Errors& Errors::operator+=(const Errors& other) {
  substitutions += other.substitutions;
  insertions += other.insertions;
  deletions += other.deletions;
  length += other.length;
  return *this;
}

namespace {

using Elements = std::span<const std::string_view>;

/// Levenshtein's distance row by row; each cell keeps the kinds of changes on its way.
Errors errors_between(Elements reference, Elements hypothesis) {
  std::vector<Errors> row(hypothesis.size() + 1);
  for (size_t j = 1; j < row.size(); ++j) row[j].insertions = static_cast<int64_t>(j);
  for (const std::string_view element : reference) {
    Errors diagonal = row[0];
    ++row[0].deletions;
    for (size_t j = 1; j < row.size(); ++j) {
      Errors best = diagonal;
      if (element != hypothesis[j - 1]) {
        ++best.substitutions;
        if (row[j].count() + 1 < best.count()) {
          best = row[j];
          ++best.deletions;
        }
        if (row[j - 1].count() + 1 < best.count()) {
          best = row[j - 1];
          ++best.insertions;
        }
      }
      diagonal = row[j];
      row[j] = best;
    }
  }
  row.back().length = static_cast<int64_t>(reference.size());
  return row.back();
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = text.find_first_not_of(' '); at != std::string_view::npos;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(' ', end);
  }
  return words;
}

}  // namespace

Errors character_errors(std::string_view reference, std::string_view hypothesis) {
  return errors_between(data::characters_of(reference), data::characters_of(hypothesis));
}

Errors word_errors(std::string_view reference, std::string_view hypothesis) {
  return errors_between(words_of(reference), words_of(hypothesis));
}

}  // namespace bs::decode
