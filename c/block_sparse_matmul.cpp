#include <bs/kernels/block_sparse_matmul.h>

#include <bs/c/handle.h>
#include <bs/kernels/block_sparse_convert.h>

namespace bs::c {

namespace {

Transpose transposed(const char* op, int flags) {
  BS_CHECK(flags >= 0 && flags <= 3, "{}: transpose {} is no sum of BS_TRANSPOSE_A and _B", op,
           flags);
  return {.a = (flags & BS_TRANSPOSE_A) != 0, .b = (flags & BS_TRANSPOSE_B) != 0};
}

SparseTensor sparse(const char* op, const bs_tensor* values, const bs_layout* layout) {
  return {value(op, "layout", layout), value(op, "values", values)};
}

/// A result of `make(op)` for the caller.
template <class Make>
bs_status result(const char* op, bs_tensor** out, const Make& make) {
  return guarded([&] {
    place(op, out);
    auto made = handle(make(op));
    give(out, made);
  });
}

}  // namespace

}  // namespace bs::c

using namespace bs::c;

bs_status bs_sdd(const bs_tensor* a, const bs_tensor* b, const bs_layout* layout, int transpose,
                 bs_tensor** values) {
  return result("bs_sdd", values, [&](const char* op) {
    return bs::sdd(value(op, "a", a), value(op, "b", b), value(op, "layout", layout),
                   transposed(op, transpose))
        .values;
  });
}

bs_status bs_sdd_backward(const bs_tensor* a, const bs_tensor* b, const bs_layout* layout,
                          int transpose, const bs_tensor* dvalues, bs_tensor** da, bs_tensor** db) {
  return guarded([&] {
    const char* op = "bs_sdd_backward";
    clear(da, db);
    const bs::Tensor &x = value(op, "a", a), &y = value(op, "b", b);
    const bs::SparseTensor dc{value(op, "layout", layout), value(op, "dvalues", dvalues)};
    const bs::Transpose t = transposed(op, transpose);
    auto to_a = wanted(da, [&] { return bs::sdd_backward_a(dc, y, x.shape(), t); });
    auto to_b = wanted(db, [&] { return bs::sdd_backward_b(x, dc, y.shape(), t); });
    give(da, to_a);
    give(db, to_b);
  });
}

bs_status bs_dsd(const bs_tensor* values, const bs_layout* layout, const bs_tensor* b,
                 int transpose, bs_tensor** c) {
  return result("bs_dsd", c, [&](const char* op) {
    return bs::dsd(sparse(op, values, layout), value(op, "b", b), transposed(op, transpose));
  });
}

bs_status bs_dsd_backward(const bs_tensor* values, const bs_layout* layout, const bs_tensor* b,
                          int transpose, const bs_tensor* dc, bs_tensor** dvalues, bs_tensor** db) {
  return guarded([&] {
    const char* op = "bs_dsd_backward";
    clear(dvalues, db);
    const bs::SparseTensor s = sparse(op, values, layout);
    const bs::Tensor &y = value(op, "b", b), &d = value(op, "dc", dc);
    const bs::Transpose t = transposed(op, transpose);
    auto to_s =
        wanted(dvalues, [&] { return bs::dsd_backward_s(d, y, s.layout, s.values.shape(), t); });
    auto to_b = wanted(db, [&] { return bs::dsd_backward_b(s, d, y.shape(), t); });
    give(dvalues, to_s);
    give(db, to_b);
  });
}

bs_status bs_dds(const bs_tensor* a, const bs_tensor* values, const bs_layout* layout,
                 int transpose, bs_tensor** c) {
  return result("bs_dds", c, [&](const char* op) {
    return bs::dds(value(op, "a", a), sparse(op, values, layout), transposed(op, transpose));
  });
}

bs_status bs_dds_backward(const bs_tensor* a, const bs_tensor* values, const bs_layout* layout,
                          int transpose, const bs_tensor* dc, bs_tensor** da, bs_tensor** dvalues) {
  return guarded([&] {
    const char* op = "bs_dds_backward";
    clear(da, dvalues);
    const bs::SparseTensor s = sparse(op, values, layout);
    const bs::Tensor &x = value(op, "a", a), &d = value(op, "dc", dc);
    const bs::Transpose t = transposed(op, transpose);
    auto to_a = wanted(da, [&] { return bs::dds_backward_a(d, s, x.shape(), t); });
    auto to_s =
        wanted(dvalues, [&] { return bs::dds_backward_s(x, d, s.layout, s.values.shape(), t); });
    give(da, to_a);
    give(dvalues, to_s);
  });
}

bs_status bs_to_dense(const bs_tensor* values, const bs_layout* layout, bs_tensor** dense) {
  return result("bs_to_dense", dense,
                [&](const char* op) { return bs::to_dense(sparse(op, values, layout)); });
}

bs_status bs_to_sparse(const bs_tensor* dense, const bs_layout* layout, bs_tensor** values) {
  return result("bs_to_sparse", values, [&](const char* op) {
    return bs::to_sparse(value(op, "dense", dense), value(op, "layout", layout)).values;
  });
}
