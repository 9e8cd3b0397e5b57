"""The operations: each knows its forward and its backward, on handles.

`forward(inputs)` returns results and what backward needs besides the inputs. `backward(inputs,
saved, grads, wanted)` returns the gradient of each input, or None where `wanted` is False.
"""

import ctypes
from dataclasses import dataclass

from ._layout import Layout
from ._library import Pointer, Saved, Structure, call
from ._tensor import Tensor


def _made(name, *arguments):
    """The one result of a function."""
    out = Pointer()
    call(name, *arguments, ctypes.byref(out))
    return Tensor(out.value)


def _gradients(name, arguments, wanted):
    """The results of a function that takes NULL for the place of what is not wanted."""
    outs = [Pointer() if want else None for want in wanted]
    call(name, *arguments, *(None if out is None else ctypes.byref(out) for out in outs))
    return [None if out is None else Tensor(out.value) for out in outs]


class Operation:
    reads_results = False  # whether backward looks at the memory of what forward returned


@dataclass
class Product(Operation):
    """sdd, dsd or dds: two operands, and a layout that stands where the sparse matrix is."""

    name: str
    layout: Layout
    transpose: int

    def _arguments(self, first, second):
        if self.name == "dsd":
            return first, self.layout, second, self.transpose
        return first, second, self.layout, self.transpose

    def forward(self, inputs):
        return [_made(f"bs_{self.name}", *self._arguments(*inputs))], None

    def backward(self, inputs, saved, grads, wanted):
        arguments = (*self._arguments(*inputs), grads[0])
        return _gradients(f"bs_{self.name}_backward", arguments, wanted)


@dataclass
class Convert(Operation):
    """to_dense and to_sparse, each the other's gradient."""

    names: tuple
    layout: Layout

    def forward(self, inputs):
        return [_made(self.names[0], inputs[0], self.layout)], None

    def backward(self, inputs, saved, grads, wanted):
        return [_made(self.names[1], grads[0], self.layout)]


@dataclass
class Softmax(Operation):
    layout: Layout
    scale: float
    causal: bool
    mask: Tensor
    reads_results = True

    def forward(self, inputs):
        y = _made("bs_block_sparse_softmax", inputs[0], self.layout, self.scale, self.causal, self.mask)
        return [y], y

    def backward(self, inputs, saved, grads, wanted):
        return [_made("bs_block_sparse_softmax_backward", saved, self.layout, self.scale, grads[0])]


class _AttentionOptions(Structure):
    _fields_ = [("scale", ctypes.c_double), ("causal", ctypes.c_int), ("mask", Pointer)]


@dataclass
class Attention(Operation):
    layout: Layout
    scale: float
    causal: bool
    mask: Tensor
    reads_results = True

    def forward(self, inputs):
        mask = None if self.mask is None else self.mask._as_parameter_
        options = _AttentionOptions(self.scale, self.causal, mask)
        out, saved = Pointer(), Pointer()
        call("bs_sparse_attention", *inputs, self.layout, ctypes.byref(options), ctypes.byref(out),
             ctypes.byref(saved))
        return [Tensor(out.value)], Saved("attention", saved.value)

    def backward(self, inputs, saved, grads, wanted):
        return _gradients("bs_sparse_attention_backward", (saved, grads[0]), wanted)


def _structure(*names):
    return type("Structure", (Structure,), {"_fields_": [(name, Pointer) for name in names]})


_States = _structure("y", "h_n", "c_n")
_Gradients = _structure("ih", "hh", "bias_ih", "bias_hh", "hr", "h0", "c0")


class _Direction(Structure):
    _fields_ = [
        (name, Pointer)
        for name in ("ih", "hh", "bias_ih", "bias_hh", "hr", "layout", "h0", "c0")
    ] + [("reverse", ctypes.c_int)]


def _pointer(handle):
    return None if handle is None else handle._as_parameter_


