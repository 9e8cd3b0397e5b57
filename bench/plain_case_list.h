#pragma once
/** @file What the files of plain cases share: operands, and the list that they add to. */
#include <bs/bench/plain_cases.h>
#include <bs/kernels/random.h>

#include <type_traits>

namespace bs::bench {

/** @brief Collects the cases of a set, and makes their operands. */
class Cases {
 public:
  Cases(const PlainSize& size, DType dtype, Device device)
      : rows(size.rows), columns(size.columns), dtype_(dtype), device_(device), generator_(7) {}

  const int64_t rows, columns;

  Tensor values(const Shape& shape) { return values(shape, dtype_); }
  Tensor values(const Shape& shape, DType dtype) {
    return randn(shape, dtype, device_, generator_);
  }
  Tensor matrix() { return values({rows, columns}); }
  Tensor indices(const Shape& shape, int64_t end) {
    return randint(0, end, shape, i64, device_, generator_);
  }
  /** @name A matrix seen with three or four axes, where its extents allow that
   *  @{ */
  bool has_cube() const { return rows % 4 == 0; }
  Tensor cube(const Tensor& x) const { return x.view({4, rows / 4, columns}); }
  bool has_heads() const { return has_cube() && columns % 64 == 0; }
  Tensor heads(const Tensor& x) const { return x.view({4, rows / 4, columns / 64, 64}); }
  /** @} */

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /** @brief Bytes of a matrix, and of any number of elements. */
  double whole() const { return bytes(rows * columns); }
  double bytes(int64_t elements) const {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype_));
  }

  /** @brief Adds a case; `run` gives one result or several. */
  template <class F>
  void add(const char* what, const char* layout, double moved, F run, double flops = 0) {
    list.push_back({what, layout, moved, flops, [run]() -> std::vector<Tensor> {
                      if constexpr (std::is_same_v<decltype(run()), Tensor>) {
                        return {run()};
                      } else {
                        return run();
                      }
                    }});
  }

  std::vector<PlainCase> list;

 private:
  DType dtype_;
  Device device_;
  Generator generator_;
};

/** @name Sets that have files of their own
 *  @{ */
void add_binaries(Cases& c);
void add_comparisons(Cases& c);
void add_unaries(Cases& c);
void add_reductions(Cases& c);
void add_rows(Cases& c);
void add_losses(Cases& c);
void add_pointwise(Cases& c);
void add_selections(Cases& c);
void add_fills(Cases& c);
void add_blocks(Cases& c);
void add_optimisers(Cases& c);
void add_images(Cases& c);
/** @} */

}  // namespace bs::bench
