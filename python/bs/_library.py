"""libbs_c by ctypes: where it is, what its functions take, and its errors as exceptions."""

import ctypes
import operator
import os

Pointer = ctypes.c_void_p


class Error(RuntimeError):
    """An argument is wrong, or a call failed; the text says which, what and the values."""


class OutOfMemory(Error, MemoryError):
    """Memory of the host or of a GPU could not be had."""


class CudaError(Error):
    """A call into CUDA failed."""


_KINDS = {2: OutOfMemory, 3: CudaError}

# p: a handle or NULL, o: the place of a handle, s: a structure by pointer, i, q, Q, d: numbers
_SIGNATURES = {
    "bs_stream_enter": "ipo",
    "bs_tensor_from_dlpack": "po",
    "bs_tensor_from_dlpack_unversioned": "po",
    "bs_tensor_to_dlpack": "po",
    "bs_tensor_to_dlpack_unversioned": "po",
    "bs_tensor_from_memory": "piiso",
    "bs_tensor_describe": "ps",
    "bs_tensor_from_pointer": "so",
    "bs_gemm_make": "so",
    "bs_gemm_run": "ps",
    "bs_layout_from_mask": "pio",
    "bs_layout_dense": "sio",
    "bs_layout_fixed": "siiio",
    "bs_layout_strided": "siio",
    "bs_layout_bigbird": "siiiQio",
    "bs_layout_longformer": "siiio",
    "bs_layout_sliding_window": "siio",
    "bs_layout_random": "sdQio",
    "bs_layout_transpose": "po",
    "bs_layout_mask": "po",
    "bs_layout_describe": "ps",
    "bs_sdd": "pppio",
    "bs_sdd_backward": "pppipoo",
    "bs_dsd": "pppio",
    "bs_dsd_backward": "pppipoo",
    "bs_dds": "pppio",
    "bs_dds_backward": "pppipoo",
    "bs_to_dense": "ppo",
    "bs_to_sparse": "ppo",
    "bs_block_sparse_softmax": "ppdipo",
    "bs_block_sparse_softmax_backward": "ppdpo",
    "bs_sparse_attention": "ppppsoo",
    "bs_sparse_attention_backward": "ppooo",
    "bs_lstm_forward": "psipso",
    "bs_lstm_backward": "psos",
    "bs_transducer_loss": "ppppsoo",
    "bs_transducer_loss_backward": "ppo",
    "bs_conv2d": "pppso",
    "bs_conv2d_backward": "ppspooo",
    "bs_conv2d_layout": "pio",
    "bs_block_sparse_conv2d": "pspso",
    "bs_block_sparse_conv2d_backward": "psspooo",
}
_TYPES = {
    "p": Pointer,
    "s": Pointer,
    "o": ctypes.POINTER(Pointer),
    "i": ctypes.c_int,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "d": ctypes.c_double,
}


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libbs_c.so")
    path = os.environ.get("BS_LIBRARY") or (beside if os.path.exists(beside) else "libbs_c.so")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"bs: {path} cannot be loaded ({error}); $BS_LIBRARY may name it") from error
    for name, letters in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[letter] for letter in letters]
        function.restype = ctypes.c_int
    for name in ("tensor", "layout", "attention", "lstm", "transducer", "gemm"):
        getattr(library, f"bs_{name}_free").argtypes = [Pointer]
        getattr(library, f"bs_{name}_free").restype = None
    library.bs_stream_leave.argtypes = [Pointer]
    library.bs_stream_leave.restype = None
    library.bs_last_error.restype = ctypes.c_char_p
    library.bs_version.restype = ctypes.c_char_p
    return library


library = _load()


# What fits; of others ctypes would take the lower bits without a word. A seed may be negative too.
_RANGES = {
    ctypes.c_int: range(-(1 << 31), 1 << 31),
    ctypes.c_int64: range(-(1 << 63), 1 << 63),
    ctypes.c_uint64: range(-(1 << 63), 1 << 64),
}


def _check(what, value, kind):
    fitting = _RANGES.get(kind)
    if fitting is not None and operator.index(value) not in fitting:
        raise ValueError(f"bs: {what} {value} is outside [{fitting.start}, {fitting.stop})")


def call(name, *arguments):
    """Calls a function that returns a status. Raises Error for one that is not BS_OK."""
    for letter, value in zip(_SIGNATURES[name], arguments):
        _check(f"{name[3:]}: a number", value, _TYPES[letter])
    status = getattr(library, name)(*arguments)
    if status != 0:
        text = library.bs_last_error().decode(errors="replace")
        raise _KINDS.get(status, Error)(text)


class Structure(ctypes.Structure):
    """What a function takes by pointer. Its integers are checked when it is made."""

    def __init__(self, *values, **named):
        fields = dict(self._fields_)
        for name, value in (*zip(fields, values), *named.items()):
            kind = fields[name]
            if issubclass(kind, ctypes.Array):
                for element in value:
                    _check(name, element, kind._type_)
            else:
                _check(name, value, kind)
        super().__init__(*values, **named)


class Handle:
    """Owns one handle of the library."""

    _free = None

    def __init__(self, pointer):
        self._as_parameter_ = pointer

    def __del__(self):
        pointer, self._as_parameter_ = getattr(self, "_as_parameter_", None), None
        if pointer is not None:
            self._free(pointer)

    def __reduce_ex__(self, protocol):
        # A copy of the attributes would free the same handle once more.
        raise TypeError(f"bs: a {type(self).__name__} can be neither copied nor pickled")


class Saved(Handle):
    """What a backward needs of its forward."""

    def __init__(self, kind, pointer):
        super().__init__(pointer)
        self._free = getattr(library, f"bs_{kind}_free")
