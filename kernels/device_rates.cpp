#include <bs/kernels/device_rates.h>

namespace bs {

DeviceRates device_rates(Device device) {
  check_usable("device_rates", device);
  DeviceRates rates;
  BS_DISPATCH(device, device_rates, rates);
  return rates;
}

}  // namespace bs
