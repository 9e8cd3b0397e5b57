#include <bs/c/handle.h>
#include <bs/lib/patterns.h>

namespace bs::c {

namespace {

patterns::Size extents(const char* op, const bs_size* size) {
  BS_CHECK(size != nullptr, "{}: size is NULL", op);
  return {.heads = size->heads, .rows = size->rows, .cols = size->cols, .block = size->block};
}

/// Makes a layout of `make(op)` for the caller.
template <class Make>
bs_status layout_of(const char* op, bs_layout** out, const Make& make) {
  return guarded([&] {
    place(op, out);
    *out = new bs_layout{make(op)};
  });
}

}  // namespace

}  // namespace bs::c

using namespace bs::c;
namespace patterns = bs::patterns;

bs_status bs_layout_from_mask(const bs_tensor* mask, int block, bs_layout** out) {
  return layout_of("bs_layout_from_mask", out, [&](const char* op) {
    return bs::Layout::from_mask(value(op, "mask", mask), block);
  });
}

bs_status bs_layout_dense(const bs_size* size, int causal, bs_layout** out) {
  return layout_of("bs_layout_dense", out, [&](const char* op) {
    return patterns::dense(extents(op, size), {.causal = causal != 0});
  });
}

bs_status bs_layout_fixed(const bs_size* size, int local_blocks, int global_blocks, int causal,
                          bs_layout** out) {
  return layout_of("bs_layout_fixed", out, [&](const char* op) {
    return patterns::fixed(
        extents(op, size),
        {.local_blocks = local_blocks, .global_blocks = global_blocks, .causal = causal != 0});
  });
}

bs_status bs_layout_strided(const bs_size* size, int stride, int causal, bs_layout** out) {
  return layout_of("bs_layout_strided", out, [&](const char* op) {
    return patterns::strided(extents(op, size), {.stride = stride, .causal = causal != 0});
  });
}

bs_status bs_layout_bigbird(const bs_size* size, int random_blocks, int window_blocks,
                            int global_blocks, uint64_t seed, int causal, bs_layout** out) {
  return layout_of("bs_layout_bigbird", out, [&](const char* op) {
    return patterns::bigbird(extents(op, size), {.random_blocks = random_blocks,
                                                 .window_blocks = window_blocks,
                                                 .global_blocks = global_blocks,
                                                 .seed = seed,
                                                 .causal = causal != 0});
  });
}

bs_status bs_layout_longformer(const bs_size* size, int window_blocks, int global_blocks,
                               int causal, bs_layout** out) {
  return layout_of("bs_layout_longformer", out, [&](const char* op) {
    patterns::LongformerOptions options{.window_blocks = window_blocks, .causal = causal != 0};
    options.globals.clear();
    if (global_blocks != 0) options.globals.push_back({0, global_blocks});
    return patterns::longformer(extents(op, size), options);
  });
}

bs_status bs_layout_sliding_window(const bs_size* size, int window_blocks, int causal,
                                   bs_layout** out) {
  return layout_of("bs_layout_sliding_window", out, [&](const char* op) {
    return patterns::sliding_window(extents(op, size),
                                    {.window_blocks = window_blocks, .causal = causal != 0});
  });
}

bs_status bs_layout_random(const bs_size* size, double density, uint64_t seed, int causal,
                           bs_layout** out) {
  return layout_of("bs_layout_random", out, [&](const char* op) {
    return patterns::random(extents(op, size),
                            {.density = density, .seed = seed, .causal = causal != 0});
  });
}

bs_status bs_layout_transpose(const bs_layout* layout, bs_layout** out) {
  return layout_of("bs_layout_transpose", out,
                   [&](const char* op) { return value(op, "layout", layout)->transpose(); });
}

bs_status bs_layout_mask(const bs_layout* layout, bs_tensor** out) {
  return guarded([&] {
    place("bs_layout_mask", out);
    auto made = handle(value("bs_layout_mask", "layout", layout)->mask());
    give(out, made);
  });
}

bs_status bs_layout_describe(const bs_layout* layout, bs_layout_info* out) {
  return guarded([&] {
    const bs::Layout& l = *value("bs_layout_describe", "layout", layout);
    BS_CHECK(out != nullptr, "bs_layout_describe: the place of a result is NULL");
    *out = {l.block(), l.heads(), l.rows(), l.cols(), l.nnz()};
  });
}

void bs_layout_free(bs_layout* layout) { delete layout; }