@dataclass
class LSTM(Operation):
    """Inputs: x, ih, hh, bias_ih, bias_hh, hr, h0, c0; all but the first three may be None."""

    layout: Layout
    lengths: Tensor
    reverse: bool
    reads_results = True

    def forward(self, inputs):
        x, ih, hh, bias_ih, bias_hh, hr, h0, c0 = inputs
        handles = [_pointer(h) for h in (ih, hh, bias_ih, bias_hh, hr, self.layout, h0, c0)]
        direction, states, saved = _Direction(*handles, self.reverse), _States(), Pointer()
        call("bs_lstm_forward", x, ctypes.byref(direction), 1, self.lengths, ctypes.byref(states),
             ctypes.byref(saved))
        results = [Tensor(states.y), Tensor(states.h_n), Tensor(states.c_n)]
        return results, Saved("lstm", saved.value)

    def backward(self, inputs, saved, grads, wanted):
        upstream, dx, out = _States(*(_pointer(g) for g in grads)), Pointer(), _Gradients()
        call("bs_lstm_backward", saved, ctypes.byref(upstream),
             ctypes.byref(dx) if wanted[0] else None, ctypes.byref(out))
        made = [dx.value] + [getattr(out, name) for name, _ in out._fields_]
        return [None if pointer is None else Tensor(pointer) for pointer in made]


class _TransducerOptions(Structure):
    _fields_ = [
        ("blank", ctypes.c_int64),
        ("reduction", ctypes.c_int),
        ("clamp", ctypes.c_double),
        ("fastemit_lambda", ctypes.c_double),
    ]


@dataclass
class Transducer(Operation):
    """Inputs: logits, targets, logit_lengths, target_lengths."""

    blank: int
    reduction: int
    clamp: float
    fastemit_lambda: float

    def forward(self, inputs):
        options = _TransducerOptions(self.blank, self.reduction, self.clamp, self.fastemit_lambda)
        loss, saved = Pointer(), Pointer()
        call("bs_transducer_loss", *inputs, ctypes.byref(options), ctypes.byref(loss),
             ctypes.byref(saved))
        return [Tensor(loss.value)], Saved("transducer", saved.value)

    def backward(self, inputs, saved, grads, wanted):
        return [_made("bs_transducer_loss_backward", saved, grads[0]), None, None, None]


class ConvOptions(Structure):
    _fields_ = [
        ("stride", ctypes.c_int64 * 2),
        ("dilation", ctypes.c_int64 * 2),
        ("padding", ctypes.c_int64 * 4),
        ("groups", ctypes.c_int64),
    ]


@dataclass
class Conv2d(Operation):
    """Inputs: x, weight, bias or None."""

    options: ConvOptions

    def forward(self, inputs):
        return [_made("bs_conv2d", *inputs, ctypes.byref(self.options))], None

    def backward(self, inputs, saved, grads, wanted):
        arguments = (inputs[0], inputs[1], ctypes.byref(self.options), grads[0])
        return _gradients("bs_conv2d_backward", arguments, wanted)


class _Blocks(Structure):
    _fields_ = [("values", Pointer), ("layout", Pointer), ("r", ctypes.c_int64), ("s", ctypes.c_int64)]


@dataclass
class BlockSparseConv2d(Operation):
    """Inputs: x, values, bias or None."""

    layout: Layout
    kernel: tuple
    options: ConvOptions

    def _weight(self, values):
        return _Blocks(_pointer(values), _pointer(self.layout), *self.kernel)

    def forward(self, inputs):
        x, values, bias = inputs
        weight = self._weight(values)
        return [_made("bs_block_sparse_conv2d", x, ctypes.byref(weight), bias,
                      ctypes.byref(self.options))], None

    def backward(self, inputs, saved, grads, wanted):
        weight = self._weight(inputs[1])
        arguments = (inputs[0], ctypes.byref(weight), ctypes.byref(self.options), grads[0])
        return _gradients("bs_block_sparse_conv2d_backward", arguments, wanted)
