"""Tensors: arrays of other libraries in and out, without a copy, by DLPack."""

import contextlib
import ctypes
import sys

from ._library import Handle, Pointer, Structure, call, library

_VERSIONED = b"dltensor_versioned"
_UNVERSIONED = b"dltensor"
_USED = {_VERSIONED: b"used_dltensor_versioned", _UNVERSIONED: b"used_dltensor"}  # names must live on
_IMPORTS = {_VERSIONED: "bs_tensor_from_dlpack", _UNVERSIONED: "bs_tensor_from_dlpack_unversioned"}

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [Pointer, ctypes.c_char_p, Pointer]
for _name, _result in (("IsValid", ctypes.c_int), ("GetPointer", Pointer), ("SetName", ctypes.c_int)):
    getattr(_api, f"PyCapsule_{_name}").restype = _result
    # By address: a capsule that is being destroyed must not be counted again.
    getattr(_api, f"PyCapsule_{_name}").argtypes = [Pointer, ctypes.c_char_p]

_DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_FORMATS = {"?": 0, "B": 1, "i": 2, "l": 3, "q": 3, "f": 6, "d": 7}
_CTYPES = {
    0: ctypes.c_bool,
    1: ctypes.c_uint8,
    2: ctypes.c_int32,
    3: ctypes.c_int64,
    6: ctypes.c_float,
    7: ctypes.c_double,
}


