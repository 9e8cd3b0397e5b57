"""Layouts: which blocks of a matrix exist."""

import ctypes

from ._library import Handle, Pointer, Structure, call, library
from ._tensor import Tensor, tensor


class _Size(Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("heads", "rows", "cols", "block")]


class _Info(Structure):
    _fields_ = _Size._fields_[3:] + _Size._fields_[:3] + [("nnz", ctypes.c_int64)]


def _made(name, *arguments):
    out = Pointer()
    call(f"bs_layout_{name}", *arguments, ctypes.byref(out))
    return Layout(out.value)


def _pattern(name, rows, cols, block, heads, *arguments):
    size = _Size(heads, rows, rows if cols is None else cols, block)
    return _made(name, ctypes.byref(size), *arguments)


class Layout(Handle):
    """An immutable pattern of square blocks, its own for each head. All counts are in blocks."""

    _free = staticmethod(library.bs_layout_free)

    @classmethod
    def from_mask(cls, mask, block):
        """Blocks where `mask` [rows, cols] or [heads, rows, cols] is not zero. block: 8 to 128."""
        return _made("from_mask", tensor(mask), block)

    @classmethod
    def for_conv2d(cls, mask, block):
        """Of a convolution's weight: a mask [K / block, C / block, R, S]."""
        out = Pointer()
        call("bs_conv2d_layout", tensor(mask), block, ctypes.byref(out))
        return cls(out.value)

    @classmethod
    def dense(cls, rows, cols=None, block=32, heads=1, causal=False):
        return _pattern("dense", rows, cols, block, heads, causal)

    @classmethod
    def fixed(cls, rows, block=32, heads=1, local_blocks=4, global_blocks=1, causal=False):
        return _pattern("fixed", rows, None, block, heads, local_blocks, global_blocks, causal)

    @classmethod
    def strided(cls, rows, block=32, heads=1, stride=4, causal=True):
        return _pattern("strided", rows, None, block, heads, stride, causal)

    @classmethod
    def bigbird(cls, rows, block=32, heads=1, random_blocks=1, window_blocks=3, global_blocks=1,
                seed=0, causal=False):
        return _pattern("bigbird", rows, None, block, heads, random_blocks, window_blocks,
                        global_blocks, seed, causal)

    @classmethod
    def longformer(cls, rows, block=32, heads=1, window_blocks=3, global_blocks=1, causal=False):
        return _pattern("longformer", rows, None, block, heads, window_blocks, global_blocks, causal)

    @classmethod
    def sliding_window(cls, rows, block=32, heads=1, window_blocks=3, causal=True):
        return _pattern("sliding_window", rows, None, block, heads, window_blocks, causal)

    @classmethod
    def random(cls, rows, cols=None, block=32, heads=1, density=0.1, seed=0, causal=False):
        return _pattern("random", rows, cols, block, heads, density, seed, causal)

    def __copy__(self):
        return self  # it never changes, so a copy is no other

    def __deepcopy__(self, memo):
        return self

    def transpose(self):
        return _made("transpose", self)

    def mask(self):
        """The pattern as a bs.Tensor of uint8, [heads, rows, cols]."""
        out = Pointer()
        call("bs_layout_mask", self, ctypes.byref(out))
        return Tensor(out.value)

    def _info(self):
        info = _Info()
        call("bs_layout_describe", self, ctypes.byref(info))
        return info

    block = property(lambda self: self._info().block)
    heads = property(lambda self: self._info().heads)
    rows = property(lambda self: self._info().rows)
    cols = property(lambda self: self._info().cols)
    nnz = property(lambda self: self._info().nnz)

    def __repr__(self):
        i = self._info()
        return f"bs.Layout({i.heads} heads of {i.rows}x{i.cols} blocks of {i.block}, {i.nnz} kept)"
