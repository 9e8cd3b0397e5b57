#pragma once
/** @file The options of convolutions as the C interface has them: internal. */
#include <bs/c/bs.h>
#include <bs/kernels/conv2d.h>

namespace bs::c {

/** @brief As the kernels take them; 0 stands for 1 where 0 makes no sense. */
inline Conv2dOptions conv2d_options(const bs_conv2d_options* o) {
  if (o == nullptr) return {};
  const auto given = [](int64_t n) { return n == 0 ? 1 : n; };
  Conv2dOptions made;
  made.stride = {given(o->stride[0]), given(o->stride[1])};
  made.dilation = {given(o->dilation[0]), given(o->dilation[1])};
  made.padding = {o->padding[0], o->padding[1], o->padding[2], o->padding[3]};
  made.groups = given(o->groups);
  return made;
}

}  // namespace bs::c