class _Info(Structure):
    _fields_ = [
        ("dtype", ctypes.c_int),
        ("cuda_device", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
        ("data", Pointer),
    ]


def _take(name, pointer):
    out = Pointer()
    call(_IMPORTS[name], pointer, ctypes.byref(out))
    return out


@ctypes.PYFUNCTYPE(None, Pointer)
def _drop(capsule):
    """Destroys a capsule; the tensor of one that nobody took is freed by taking it."""
    for name in _IMPORTS:
        if _api.PyCapsule_IsValid(capsule, name):
            library.bs_tensor_free(_take(name, _api.PyCapsule_GetPointer(capsule, name)))


class Tensor(Handle):
    """An array of the library. Others read it by DLPack: numpy.from_dlpack(t), torch.from_dlpack(t)."""

    _free = staticmethod(library.bs_tensor_free)
    _owner = None  # of memory that the library only looks at

    @classmethod
    def from_buffer(cls, buffer, shape=None):
        """A view of a writable buffer of Python's (array.array, bytearray, memoryview)."""
        view = memoryview(buffer)
        if view.format not in _FORMATS or not view.c_contiguous:
            raise TypeError(f"bs: a buffer of format {view.format!r} is no tensor")
        shape = tuple(view.shape) if shape is None else tuple(shape)
        count = 1
        for extent in shape:
            count *= extent
        if count * view.itemsize != view.nbytes:
            raise ValueError(f"bs: a buffer of {view.nbytes} bytes for shape {shape}")
        flat = view.cast("B")
        memory = (ctypes.c_char * flat.nbytes).from_buffer(flat) if flat.nbytes else None
        out = Pointer()
        call("bs_tensor_from_memory", memory, _FORMATS[view.format], len(shape),
             (ctypes.c_int64 * len(shape))(*shape), ctypes.byref(out))
        tensor = cls(out.value)
        tensor._owner = (buffer, memory)
        return tensor

    @classmethod
    def from_pointer(cls, address, shape, dtype, strides=None, cuda_device=-1):
        """A view of memory at an address, which must outlive it; strides count elements.

        dtype: "float32" and so on. cuda_device: the number of a GPU, or -1 for host memory.
        """
        if dtype not in _DTYPES:
            raise ValueError(f"bs: dtype {dtype!r} is none of {_DTYPES}")
        shape = tuple(shape)
        if len(shape) > 8 or (strides is not None and len(strides) != len(shape)):
            raise ValueError(f"bs: shape {shape}, strides {strides}")
        if strides is None:
            strides = [1] * len(shape)
            for i in range(len(shape) - 1, 0, -1):
                strides[i - 1] = strides[i] * shape[i]
        info = _Info(_DTYPES.index(dtype), cuda_device, len(shape), shape, tuple(strides), address)
        out = Pointer()
        call("bs_tensor_from_pointer", ctypes.byref(info), ctypes.byref(out))
        return cls(out.value)

    def _info(self):
        info = _Info()
        call("bs_tensor_describe", self, ctypes.byref(info))
        return info

    @property
    def shape(self):
        info = self._info()
        return tuple(info.shape[: info.rank])

    @property
    def dtype(self):
        return _DTYPES[self._info().dtype]

    def tolist(self):
        """Nested lists of numbers; of host memory, and not of 16-bit types."""
        info = self._info()
        if info.cuda_device >= 0 or info.dtype not in _CTYPES:
            raise TypeError(f"bs: tolist of {self!r}")
        values = ctypes.cast(info.data, ctypes.POINTER(_CTYPES[info.dtype]))

        def listed(axis, offset):
            if axis == info.rank:
                return values[offset]
            return [listed(axis + 1, offset + i * info.strides[axis]) for i in range(info.shape[axis])]

        return listed(0, 0)

    def __repr__(self):
        info = self._info()
        where = "cpu" if info.cuda_device < 0 else f"cuda:{info.cuda_device}"
        return f"bs.Tensor({self.shape}, {self.dtype}, {where})"

    def __dlpack_device__(self):
        device = self._info().cuda_device
        return (1, 0) if device < 0 else (2, device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule. Work under way is not waited for: the reader uses the stream of this one."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("bs: a tensor is handed over where it is, without a copy")
        if self._owner is not None:  # which could not follow the capsule
            raise BufferError("bs: a view of a Python buffer; hand over the buffer itself")
        versioned = max_version is not None and max_version[0] >= 1
        out = Pointer()
        call("bs_tensor_to_dlpack" + ("" if versioned else "_unversioned"), self, ctypes.byref(out))
        name = _VERSIONED if versioned else _UNVERSIONED
        return _api.PyCapsule_New(out, name, ctypes.cast(_drop, Pointer))


def is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def tensor(array):
    """What the library computes on: the same memory, or a copy of what is read-only."""
    if array is None or isinstance(array, Tensor):
        return array
    if is_torch(array):
        array = array.detach()
        capsule = array.__dlpack__(stream=-1) if array.is_cuda else array.__dlpack__()
    elif hasattr(array, "__dlpack__"):
        try:
            capsule = array.__dlpack__()
        except BufferError:
            capsule = array.copy().__dlpack__()
    else:
        return Tensor.from_buffer(array)
    for name in _IMPORTS:
        if _api.PyCapsule_IsValid(id(capsule), name):
            taken = _take(name, _api.PyCapsule_GetPointer(id(capsule), name))
            _api.PyCapsule_SetName(id(capsule), _USED[name])
            return Tensor(taken.value)
    raise TypeError(f"bs: {type(array).__name__} gave a capsule of another kind")


def like(made, array):
    """A result as what `array` is: a torch, numpy or cupy array; else a bs.Tensor."""
    # A user's subclass of torch.Tensor stands in a module of the user's.
    module = "torch" if is_torch(array) else type(array).__module__.split(".")[0]
    if made is None or isinstance(array, Tensor) or module not in ("torch", "numpy", "cupy"):
        return made
    return sys.modules[module].from_dlpack(made)


@contextlib.contextmanager
def stream_of(array):
    """Runs on the current stream of the library whose arrays are on a GPU."""
    handle = None
    if is_torch(array) and array.is_cuda:
        current = sys.modules["torch"].cuda.current_stream(array.device)
        handle = (array.device.index, current.cuda_stream)
    elif type(array).__module__.split(".")[0] == "cupy":
        handle = (array.device.id, sys.modules["cupy"].cuda.get_current_stream().ptr)
    if handle is None:
        yield
        return
    scope = Pointer()
    call("bs_stream_enter", handle[0], handle[1], ctypes.byref(scope))
    try:
        yield
    finally:
        library.bs_stream_leave(scope)
