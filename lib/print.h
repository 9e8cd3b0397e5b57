#pragma once
/** @file Shapes, dtypes and devices written to streams, as to_string says them. */
#include <bs/lib/device.h>
#include <bs/lib/dims.h>
#include <bs/lib/dtype.h>

#include <iosfwd>

namespace bs {

std::ostream& operator<<(std::ostream& out, const Dims& dims);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace bs
