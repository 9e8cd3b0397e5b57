#include <bs/autograd/kron_solve.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

std::vector<Tensor> data_of(const std::vector<Variable>& variables) {
  std::vector<Tensor> all;
  all.reserve(variables.size());
  for (const Variable& v : variables) all.push_back(v.data());
  return all;
}

void check_count(const char* op, const std::vector<Variable>& factors, const KronEigh& eigh) {
  BS_CHECK(factors.size() == eigh.vectors.size(), "{}: {} factors, a decomposition of {}", op,
           factors.size(), eigh.vectors.size());
}

/// The decomposition belongs to the caller, who may change it.
void watch(const KronEigh& eigh, std::vector<Variable>& watched) {
  watched.insert(watched.end(), eigh.values.begin(), eigh.values.end());
  watched.insert(watched.end(), eigh.vectors.begin(), eigh.vectors.end());
  watched.emplace_back(eigh.eigenvalues);
}

}  // namespace

Variable kron_solve(const Variable& b, const std::vector<Variable>& factors,
                    const KronSolveOptions& options) {
  const std::vector<Tensor> weights = data_of(factors);
  const KronInverse inverse = detail::kron_inverse("kron_solve", weights);
  const Tensor x = kron_solve(b.data(), inverse, options);
  std::vector<Variable> inputs = {b};
  inputs.insert(inputs.end(), factors.begin(), factors.end());
  std::vector<Variable> watched = factors;  // b is not needed
  watched.emplace_back(x);
  return tape().record(
      "kron_solve", inputs, x, [=, saved = SavedInputs(watched)](const Tensor& dx) {
        saved.check();
        KronSolveGrads grads = kron_solve_backward(x, weights, inverse, dx, options);
        Grads all = {grads.b};
        all.insert(all.end(), grads.factors.begin(), grads.factors.end());
        return all;
      });
}

Variable kron_logdet(const std::vector<Variable>& factors) {
  const KronInverse inverse = detail::kron_inverse("kron_logdet", data_of(factors));
  return tape().record("kron_logdet", factors, inverse.log_abs_det,
                       [inverse](const Tensor& dy) { return kron_logdet_backward(inverse, dy); });
}

Variable kron_shifted_solve(const Variable& b, const std::vector<Variable>& factors,
                            const Variable& shift, const KronEigh& eigh) {
  check_count("kron_shifted_solve", factors, eigh);
  const Tensor x = kron_shifted_solve(b.data(), eigh, shift.data());
  std::vector<Variable> inputs = {b};
  inputs.insert(inputs.end(), factors.begin(), factors.end());
  inputs.push_back(shift);
  std::vector<Variable> watched = factors;
  watched.insert(watched.end(), {x, shift});
  watch(eigh, watched);
  const auto backward = [x, weights = data_of(factors), eigh, s = shift.data(),
                         saved = SavedInputs(watched)](const Tensor& dx) {
    saved.check();
    KronShiftedGrads grads = kron_shifted_solve_backward(x, weights, eigh, s, dx);
    Grads all = {grads.b};
    all.insert(all.end(), grads.factors.begin(), grads.factors.end());
    all.push_back(grads.shift);
    return all;
  };
  return tape().record("kron_shifted_solve", inputs, x, backward);
}

Variable kron_shifted_logdet(const std::vector<Variable>& factors, const Variable& shift,
                             const KronEigh& eigh) {
  check_count("kron_shifted_logdet", factors, eigh);
  std::vector<Variable> inputs = factors;
  inputs.push_back(shift);
  std::vector<Variable> watched = {shift};
  watch(eigh, watched);
  const auto backward = [eigh, s = shift.data(), saved = SavedInputs(watched)](const Tensor& dy) {
    saved.check();
    KronShiftedGrads grads = kron_shifted_logdet_backward(eigh, s, dy);
    Grads all = std::move(grads.factors);
    all.push_back(grads.shift);
    return all;
  };
  return tape().record("kron_shifted_logdet", inputs, kron_shifted_logdet(eigh, shift.data()),
                       backward);
}

}  // namespace bs
