#pragma once
// Several neighbours loaded and stored as one: 16 bytes are the widest a thread can move at once.

namespace bs::cuda::device {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int pack_size = 16 / static_cast<int>(sizeof(T));

}  // namespace bs::cuda::device
