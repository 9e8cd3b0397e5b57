"""The exchange of arrays with CuPy, by a stand-in whose arrays lie in memory of the host."""

import sys
import types
import unittest
from array import array
from unittest import mock

import bs

STREAM = 0x5EED


class ndarray:
    """What the package reads of a CuPy array."""

    device = types.SimpleNamespace(id=3)

    def __init__(self, tensor, memory=None):
        self._tensor, self._memory = tensor, memory
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def __dlpack__(self, stream=None):
        return self._tensor.__dlpack__()

    def tolist(self):
        return self._tensor.tolist()


def filled(shape, dtype, value):
    count = 1
    for extent in shape:
        count *= extent
    memory = array({"float32": "f", "float64": "d"}[dtype], [value] * count)
    return ndarray(bs.Tensor.from_pointer(memory.buffer_info()[0], shape, dtype), memory)


def stand_in():
    module = types.ModuleType("cupy")
    module.ndarray = ndarray
    module.empty = lambda shape, dtype: filled(shape, dtype, float("nan"))
    module.from_dlpack = ndarray
    stream = types.SimpleNamespace(ptr=STREAM)
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: stream)
    ndarray.__module__ = "cupy"
    return module


class Cupy(unittest.TestCase):
    def setUp(self):
        """Streams of a GPU are written down; everything else is done by the library."""
        self.streams = []
        exchange = sys.modules["bs._tensor"]
        call = exchange.call

        def noting(name, *arguments):
            if name == "bs_stream_enter":
                self.streams.append(("enter", *arguments[:2]))
            else:
                call(name, *arguments)

        for patch in (mock.patch.dict(sys.modules, {"cupy": stand_in()}),
                      mock.patch.object(exchange, "call", noting),
                      mock.patch.object(exchange.library, "bs_stream_leave",
                                        lambda scope: self.streams.append(("leave",)))):
            patch.start()
            self.addCleanup(patch.stop)
        self.layout = bs.Layout.dense(2, block=8)

    def check_streams(self):
        self.assertEqual(self.streams, [("enter", 3, STREAM), ("leave",)])

    def test_arrays_come_out_as_they_went_in(self):
        values = bs.sdd(filled((16, 4), "float32", 1), filled((4, 16), "float32", 2), self.layout)
        self.assertIsInstance(values, ndarray)
        self.assertEqual((values.shape, values.dtype), ((self.layout.nnz, 8, 8), "float32"))
        self.assertEqual(values.tolist()[0][7], [8.0] * 8)
        self.check_streams()

    def test_several_results(self):
        x, w = filled((3, 1, 2), "float64", 1), filled((4, 2), "float64", 1)
        results = bs.lstm(x, (w, filled((4, 1), "float64", 1)))
        self.assertEqual([type(r) for r in results], [ndarray] * 3)
        self.assertEqual(results[1].tolist(), results[0].tolist()[2])
        self.check_streams()

    def test_gemm_makes_its_result(self):
        got = bs.gemm(filled((2, 3), "float32", 1), filled((3, 5), "float32", 2), alpha=2)
        self.assertIsInstance(got, ndarray)
        self.assertEqual(got.tolist(), [[12.0] * 5] * 2)
        self.check_streams()

    def test_the_stream_is_left_behind_an_error(self):
        with self.assertRaisesRegex(Exception, "sdd"):
            bs.sdd(filled((16, 4), "float32", 1), filled((5, 16), "float32", 2), self.layout)
        self.check_streams()


if __name__ == "__main__":
    unittest.main()
