#include <bs/autograd/einsum.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/matmul.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>

#include <algorithm>
#include <map>
#include <vector>

namespace bs {

namespace {

/// A tensor whose axes have names.
struct Named {
  Variable x;
  std::string letters;
};

bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

struct Equation {
  std::vector<std::string> inputs;
  std::string result;
};

constexpr char ellipsis = '.';  ///< stands for "..." of an equation

/// @param[in] once whether no letter may stand there twice
void check_letters(const std::string& equation, const std::string& letters, bool once) {
  for (const char c : letters) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ellipsis;
    BS_CHECK(letter, "einsum: '{}' in {} is no letter", std::string(1, c), equation);
    BS_CHECK((!once && c != ellipsis) || std::count(letters.begin(), letters.end(), c) == 1,
             "einsum: {} is twice in one term of {}",
             c == ellipsis ? "an ellipsis" : std::string(1, c), equation);
  }
}

Equation parsed(std::string equation) {
  std::erase(equation, ' ');
  const std::string given = equation;
  BS_CHECK(!has(equation, ellipsis) || equation.find("...") != std::string::npos,
           "einsum: '.' in {} is no letter, and no ellipsis of three", given);
  for (size_t at = equation.find("..."); at != std::string::npos; at = equation.find("...", at + 1))
    equation.replace(at, 3, 1, ellipsis);
  Equation e;
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  for (size_t from = 0; from <= left.size();) {
    const size_t comma = std::min(left.find(',', from), left.size());
    e.inputs.push_back(left.substr(from, comma - from));
    from = comma + 1;
  }
  for (const std::string& letters : e.inputs) check_letters(given, letters, false);
  if (arrow != std::string::npos) {
    e.result = equation.substr(arrow + 2);
    check_letters(given, e.result, true);
    return e;
  }
  std::map<char, int> count;
  for (const std::string& letters : e.inputs)
    for (const char c : letters) ++count[c];
  for (const auto& [c, n] : count)
    if (n == 1 || c == ellipsis) e.result += c;  // which the order of characters puts in front
  return e;
}

/// Letters of `count` axes of an ellipsis: those of the last axis, counted from the right, are
/// alike in all operands.
std::string names_of_ellipsis(int count) {
  std::string names;
  for (int i = count; i > 0; --i) names += static_cast<char>(i);
  return names;
}

/// Replaces an ellipsis by the letters of its axes.
void spread_ellipsis(std::string& letters, int count) {
  const size_t at = letters.find(ellipsis);
  if (at != std::string::npos) letters.replace(at, 1, names_of_ellipsis(count));
}

/// Where a letter stands twice, the diagonal of its axes.
Named diagonals(Named v, const std::string& equation) {
  for (size_t i = 0; i < v.letters.size(); ++i) {
    for (size_t j = v.letters.find(v.letters[i], i + 1); j != std::string::npos;
         j = v.letters.find(v.letters[i], i + 1)) {
      const int64_t n = v.x.size(static_cast<int>(i));
      BS_CHECK(n == v.x.size(static_cast<int>(j)), "einsum: {} is {} and {} in {}",
               std::string(1, v.letters[i]), n, v.x.size(static_cast<int>(j)), equation);
      Dims axes;
      for (int axis = 0; axis < v.x.rank(); ++axis)
        if (axis != static_cast<int>(i) && axis != static_cast<int>(j)) axes.push_back(axis);
      Shape shape;
      for (const int64_t axis : axes) shape.push_back(v.x.size(static_cast<int>(axis)));
      const int last = shape.rank();
      shape.push_back(n * n);
      axes.push_back(static_cast<int64_t>(i));
      axes.push_back(static_cast<int64_t>(j));
      v.x = slice(reshape(permute(v.x, axes), shape), last, 0, n * n, n + 1);
      const char c = v.letters[i];
      v.letters.erase(j, 1);
      v.letters.erase(i, 1);
      v.letters += c;
      i = 0;
    }
  }
  return v;
}

/// The operand without axes of 1 that others have more of: what lacks an axis is broadcast.
Named without_ones(Named v, const std::map<char, int64_t>& extents, const std::string& equation) {
  for (int axis = v.x.rank() - 1; axis >= 0; --axis) {
    const char c = v.letters[static_cast<size_t>(axis)];
    const int64_t n = v.x.size(axis), most = extents.at(c);
    BS_CHECK(n == most || n == 1, "einsum: {} is {} and {} in {}",
             c < ' ' ? "an axis of the ellipsis" : std::string(1, c), n, most, equation);
    if (n == most) continue;
    v.x = squeeze(v.x, axis);
    v.letters.erase(static_cast<size_t>(axis), 1);
  }
  return v;
}

/// Sums over the axes whose letters are not in `wanted`.
Named summed(const Named& v, const std::string& wanted) {
  Dims axes;
  std::string kept;
  for (size_t i = 0; i < v.letters.size(); ++i) {
    if (has(wanted, v.letters[i])) {
      kept += v.letters[i];
    } else {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  return axes.empty() ? v : Named{sum(v.x, axes), kept};
}

Variable in_order(const Named& v, const std::string& letters) {
  if (letters == v.letters) return v.x;
  Dims axes;
  for (const char c : letters) axes.push_back(static_cast<int64_t>(v.letters.find(c)));
  return permute(v.x, axes);
}

/// The product of two as one batched matmul. Letters in both that are needed later are its batch.
/// Those in both that are not are summed over.
Named product(const Named& a, const Named& b, const std::string& wanted) {
  std::string batch, inner, left, right;
  for (const char c : a.letters) {
    if (!has(b.letters, c)) {
      left += c;
    } else {
      (has(wanted, c) ? batch : inner) += c;
    }
  }
  for (const char c : b.letters)
    if (!has(a.letters, c)) right += c;
  const Variable p = in_order(a, batch + left + inner), q = in_order(b, batch + inner + right);
  const int nb = static_cast<int>(batch.size()), nl = static_cast<int>(left.size());
  const int ni = static_cast<int>(inner.size());
  const Shape sp = p.shape(), sq = q.shape();
  const int64_t batches = sp.slice(0, nb).product(), rows = sp.slice(nb, nb + nl).product();
  const int64_t depth = sp.slice(nb + nl, sp.rank()).product();
  const int64_t columns = sq.slice(nb + ni, sq.rank()).product();
  Shape shape = sp.slice(0, nb + nl);
  for (int i = nb + ni; i < sq.rank(); ++i) shape.push_back(sq[i]);
  const Variable y =
      matmul(reshape(p, {batches, rows, depth}), reshape(q, {batches, depth, columns}));
  return {reshape(y, shape), batch + left + right};
}

}  // namespace

namespace {

/// The operands with a letter an axis; the result's ellipsis is spread as theirs are.
std::vector<Named> named(Equation& e, const std::string& equation,
                         std::span<const Variable> operands) {
  int longest = 0;
  std::vector<Named> all;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string letters = e.inputs[i];
    const Shape& shape = operands[i].shape();
    const int more =
        shape.rank() - static_cast<int>(letters.size()) + (has(letters, ellipsis) ? 1 : 0);
    BS_CHECK(more == 0 || (more > 0 && has(letters, ellipsis)),
             "einsum: operand {} of shape {} for the axes {} of {}", i, shape, e.inputs[i],
             equation);
    longest = std::max(longest, more);
    spread_ellipsis(letters, more);
    all.push_back(diagonals({operands[i], letters}, equation));
  }
  spread_ellipsis(e.result, longest);
  return all;
}

}  // namespace

Variable einsum(const std::string& equation, std::span<const Variable> operands) {
  Equation e = parsed(equation);
  BS_CHECK(!operands.empty() && e.inputs.size() == operands.size(), "einsum: {} operands for {}",
           operands.size(), equation);
  std::vector<Named> all = named(e, equation, operands);
  std::map<char, int64_t> extents;  // 1 gives way to any other
  for (const Named& v : all)
    for (int axis = 0; axis < v.x.rank(); ++axis) {
      int64_t& extent = extents.emplace(v.letters[static_cast<size_t>(axis)], 1).first->second;
      if (v.x.size(axis) != 1) extent = v.x.size(axis);
    }
  for (Named& v : all) v = without_ones(v, extents, equation);
  for (const char c : e.result)
    BS_CHECK(extents.count(c) == 1, "einsum: {} of the result is in no operand of {}",
             std::string(1, c), equation);
  // What is needed behind each operand: the result's letters and those of later operands.
  std::vector<std::string> later(all.size(), e.result);
  for (size_t i = all.size() - 1; i > 0; --i) later[i - 1] = later[i] + all[i].letters;
  Named so_far = summed(all[0], later[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    const Named next = summed(all[i], so_far.letters + later[i]);
    so_far = product(so_far, next, later[i]);
    so_far = summed(so_far, later[i]);
  }
  return in_order(so_far, e.result);
}

Tensor einsum(const std::string& equation, std::span<const Tensor> operands) {
  const std::vector<Variable> variables(operands.begin(), operands.end());
  return einsum(equation, std::span(variables)).data();
}

Variable dot(const Variable& a, const Variable& b) {
  BS_CHECK(a.rank() == 1 && a.shape() == b.shape(), "dot: shapes {} and {}", a.shape(), b.shape());
  return sum(a * b);
}

Variable outer(const Variable& a, const Variable& b) {
  BS_CHECK(a.rank() == 1 && b.rank() == 1, "outer: shapes {} and {}", a.shape(), b.shape());
  return unsqueeze(a, 1) * b;
}

Variable bmm(const Variable& a, const Variable& b) {
  const bool fit = a.rank() == 3 && b.rank() == 3 && a.size(0) == b.size(0);
  BS_CHECK(fit, "bmm: shapes {} and {} are no batches of one size", a.shape(), b.shape());
  return matmul(a, b);
}

}  // namespace bs
