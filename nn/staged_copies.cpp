#include <bs/nn/staged_copies.h>

#include <bs/kernels/copy.h>
#include <bs/lib/overlap.h>

#include <algorithm>

namespace bs::nn {

namespace {

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.device() == b.device() && a.dtype() == b.dtype() &&
         a.strides() == b.strides();
}

/// Whether bytes are all that has to move, also between devices.
bool is_of_bytes(const Tensor& from, const Tensor& to) {
  return from.dtype() == to.dtype() && from.is_contiguous() && to.is_contiguous();
}

}  // namespace

void StagedCopies::add(const Tensor& from, const Tensor& to) {
  BS_CHECK(from.shape() == to.shape(), "copy: shapes differ: {} into {}", from.shape(), to.shape());
  check_writable("copy", to);
  if (from.numel() > 0 && !same_view(from, to)) copies_.push_back({from, to});
}

void StagedCopies::stage() {
  std::vector<ByteRange> written;
  for (const Copy& c : copies_) written.push_back(byte_range(c.to));
  for (auto& [from, to] : copies_) {
    const auto is_written = [range = byte_range(from)](const ByteRange& other) {
      return range.overlaps(other);
    };
    if (from.device() != to.device()) {
      if (!is_of_bytes(from, to)) from = bs::to(from, to.device());
    } else if (std::ranges::any_of(written, is_written)) {
      from = clone(from);
    }
  }
}

void StagedCopies::apply() const {
  for (const auto& [from, to] : copies_) {
    if (from.device() == to.device())
      copy(from, to);
    else
      copy_bytes(from, to);
  }
}

}  // namespace bs::nn
