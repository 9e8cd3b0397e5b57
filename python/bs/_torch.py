"""The operations as functions of PyTorch's autograd."""

import torch
from torch.autograd.function import once_differentiable

from ._tensor import like, stream_of, tensor


class Recorded(torch.autograd.Function):
    """One function for all operations, which come as its first argument."""

    @staticmethod
    def forward(ctx, operation, *arrays):
        inputs = [tensor(array) for array in arrays]
        results, ctx.kept = operation.forward(inputs)
        ctx.operation = operation
        ctx.set_materialize_grads(False)
        # Also where `kept` has the inputs: PyTorch then notices that one was changed in place.
        ctx.save_for_backward(*arrays)
        return tuple(like(result, arrays[0]) for result in results)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        arrays, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        if all(grad is None for grad in grads):
            return (None,) * (len(arrays) + 1)
        with stream_of(arrays[0]):
            made = ctx.operation.backward([tensor(a) for a in arrays], ctx.kept,
                                          [tensor(g) for g in grads], wanted)
            return (None, *(like(g, arrays[0]) if w else None for g, w in zip(made, wanted)))
