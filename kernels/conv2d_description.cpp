#include <bs/kernels/conv2d_description.h>

namespace bs {

namespace {

bool on_warpgroups(const GemmDescription& d) { return d.tile.math.op_class == OpClass::warpgroup; }

/// Threads that gather share a line's pieces of 16 bytes evenly.
void check_gather(const Conv2dDescription& d) {
  const auto [rows, columns, depth] = d.tile.threadblock;
  const bool filters = d.kind == Conv2dKind::wgrad;
  const int line = filters ? columns : depth, pieces = line * size_of(d.a.element) / 16;
  BS_CHECK(pieces > 0 && d.tile.threads() % pieces == 0,
           "conv2d_operation: {} threads do not share {} elements of {}, which are gathered in "
           "pieces of 16 bytes",
           d.tile.threads(), line, d.a.element);
}

void check_iterator(const Conv2dDescription& d) {
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  BS_CHECK(!warpgroup || d.iterator == Conv2dIterator::optimized,
           "conv2d_operation: warpgroups take pixels from the copy engine: optimized, not {}",
           d.iterator);
  BS_CHECK(!warpgroup || size_of(d.a.element) == 2,
           "conv2d_operation: warpgroups multiply f16 and bf16, not {}", d.a.element);
  const bool by_count =
      d.iterator == Conv2dIterator::fixed_channels || d.iterator == Conv2dIterator::few_channels;
  BS_CHECK(!by_count || d.kind == Conv2dKind::fprop, "conv2d_operation: {} is for fprop, not {}",
           d.iterator, d.kind);
}

}  // namespace

void check(const Conv2dDescription& d) {
  const Element e = d.a.element;
  BS_CHECK(e == Element::f16 || e == Element::bf16 || e == Element::f32 || e == Element::f64,
           "conv2d_operation: operands of {}; expected f16, bf16, f32 or f64", e);
  BS_CHECK(d.b.element == e, "conv2d_operation: a is {}, b is {}; they are alike", e, d.b.element);
  BS_CHECK(d.epilogue.reductions().empty(),
           "conv2d_operation: an epilogue with the reduction '{}'; there are none for convolutions",
           d.epilogue.reductions().front().name);
  BS_CHECK(d.swizzle != Swizzle::stream_k,
           "conv2d_operation: stream_k; the depth of a convolution goes in slices");
  BS_CHECK(d.tile.cluster == (std::array<int, 2>{1, 1}),
           "conv2d_operation: a cluster of {}x{}; CTAs of a convolution share depth alone",
           d.tile.cluster[0], d.tile.cluster[1]);
  check_iterator(d);
  check(gemm_of(d));
  if (d.tile.math.op_class != OpClass::warpgroup) check_gather(d);
}

Conv2dLoads loads_of(const Conv2dDescription& d) {
  return {.phases = d.kind == Conv2dKind::dgrad && d.stride == StrideSupport::strided &&
                    d.tile.math.op_class == OpClass::warpgroup && d.split_k == SplitK::none};
}

GemmDescription gemm_of(const Conv2dDescription& d) {
  const bool filters = d.kind == Conv2dKind::wgrad;
  // Pixels of phases lie between each other, and the copy engine stores 16 bits alone.
  const bool scattered =
      d.kind == Conv2dKind::dgrad && d.stride == StrideSupport::strided && !loads_of(d).phases;
  const bool boxes = !scattered && d.d.element == d.a.element;
  const bool warpgroup = d.tile.math.op_class == OpClass::warpgroup;
  const auto k_first = MatrixLayout::column_major, k_last = MatrixLayout::row_major;
  GemmDescription product{
      .tile = d.tile,
      .a = {d.a.element, filters ? k_first : k_last, d.a.alignment},
      .b = {d.b.element, d.kind == Conv2dKind::fprop ? k_first : k_last, d.b.alignment},
      .d = {d.d.element, MatrixLayout::row_major, warpgroup && !boxes ? 1 : d.d.alignment},
      .epilogue = d.epilogue,
      .swizzle = d.swizzle,
      .split_k = d.split_k,
      .mode = GemmMode::batched};
  product.epilogue.set_d(d.d.element);
  return product;
}

std::string conv2d_name(Conv2dKind kind, const GemmDescription& d, Conv2dLoads loads) {
  const auto [rows, columns, depth] = d.tile.threadblock;
  return format("{}conv2d_{}_{}_{}_{}x{}x{}", loads.blocks ? "block_sparse_" : "", kind,
                d.tile.math.op_class, d.a.element, rows, columns, depth);
}

GemmLoaderText conv2d_loader(Conv2dKind kind, const GemmDescription& d, Conv2dLoads loads) {
  const bool gradient = kind == Conv2dKind::wgrad;
  if (!on_warpgroups(d))
    return {"conv/conv2d_portable", "Conv2dPortableLoader", "Conv2dPortableParams"};
  const char* const part = gradient ? "FilterLoader" : loads.phases ? "PhaseLoader" : "PixelLoader";
  if (loads.blocks)
    return {"conv/block_sparse_conv2d_loader", format("BlockSparse{}", part),
            "BlockSparseConv2dParams"};
  return {"conv/conv2d_loader", format("Conv2d{}", part), "Conv2dParams"};
}

std::string to_conv2d_source(Conv2dKind kind, const GemmDescription& d, Conv2dLoads loads) {
  return to_loader_source(d, conv2d_name(kind, d, loads), conv2d_loader(kind, d, loads));
}

std::string to_conv2d_join_source(Conv2dKind kind, const GemmDescription& d, Conv2dLoads loads) {
  return to_loader_join_source(d, conv2d_name(kind, d, loads) + "_join",
                               conv2d_loader(kind, d, loads));
}

std::string to_string(Conv2dKind kind) {
  constexpr const char* names[] = {"fprop", "dgrad", "wgrad"};
  return names[static_cast<size_t>(kind)];
}
std::string to_string(Conv2dIterator iterator) {
  constexpr const char* names[] = {"analytic", "optimized", "fixed_channels", "few_channels"};
  return names[static_cast<size_t>(iterator)];
}
std::string to_string(StrideSupport stride) {
  return stride == StrideSupport::unit ? "unit" : "strided";
}

}  // namespace bs
