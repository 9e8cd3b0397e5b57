"""Block-sparse products, attention, LSTM, transducer loss and convolution, on libbs_c.

Arrays go in and come out as what they are: torch tensors, with autograd; numpy and cupy arrays;
anything with `__dlpack__`, or a buffer of Python's, as a bs.Tensor. Nothing is copied on the way.
"""

from array import array as _array

from . import _operations
from ._gemm import gemm
from ._layout import Layout
from ._library import CudaError, Error, OutOfMemory, library as _library
from ._tensor import Tensor, is_torch as _is_torch, like as _like, stream_of as _stream_of
from ._tensor import tensor as _tensor

__all__ = [
    "CudaError", "Error", "Layout", "OutOfMemory", "Tensor", "attention", "block_sparse_conv2d",
    "conv2d", "cuda_device_count", "dds", "dsd", "gemm", "lstm", "rnnt_loss", "sdd", "softmax", "to_dense",
    "to_sparse",
]
__version__ = _library.bs_version().decode()


def cuda_device_count():
    """GPUs that can be used."""
    return _library.bs_cuda_device_count()


def _run(operation, *arrays, options=()):
    """Runs on arrays; `options` are those of the operation's own that backward reads as well."""
    with _stream_of(arrays[0]):
        if _is_torch(arrays[0]):
            from ._torch import Recorded
            results = Recorded.apply(operation, [o for o in options if _is_torch(o)], *arrays)
        else:
            made, _ = operation.forward([_tensor(a) for a in arrays])
            results = [_like(result, arrays[0]) for result in made]
    return results[0] if len(results) == 1 else tuple(results)


def _check_layout(name, layout):
    # Of anything else with a handle, or a number, the library would read memory that is no layout.
    if not isinstance(layout, Layout):
        raise TypeError(f"bs.{name}: layout is of {type(layout).__name__}, not a bs.Layout")


def _product(name, layout, transpose_a, transpose_b):
    _check_layout(name, layout)
    return _operations.Product(name, layout, transpose_a + 2 * transpose_b)


def sdd(a, b, layout, transpose_a=False, transpose_b=False):
    """The blocks of op(a) op(b) that `layout` names: values [..., nnz, block, block]."""
    return _run(_product("sdd", layout, transpose_a, transpose_b), a, b)


def dsd(values, layout, b, transpose_a=False, transpose_b=False):
    """op(s) op(b), where s is the block-sparse matrix of these values."""
    return _run(_product("dsd", layout, transpose_a, transpose_b), values, b)


def dds(a, values, layout, transpose_a=False, transpose_b=False):
    """op(a) op(s), where s is the block-sparse matrix of these values."""
    return _run(_product("dds", layout, transpose_a, transpose_b), a, values)


def to_dense(values, layout):
    """The dense matrix, zero where no block is stored."""
    _check_layout("to_dense", layout)
    return _run(_operations.Convert(("bs_to_dense", "bs_to_sparse"), layout), values)


def to_sparse(dense, layout):
    """The blocks of a dense matrix that `layout` names."""
    _check_layout("to_sparse", layout)
    return _run(_operations.Convert(("bs_to_sparse", "bs_to_dense"), layout), dense)


def softmax(values, layout, scale=1.0, causal=False, key_padding_mask=None):
    """Softmax over the stored columns of each row. The mask is boolean, true for columns to keep."""
    _check_layout("softmax", layout)
    mask = _tensor(key_padding_mask)
    return _run(_operations.Softmax(layout, scale, causal, mask), values)


def attention(q, k, v, layout, scale=None, causal=False, key_padding_mask=None):
    """Fused attention of q, k, v [batch, heads, length, head_dim] over the blocks of a layout.

    scale: None stands for 1 / sqrt(head_dim). The mask is boolean [batch, keys], true for keys to
    see. k and v may have fewer heads, which neighbours share.
    """
    _check_layout("attention", layout)
    if scale == 0:
        raise ValueError("bs.attention: a scale of 0")
    operation = _operations.Attention(layout, scale or 0.0, causal, _tensor(key_padding_mask))
    return _run(operation, q, k, v, options=(key_padding_mask,))


def lstm(x, weights, h0=None, c0=None, lengths=None, reverse=False, layout=None):
    """One direction of one LSTM layer over x [T, B, I], with PyTorch's weights and order of gates.

    weights: (ih [4 H, I], hh [4 H, R]), and behind them bias_ih, bias_hh and hr, each may be None.
    hh may be the blocks of `layout`. lengths: B integers; None: all are T long.
    Returns y [T, B, R], h_n [B, R] and c_n [B, H].
    """
    if not 2 <= len(weights) <= 5:
        raise ValueError(f"bs.lstm: {len(weights)} weights, where 2 to 5 are expected")
    if layout is not None:
        _check_layout("lstm", layout)
    weights = tuple(weights) + (None,) * (5 - len(weights))
    steps = None
    if lengths is not None:
        steps = Tensor.from_buffer(_array("q", [int(n) for n in lengths]))
    return _run(_operations.LSTM(layout, steps, reverse), x, *weights, h0, c0)


def rnnt_loss(logits, targets, logit_lengths, target_lengths, blank=-1, reduction="mean", clamp=0.0,
              fastemit_lambda=0.0):
    """The transducer's loss, fused with log-softmax, with torchaudio's meaning of the arguments.

    logits: [batch, frames, labels + 1, classes], or packed [rows, classes].
    """
    reductions = ("mean", "sum", "none")
    if reduction not in reductions:
        raise ValueError(f"bs.rnnt_loss: reduction {reduction!r} is none of {reductions}")
    operation = _operations.Transducer(blank, reductions.index(reduction), max(clamp, 0.0),
                                       fastemit_lambda)
    return _run(operation, logits, targets, logit_lengths, target_lengths)


def _pair(numbers):
    return (numbers, numbers) if isinstance(numbers, int) else tuple(numbers)


def _conv_options(stride, padding, dilation, groups):
    rows, cols = _pair(padding)
    for name, pair in (("stride", _pair(stride)), ("dilation", _pair(dilation)), ("groups", [groups])):
        if min(pair) < 1:  # in the C interface 0 stands for 1
            raise ValueError(f"bs.conv2d: {name} {pair}")
    return _operations.ConvOptions(_pair(stride), _pair(dilation), (rows, rows, cols, cols), groups)


def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution of x [N, C, H, W], as torch.nn.functional.conv2d."""
    options = _conv_options(stride, padding, dilation, groups)
    return _run(_operations.Conv2d(options), x, weight, bias)


def block_sparse_conv2d(x, values, layout, kernel, bias=None, stride=1, padding=0, dilation=1):
    """Convolution by the blocks of Layout.for_conv2d; kernel: rows and columns of the filter."""
    _check_layout("block_sparse_conv2d", layout)
    options = _conv_options(stride, padding, dilation, 1)
    return _run(_operations.BlockSparseConv2d(layout, _pair(kernel), options), x, values, bias)
