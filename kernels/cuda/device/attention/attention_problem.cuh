#pragma once
// What a launch of fused attention tells its kernels: plain data, and the same to the host's
// compiler, which fills it with `void` for the element's type, as to the device's.

namespace bs::cuda::device {

/// One order of a layout: line l of head h holds the blocks [offsets[h * lines + l], ... + 1),
/// whose places along the line, ascending, are `at`.
struct BlockLines {
  const int* offsets;
  const int* at;
  int heads, lines;
};

/// A tensor [batch, heads, sequence, head_dim] whose rows are dense and begin at multiples of 16
/// bytes.
template <class T>
struct AttentionRows {
  T* data;
  long long batch, head, row;

  constexpr T* at(int b, int h) const { return data + b * batch + h * head; }
};

/// Sizes and rules common to all kernels.
struct AttentionProblem {
  int heads, group;  ///< heads of q, and how many of them share one of k and v
  int queries, keys, head_dim;
  int block, layout_heads;
  bool causal;
  double scale;
  const unsigned char* seen;  ///< [batch, keys], 0 for padding, or null
};

template <class T, class Sum>
struct AttentionForwardArguments {
  AttentionProblem problem;
  BlockLines rows;
  AttentionRows<const T> q, k, v;
  AttentionRows<T> out;
  Sum* lse;  ///< [batch, heads, queries]
};

template <class T, class Sum>
struct AttentionBackwardArguments {
  AttentionProblem problem;
  BlockLines rows, columns;
  AttentionRows<const T> q, k, v, out, dout;
  AttentionRows<T> dq, dk, dv;
  const Sum* lse;
  Sum* log_sums;  ///< [batch, heads, queries], lse in powers of two; +infinity where no key is seen
  Sum* means;     ///< [batch, heads, queries], dout . out
};

}  // namespace bs::cuda::device
