#include "device/device_rails.h"

#include "exchange/dense_body.h"

namespace fairring {

void DeviceRails::sum(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice, std::size_t step,
                      const std::vector<Transfer>& transfers) {
  const Sums sums = DenseBody::sums(slice, step, transfers);
  for (const Sum& sum : sums) accelerator.reduce(stream, sum.reduction, sum.out, sums.inputsOf(sum), sum.elements);
}

}  // namespace fairring
