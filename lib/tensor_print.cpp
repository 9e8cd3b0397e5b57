#include <bs/lib/host_view.h>
#include <bs/lib/tensor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>
#include <vector>

namespace bs {

namespace {

constexpr int64_t most_elements = 1000;  // more are summarised ...
constexpr int64_t edge = 3;              // ... by so many at each end of a long axis
constexpr size_t line_width = 80;

bool is_cut(int64_t extent, bool summarised) { return summarised && extent > 2 * edge; }

/// Calls `f` for each index of an axis that is shown.
template <class F>
void for_each_shown(int64_t extent, bool summarised, F&& f) {
  const bool cut = is_cut(extent, summarised);
  for (int64_t i = 0; i < extent; ++i) {
    if (cut && i == edge) i = extent - edge;
    f(i);
  }
}

/// Appends the elements shown, in order. Only those are brought to the host.
template <class T, class Value>
void collect(const Tensor& x, bool summarised, std::vector<Value>& values) {
  if (x.rank() > 1) {
    for_each_shown(x.size(0), summarised,
                   [&](int64_t i) { collect<T>(x.select(0, i), summarised, values); });
    return;
  }
  const auto append = [&](const Tensor& part) {
    for_each_value<T>(host_view(part),
                      [&](const T& value) { values.push_back(static_cast<Value>(value)); });
  };
  if (x.rank() == 1 && is_cut(x.size(0), summarised)) {
    append(x.slice(0, 0, edge));
    append(x.slice(0, x.size(0) - edge, x.size(0)));
  } else {
    append(x);
  }
}

std::string print(double value, std::chars_format style, int digits) {
  char buffer[400];  // the longest double without an exponent has 309 digits
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, style, digits);
  return {buffer, end.ptr};
}

/// PyTorch's choice for all values together: "3.", four digits after the point, or an exponent
/// where magnitudes are far apart, large or small.
std::vector<std::string> print_reals(const std::vector<double>& values) {
  double low = INFINITY;
  double high = 0;
  bool whole = true;
  for (double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    low = std::min(low, std::abs(value));
    high = std::max(high, std::abs(value));
    whole = whole && value == std::ceil(value);
  }
  const bool wide = high > 0 && (high / low > 1000 || high > 1e8);
  const bool exponent = wide || (!whole && low < 1e-4);
  std::vector<std::string> words;
  for (double value : values) {
    if (!std::isfinite(value))
      words.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    else if (exponent)
      words.push_back(print(value, std::chars_format::scientific, 4));
    else
      words.push_back(whole ? print(value, std::chars_format::fixed, 0) + "."
                            : print(value, std::chars_format::fixed, 4));
  }
  return words;
}

/// The elements shown, as words of equal width.
std::vector<std::string> print_elements(const Tensor& x, bool summarised) {
  std::vector<std::string> words;
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      std::vector<int64_t> values;
      collect<T>(x, summarised, values);
      for (int64_t value : values)
        words.push_back(std::is_same_v<T, bool> ? (value ? "true" : "false")
                                                : std::to_string(value));
    } else {
      std::vector<double> values;
      collect<T>(x, summarised, values);
      words = print_reals(values);
    }
  });
  size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size());
  for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  return words;
}

using Words = std::vector<std::string>::const_iterator;

/// The innermost axis: as many elements a line as fit.
void nest_row(int64_t extent, bool summarised, size_t indent, Words& next, std::string& text) {
  if (extent == 0) return;
  const size_t per_line =
      std::max<size_t>(1, (line_width - std::min(line_width, indent)) / (next->size() + 2));
  size_t count = 0;
  const auto put = [&](const std::string& word) {
    if (count > 0) text += count % per_line == 0 ? ",\n" + std::string(indent, ' ') : ", ";
    text += word;
    ++count;
  };
  for_each_shown(extent, summarised, [&](int64_t i) {
    if (is_cut(extent, summarised) && i == extent - edge) put("...");
    put(*next++);
  });
}

/// Brackets around brackets; a blank line more for each axis that ends.
void nest(const Shape& shape, int axis, bool summarised, size_t indent, Words& next,
          std::string& text) {
  if (axis == shape.rank()) {
    text += *next++;
    return;
  }
  text += '[';
  if (axis == shape.rank() - 1) {
    nest_row(shape[axis], summarised, indent + 1, next, text);
  } else {
    const std::string separator = "," +
                                  std::string(static_cast<size_t>(shape.rank() - axis) - 1, '\n') +
                                  std::string(indent + 1, ' ');
    for_each_shown(shape[axis], summarised, [&](int64_t i) {
      if (i > 0) text += separator;
      if (is_cut(shape[axis], summarised) && i == shape[axis] - edge) text += "..." + separator;
      nest(shape, axis + 1, summarised, indent + 1, next, text);
    });
  }
  text += ']';
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "Tensor(undefined)";
  std::string text = "Tensor(";
  if (tensor.numel() == 0) {
    text += "[]";
  } else {
    const bool summarised = tensor.numel() > most_elements;
    const std::vector<std::string> words =
        print_elements(summarised ? tensor : host_view(tensor), summarised);
    Words next = words.begin();
    nest(tensor.shape(), 0, summarised, text.size(), next, text);
  }
  return text + format(", {} {} {})", tensor.dtype(), tensor.shape(), tensor.device());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

}  // namespace bs
