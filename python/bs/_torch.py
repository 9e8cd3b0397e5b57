"""The operations as functions of PyTorch's autograd."""

import torch
from torch.autograd.function import once_differentiable

from ._tensor import like, stream_of, tensor


class Recorded(torch.autograd.Function):
    """One function for all operations, which come as its first argument.

    The second are the tensors among the operation's own options.
    """

    @staticmethod
    def forward(ctx, operation, options, *arrays):
        inputs = [tensor(array) for array in arrays]
        made, ctx.kept = operation.forward(inputs)
        ctx.operation = operation
        ctx.set_materialize_grads(False)
        results = tuple(like(result, arrays[0]) for result in made)
        # Also what `kept` has anyway, be it inputs, results or options such as a mask: PyTorch then
        # notices that one was changed in place.
        ctx.save_for_backward(*arrays, *options, *(results if operation.reads_results else ()))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        wanted = ctx.needs_input_grad[2:]
        arrays = ctx.saved_tensors[: len(wanted)]
        if all(grad is None for grad in grads):
            return (None,) * (len(wanted) + 2)
        with stream_of(arrays[0]):
            made = ctx.operation.backward([tensor(a) for a in arrays], ctx.kept,
                                          [tensor(g) for g in grads], wanted)
            return (None, None, *(like(g, arrays[0]) if w else None for g, w in zip(made, wanted)))
