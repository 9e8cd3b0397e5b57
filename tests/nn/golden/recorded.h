#pragma once
/** @file What golden/record_*.py write: the formula of weights and inputs, and recorded tensors. */
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace bs::test {

/// Element i of tensor `number`; record_lstm.py has the same formula.
inline Reference formula(const Shape& shape, uint32_t number) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) {
    uint32_t z = static_cast<uint32_t>(i) * 2654435761U + number * 40503U + 12345U;
    z ^= z >> 15;
    z *= 2246822519U;
    z ^= z >> 13;
    r[i] = (static_cast<double>(z % 4096) - 2048) / 2048;
  }
  return r;
}

struct Recorded {
  size_t count = 0;
  std::vector<double> numbers;  ///< the sum, the sum of squares, and samples
};

/// A line `case` with its options, and what follows.
struct RecordedCase {
  std::vector<int> options;
  std::map<std::string, Recorded> tensors;
};

inline std::vector<RecordedCase> read_recorded(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::vector<RecordedCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    if (name == "#") continue;
    if (name == "case") {
      RecordedCase& c = cases.emplace_back();
      for (int option; in >> option;) c.options.push_back(option);
      continue;
    }
    Recorded& r = cases.back().tensors[name];
    in >> r.count;
    for (double v; in >> v;) r.numbers.push_back(v);
  }
  return cases;
}

inline void check_recorded(const std::string& name, const Tensor& actual, const Recorded& expected,
                           double tolerance) {
  CAPTURE(name);
  const Reference r = Reference::of(actual);
  REQUIRE(r.values.size() == expected.count);
  double sum = 0, squares = 0;
  for (const double v : r.values) {
    sum += v;
    squares += v * v;
  }
  const double size = std::max(1.0, largest(r));
  const auto n = static_cast<double>(r.values.size());
  CHECK(std::abs(sum - expected.numbers[0]) <= tolerance * n * size);
  CHECK(std::abs(squares - expected.numbers[1]) <= 2 * tolerance * n * size * size);
  const size_t samples = expected.numbers.size() - 2;
  for (size_t k = 0; k < samples; ++k)
    CHECK(std::abs(r[r.values.size() * k / 8] - expected.numbers[2 + k]) <= tolerance * size);
}

}  // namespace bs::test
