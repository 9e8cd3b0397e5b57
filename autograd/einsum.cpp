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

void check_letters(const std::string& equation, const std::string& letters) {
  for (const char c : letters) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    BS_CHECK(letter, "einsum: '{}' in {} is no letter", std::string(1, c), equation);
    BS_CHECK(std::count(letters.begin(), letters.end(), c) == 1,
             "einsum: {} is twice in one term of {}", std::string(1, c), equation);
  }
}

Equation parsed(std::string equation) {
  std::erase(equation, ' ');
  Equation e;
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  for (size_t from = 0; from <= left.size();) {
    const size_t comma = std::min(left.find(',', from), left.size());
    e.inputs.push_back(left.substr(from, comma - from));
    from = comma + 1;
  }
  for (const std::string& letters : e.inputs) check_letters(equation, letters);
  if (arrow != std::string::npos) {
    e.result = equation.substr(arrow + 2);
    check_letters(equation, e.result);
    return e;
  }
  std::map<char, int> count;
  for (const std::string& letters : e.inputs)
    for (const char c : letters) ++count[c];
  for (const auto& [c, n] : count)
    if (n == 1) e.result += c;
  return e;
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

/// The product of two as one batched matmul: letters in both that are needed later are its batch,
/// those in both that are not are summed over.
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

Variable einsum(const std::string& equation, std::span<const Variable> operands) {
  const Equation e = parsed(equation);
  BS_CHECK(!operands.empty() && e.inputs.size() == operands.size(), "einsum: {} operands for {}",
           operands.size(), equation);
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i].shape();
    BS_CHECK(static_cast<size_t>(shape.rank()) == e.inputs[i].size(),
             "einsum: operand {} of shape {} for the axes {} of {}", i, shape, e.inputs[i],
             equation);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const char c = e.inputs[i][static_cast<size_t>(axis)];
      const int64_t extent = extents.emplace(c, shape[axis]).first->second;
      BS_CHECK(extent == shape[axis], "einsum: {} is {} and {} in {}", std::string(1, c), extent,
               shape[axis], equation);
    }
  }
  for (const char c : e.result)
    BS_CHECK(extents.count(c) == 1, "einsum: {} of the result is in no operand of {}",
             std::string(1, c), equation);
  // What is needed behind each operand: the result's letters and those of later operands.
  std::vector<std::string> later(operands.size(), e.result);
  for (size_t i = operands.size() - 1; i > 0; --i) later[i - 1] = later[i] + e.inputs[i];
  Named so_far = summed({operands[0], e.inputs[0]}, later[0]);
  for (size_t i = 1; i < operands.size(); ++i) {
    const Named next = summed({operands[i], e.inputs[i]}, so_far.letters + later[i]);
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
