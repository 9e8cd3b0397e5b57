#pragma once
/** @file A mark for functions that run on the host and on the device; it means nothing to a host
 *  compiler. */
#if defined(__CUDACC__)
#define BS_HOST_DEVICE __host__ __device__
#else
#define BS_HOST_DEVICE
#endif
