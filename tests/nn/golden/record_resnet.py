#!/usr/bin/env python3
"""Records torchvision's ResNets.

    pip install torch torchvision && python3 record_resnet.py resnet_names.txt resnet.txt

The first file gets names and shapes of parameters and buffers. The second gets the logits of images
while training, and the gradient of two weights, for parameters and images that the C++ test makes
from the same integer formula; see record_lstm.py. All in double on the CPU.
"""

import sys

import numpy
import torch
import torchvision

from record_lstm import write


def values(shape, number):
    """That of record_lstm.py, for many elements."""
    z = numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64) * 2654435761
    z = (z + number * 40503 + 12345) % 2**32
    z ^= z >> 15
    z = z * 2246822519 % 2**32
    z ^= z >> 13
    return torch.from_numpy((z % 4096).astype(numpy.float64) / 2048 - 1).reshape(tuple(shape))


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as names, open(sys.argv[2], "w") as results:
        for file in names, results:
            print(f"# torchvision {torchvision.__version__}; see record_resnet.py", file=file)
        for depth in (18, 50):
            model = getattr(torchvision.models, f"resnet{depth}")(num_classes=10)
            print("model", depth, file=names)
            for name, tensor in model.state_dict().items():
                print(name, *tensor.shape, file=names)
            print("case", depth, file=results)
            model = model.double()
            for number, (_, parameter) in enumerate(sorted(model.named_parameters())):
                parameter.data = values(parameter.shape, 10 + number)
            y = model(values((2, 3, 64, 64), 1))
            (y * values(y.shape, 4)).sum().backward()
            write(results, "y", y)
            write(results, "fc.weight", model.fc.weight.grad)
            write(results, "layer4.0.downsample.0.weight", model.layer4[0].downsample[0].weight.grad)
            write(results, "bn1.running_var", model.bn1.running_var)


if __name__ == "__main__":
    main()
