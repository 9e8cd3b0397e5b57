#include <bs/bench/plain_case_list.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/embedding.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/loss.h>
#include <bs/kernels/pointwise_loss.h>
#include <bs/kernels/soft_cross_entropy.h>
#include <bs/kernels/softmax.h>
#include <bs/kernels/unary.h>

#include <algorithm>

namespace bs::bench {

void add_losses(Cases& c) {
  // As many as large vocabularies have: tables of more would fit no GPU beside wide matrices.
  const int64_t classes = std::clamp<int64_t>(c.columns * 500 / 64, 1, 131072);
  const int64_t rows = std::max<int64_t>(1, c.rows / 2);
  const Tensor logits = c.values({rows, classes}), targets = c.indices({rows}, classes);
  const double n = c.bytes(logits.numel());
  c.add("cross_entropy", "last axis", n, [=] { return cross_entropy(logits, targets).loss; });
  const CrossEntropyResult result = cross_entropy(logits, targets);
  c.add("cross_entropy_backward", "last axis", 2 * n,
        [=, one = full({}, 1, result.loss.dtype(), c.device())] {
          return cross_entropy_backward(logits, targets, result, one);
        });
  // Of other logits: beside their own the gradient would be nothing but rounding.
  const Tensor smooth = softmax(c.values({rows, classes}));
  const Tensor dloss = full({rows}, 1, result.lse.dtype(), c.device());
  c.add("soft_cross_entropy", "last axis", 2 * n,
        [=] { return soft_cross_entropy(logits, smooth); });
  c.add("soft_cross_entropy_backward", "last axis", 3 * n,
        [=] { return soft_cross_entropy_backward(logits, smooth, dloss); });
  c.add("target_weights", "last axis", n, [=, dtype = c.dtype()] {
    return target_weights(targets, classes, {}, {.label_smoothing = 0.1}, dtype);
  });
  const int64_t width = std::max<int64_t>(1, c.columns / 4);
  const Tensor table = c.values({classes, width}), tokens = c.indices({2 * c.rows}, classes);
  const Tensor dy = c.values({2 * c.rows, width});
  c.add("embedding", "first axis", 2 * c.bytes(dy.numel()),
        [table, tokens] { return embedding(table, tokens); });
  c.add("embedding_backward", "first axis", c.bytes(dy.numel() + table.numel()),
        [=] { return embedding_backward(dy, tokens, classes); });
}

void add_pointwise(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), t = c.matrix();
  // Probabilities, and their logarithms for the divergence.
  const Tensor p = sigmoid(t), q = sigmoid(x), log_q = log(q);
  const Tensor dloss = full({}, 1, mse_loss(x, t).dtype(), c.device());
  constexpr Reduction mean = Reduction::mean;
  const auto loss = [&](const char* what, auto run) { c.add(what, "all", 2 * n, run); };
  const auto backward = [&](const char* what, auto run) { c.add(what, "all", 3 * n, run); };
  loss("mse_loss", [=] { return mse_loss(x, t); });
  backward("mse_loss_backward", [=] { return mse_loss_backward(x, t, dloss, mean); });
  loss("l1_loss", [=] { return l1_loss(x, t); });
  backward("l1_loss_backward", [=] { return l1_loss_backward(x, t, dloss, mean); });
  loss("huber_loss", [=] { return huber_loss(x, t); });
  backward("huber_loss_backward", [=] { return huber_loss_backward(x, t, dloss, 1, mean); });
  loss("smooth_l1_loss", [=] { return smooth_l1_loss(x, t, 0.5); });
  backward("smooth_l1_loss_backward",
           [=] { return smooth_l1_loss_backward(x, t, dloss, 0.5, mean); });
  loss("binary_cross_entropy", [=] { return binary_cross_entropy(q, p); });
  backward("binary_cross_entropy_backward",
           [=] { return binary_cross_entropy_backward(q, p, dloss, mean); });
  loss("binary_cross_entropy_with_logits", [=] { return binary_cross_entropy_with_logits(x, p); });
  backward("binary_cross_entropy_with_logits_backward",
           [=] { return binary_cross_entropy_with_logits_backward(x, p, {}, dloss, mean); });
  loss("kl_div", [=] { return kl_div(log_q, p); });
  backward("kl_div_backward", [=] { return kl_div_backward(log_q, p, dloss, mean, false); });
}

}  // namespace bs::bench
