"""Matrix products described in full, as PyCUTLASS took them: instruction, tile, schedule, epilogue."""

import ctypes
import functools
import math
import sys

from ._library import Handle, Pointer, Structure, call, library
from ._tensor import is_torch, stream_of, tensor

_ELEMENTS = ("f64", "f32", "tf32", "f16", "bf16", "i8", "i32", "e4m3", "e5m2")
_SIZES = dict(zip(_ELEMENTS, (8, 4, 4, 2, 2, 1, 4, 1, 1)))
_OF_DTYPE = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32"}
_CHOICES = {
    "op_class": ("simt", "tensor_op", "warpgroup"),
    "operation": ("multiply_add", "multiply_add_saturate", "fast_f16", "fast_bf16", "fast_f32"),
    "swizzle": ("identity1", "identity2", "identity4", "identity8", "stream_k"),
    "split_k": ("none", "serial", "parallel"),
    "activation": ("none", "relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish"),
}
# What is not said: tile, stages, warps, instruction, accumulator, class; for any GPU from 8.0 on.
_DEFAULTS = {
    "f16": ((128, 128, 32), 3, (2, 2, 1), (16, 8, 16), "f32", "tensor_op"),
    "bf16": ((128, 128, 32), 3, (2, 2, 1), (16, 8, 16), "f32", "tensor_op"),
    "f32": ((64, 64, 8), 3, (2, 2, 1), (1, 1, 1), "f32", "simt"),
    "f64": ((32, 64, 8), 2, (1, 2, 1), (1, 1, 1), "f64", "simt"),
}


class _Matrix(Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("element", "column_major", "alignment")]


class _Description(Structure):
    _fields_ = [
        ("threadblock", ctypes.c_int * 3), ("stages", ctypes.c_int), ("warps", ctypes.c_int * 3),
        ("cluster", ctypes.c_int * 2), ("cluster_k", ctypes.c_int),
        ("instruction", ctypes.c_int * 3), ("math_a", ctypes.c_int), ("math_b", ctypes.c_int),
        ("accumulator", ctypes.c_int), ("op_class", ctypes.c_int), ("operation", ctypes.c_int),
        ("a", _Matrix), ("b", _Matrix), ("d", _Matrix),
        ("c_element", ctypes.c_int), ("bias_element", ctypes.c_int), ("activation", ctypes.c_int),
        ("swizzle", ctypes.c_int), ("split_k", ctypes.c_int), ("batched", ctypes.c_int),
    ]


class _Arguments(Structure):
    _fields_ = [(name, Pointer) for name in ("a", "b", "c", "bias", "d")] + [
        ("alpha", ctypes.c_double), ("beta", ctypes.c_double), ("slices", ctypes.c_int),
    ]


class _Operation(Handle):
    _free = staticmethod(library.bs_gemm_free)


@functools.lru_cache(maxsize=256)
def _operation(description):
    out = Pointer()
    made = _Description.from_buffer_copy(description)
    call("bs_gemm_make", ctypes.byref(made), ctypes.byref(out))
    return _Operation(out.value)


def _choice(name, value):
    if value not in _CHOICES[name]:
        raise ValueError(f"bs.gemm: {name} {value!r} is none of {_CHOICES[name]}")
    return _CHOICES[name].index(value)


def _element(name, given, array):
    element = given or _OF_DTYPE.get(array.dtype)
    if element not in _ELEMENTS:
        raise ValueError(f"bs.gemm: {name} {array!r} of element {element!r}; they are {_ELEMENTS}")
    return element


def _matrix(array, element):
    """How a matrix lies: which axis is dense, and to what its addresses are aligned."""
    info = array._info()
    if info.rank not in (2, 3):
        raise ValueError(f"bs.gemm: {array!r} is neither a matrix nor a batch of them")
    shape, strides = info.shape[: info.rank], info.strides[: info.rank]
    column_major = strides[-1] != 1 and shape[-1] > 1 and (strides[-2] == 1 or shape[-2] == 1)
    steps = [strides[-1] if column_major else strides[-2]] + list(strides[:-2])
    size = _SIZES[element]
    divisor = math.gcd(info.data or 16, 16) // size
    for step in steps:
        divisor = math.gcd(divisor, step)
    return _Matrix(_ELEMENTS.index(element), column_major, max(divisor, 1))


def _empty(array, shape):
    module = type(array).__module__.split(".")[0]
    if is_torch(array):
        return array.new_empty(shape)
    if module in ("numpy", "cupy"):
        return sys.modules[module].empty(shape, array.dtype)
    raise TypeError(f"bs.gemm: give `out`, which is not made for {type(array).__name__}")


def gemm(a, b, c=None, bias=None, alpha=1.0, beta=None, activation="none", out=None, *,
         threadblock=None, stages=None, warps=None, cluster=(1, 1), cluster_k=1, instruction=None,
         accumulator=None, op_class=None, operation="multiply_add", element_a=None, element_b=None,
         element_out=None, swizzle="identity1", split_k="none", slices=1):
    """out = activation(alpha a b + beta c + bias), for matrices or batches of them; no gradient.

    a [m, k] and b [k, n] may be transposed views. bias: [n]. beta: 1 where c is given. `out` is
    made like a where it is not given; it may be c, and overlaps nothing else. The rest
    describes the kernel as docs/gemm_operation.md does, with defaults for f16, bf16, f32 and f64.
    A kernel is compiled once a machine.
    """
    arrays = [array for array in (a, b, c, bias, out) if array is not None]
    if any(is_torch(array) and array.requires_grad for array in arrays):
        raise ValueError("bs.gemm: it has no gradient; detach what requires one")
    if out is None:
        out = _empty(a, tuple(a.shape[:-1]) + (b.shape[-1],))
    elif getattr(getattr(out, "flags", None), "writeable", True) is False:
        raise ValueError("bs.gemm: out is read-only")
    beta = (0.0 if c is None else 1.0) if beta is None else beta
    with stream_of(a):
        ta, tb, tc, tbias, td = (tensor(array) for array in (a, b, c, bias, out))
        elements = [_element(*each) for each in
                    (("a", element_a, ta), ("b", element_b, tb), ("out", element_out, td))]
        known = _DEFAULTS.get(elements[0], (None,) * 6)
        given = (threadblock, stages, warps, instruction, accumulator, op_class)
        tile = [mine if mine is not None else default for mine, default in zip(given, known)]
        if None in tile:
            raise ValueError(f"bs.gemm: {elements[0]} has no default; give threadblock, stages, "
                             "warps, instruction, accumulator and op_class")
        optional = [-1 if t is None else _ELEMENTS.index(_element(name, None, t))
                    for name, t in (("c", tc), ("bias", tbias))]
        index = _ELEMENTS.index
        description = _Description(
            tuple(tile[0]), tile[1], tuple(tile[2]), tuple(cluster), cluster_k, tuple(tile[3]),
            index(elements[0]), index(elements[1]), index(tile[4]), _choice("op_class", tile[5]),
            _choice("operation", operation), _matrix(ta, elements[0]), _matrix(tb, elements[1]),
            _matrix(td, elements[2]), *optional, _choice("activation", activation),
            _choice("swizzle", swizzle), _choice("split_k", split_k), len(td.shape) == 3)
        handles = [None if t is None else t._as_parameter_ for t in (ta, tb, tc, tbias, td)]
        arguments = _Arguments(*handles, alpha, beta, slices)
        call("bs_gemm_run", _operation(bytes(description)), ctypes.byref(arguments))
    return out
