// host_device.h: one macro, so that numerics are written once for host and device.
#pragma once

#ifdef __CUDACC__
#define DSV4_HOST_DEVICE __host__ __device__
#else
#define DSV4_HOST_DEVICE
#endif
