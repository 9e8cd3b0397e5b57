"""The Python package with nothing but Python: buffers in, lists out."""

import copy
import gc
import math
import pickle
import unittest
from array import array

import bs


def ones(*shape):
    return bs.Tensor.from_buffer(array("d", [1.0] * math.prod(shape)), shape)


class Smoke(unittest.TestCase):
    def test_products(self):
        layout = bs.Layout.from_mask(bs.Tensor.from_buffer(array("i", [1, 0, 1, 1]), (2, 2)), 8)
        self.assertEqual(repr(layout), "bs.Layout(1 heads of 2x2 blocks of 8, 3 kept)")
        s = bs.sdd(ones(16, 5), ones(5, 16), layout)
        self.assertEqual((s.shape, s.dtype), ((3, 8, 8), "float64"))
        self.assertEqual(s.tolist()[2][7], [5.0] * 8)
        c = bs.dsd(s, layout, ones(16, 1)).tolist()
        self.assertEqual([c[0][0], c[15][0]], [40.0, 80.0])
        self.assertEqual(bs.dds(ones(1, 16), s, layout).tolist()[0][::8], [80.0, 40.0])
        self.assertEqual(bs.to_dense(s, layout).tolist()[0], [5.0] * 8 + [0.0] * 8)
        self.assertEqual(bs.softmax(s, layout).tolist()[0][0][0], 1 / 8)

    def test_layouts(self):
        self.assertEqual(bs.Layout.dense(4, 2, block=16).nnz, 8)
        self.assertEqual(bs.Layout.sliding_window(8, heads=2).transpose().heads, 2)
        self.assertEqual(bs.Layout.random(10, density=0.5, seed=3).nnz, 50)
        mask = bs.Layout.strided(3, stride=2).mask().tolist()
        self.assertEqual(mask, [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]])

    def test_copies(self):
        layout = bs.Layout.dense(2, block=8)
        for copied in (copy.copy(layout), copy.deepcopy(layout), copy.deepcopy([layout])[0]):
            self.assertIs(copied, layout)
        kept = copy.deepcopy({"layout": layout})
        del layout, copied
        gc.collect()
        self.assertEqual(kept["layout"].nnz, 4)
        with self.assertRaisesRegex(TypeError, "a Layout can be neither copied nor pickled"):
            pickle.dumps(kept)
        for copies in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "a Tensor can be neither copied nor pickled"):
                copies(ones(2))

    def test_layers(self):
        loss = bs.rnnt_loss(ones(1, 2, 2, 3), bs.Tensor.from_buffer(array("q", [1]), (1, 1)),
                            array("q", [2]), array("q", [1]), blank=0)
        self.assertAlmostEqual(loss.tolist(), math.log(27 / 2), places=14)
        y, h_n, c_n = bs.lstm(ones(3, 1, 2), (ones(4, 2), ones(4, 1)), lengths=[2])
        self.assertEqual(y.tolist()[2], y.tolist()[1])
        self.assertEqual(h_n.tolist(), y.tolist()[1])
        out = bs.attention(ones(1, 1, 16, 4), ones(1, 1, 16, 4), ones(1, 1, 16, 4),
                           bs.Layout.dense(2, block=8))
        self.assertAlmostEqual(out.tolist()[0][0][3][1], 1.0, places=14)
        self.assertEqual(bs.conv2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2)).tolist(),
                         [[[[4.0, 4.0], [4.0, 4.0]]]])

    def test_gemm_from_raw_pointers(self):
        numbers = array("f", [1, 2, 3, 0, 4, 5, 6, 0])  # two rows, four elements apart
        a = bs.Tensor.from_pointer(numbers.buffer_info()[0], (2, 3), "float32", (4, 1))
        turned = bs.Tensor.from_pointer(numbers.buffer_info()[0], (3, 2), "float32", (1, 4))
        d = bs.Tensor.from_buffer(array("f", [0] * 4), (2, 2))
        bs.gemm(a, turned, out=d)
        self.assertEqual(d.tolist(), [[14.0, 32.0], [32.0, 77.0]])
        bias = bs.Tensor.from_buffer(array("f", [0, -200]))
        c = bs.Tensor.from_buffer(array("f", [1] * 4), (2, 2))
        bs.gemm(a, turned, c, bias, alpha=2, beta=3, activation="relu", out=d)
        self.assertEqual(d.tolist(), [[31.0, 0.0], [67.0, 0.0]])
        bs.gemm(a, turned, out=d, split_k="serial", slices=2)
        self.assertEqual(d.tolist(), [[14.0, 32.0], [32.0, 77.0]])
        with self.assertRaisesRegex(bs.Error, "inner dimensions differ"):
            bs.gemm(a, a, out=d)
        bs.gemm(a, turned, d, out=d)  # c may be the result itself
        self.assertEqual(d.tolist(), [[28.0, 64.0], [64.0, 154.0]])
        square = bs.Tensor.from_buffer(array("f", [1, 0, 0, 1]), (2, 2))
        with self.assertRaisesRegex(bs.Error, "d overlaps b"):
            bs.gemm(d, square, out=square)
        with self.assertRaisesRegex(TypeError, "give `out`"):
            bs.gemm(a, turned)
        with self.assertRaisesRegex(ValueError, "activation"):
            bs.gemm(a, turned, out=d, activation="softmax")
        with self.assertRaisesRegex(bs.Error, "data is NULL"):
            bs.Tensor.from_pointer(0, (2,), "float32")
        with self.assertRaisesRegex(bs.Error, "strides"):
            bs.Tensor.from_pointer(8, (2,), "float32", (-1,))

    def test_errors(self):
        with self.assertRaisesRegex(bs.Error, "sdd: "):
            bs.sdd(ones(16, 5), ones(4, 16), bs.Layout.dense(2, block=8))
        with self.assertRaisesRegex(bs.Error, "block"):
            bs.Layout.dense(2, block=7)
        with self.assertRaises(TypeError):
            bs.to_dense("text", bs.Layout.dense(2))
        with self.assertRaises(ValueError):
            bs.Tensor.from_buffer(array("d", [1.0]), (2,))

    def test_what_is_no_layout(self):
        a, q, mask = ones(32, 32), ones(1, 1, 32, 8), bs.Layout.dense(2, block=16).mask()
        blocks, weights = ones(4, 16, 16), (ones(4, 2), ones(4, 1))
        calls = {
            "sdd": lambda wrong: bs.sdd(a, a, wrong),
            "dsd": lambda wrong: bs.dsd(blocks, wrong, a),
            "dds": lambda wrong: bs.dds(a, blocks, wrong),
            "to_dense": lambda wrong: bs.to_dense(blocks, wrong),
            "to_sparse": lambda wrong: bs.to_sparse(a, wrong),
            "softmax": lambda wrong: bs.softmax(blocks, wrong),
            "attention": lambda wrong: bs.attention(q, q, q, wrong),
            "lstm": lambda wrong: bs.lstm(ones(3, 1, 2), weights, layout=wrong),
            "block_sparse_conv2d": lambda wrong: bs.block_sparse_conv2d(q, blocks, wrong, 1),
        }
        for name, function in calls.items():
            for wrong in (3, mask, "text"):
                with self.assertRaisesRegex(TypeError, f"^bs.{name}: layout is of"):
                    function(wrong)

    def test_numbers_that_do_not_fit(self):
        x, w = ones(1, 1, 4, 4), ones(1, 1, 3, 3)
        calls = {
            "rows": lambda: bs.Layout.dense(2**32 + 4),
            "block": lambda: bs.Layout.bigbird(8, block=2**32 + 16),
            "layout_strided": lambda: bs.Layout.strided(8, stride=2**32 + 2),
            "layout_random": lambda: bs.Layout.random(8, seed=2**64),
            "layout_from_mask": lambda: bs.Layout.from_mask(ones(2, 2), 2**32 + 8),
            "padding": lambda: bs.conv2d(x, w, padding=2**64),
            "stride": lambda: bs.conv2d(x, w, stride=(1, 2**64 + 1)),
            "groups": lambda: bs.conv2d(x, w, groups=2**64 + 1),
            "blank": lambda: bs.rnnt_loss(ones(1, 2, 2, 3), x, x, x, blank=2**64),
            "shape": lambda: bs.Tensor.from_pointer(8, (2**64 + 1,), "float32"),
            "cuda_device": lambda: bs.Tensor.from_pointer(8, (1,), "float32", cuda_device=2**32),
            "slices": lambda: bs.gemm(ones(2, 2), ones(2, 2), out=ones(2, 2), slices=2**32 + 1),
        }
        for name, function in calls.items():
            with self.assertRaisesRegex(ValueError, f"^bs: {name}.* is outside"):
                function()
        self.assertEqual(bs.Layout.random(8, seed=-1).nnz, bs.Layout.random(8, seed=2**64 - 1).nnz)

    def test_capsules(self):
        made = bs.Layout.dense(2).mask()
        for version in (None, (1, 0)):
            made.__dlpack__(max_version=version)  # dropped without a taker
            taken = bs._tensor(type("Foreign", (), {  # and taken by ourselves
                "__dlpack__": lambda self, v=version: made.__dlpack__(max_version=v)})())
            self.assertEqual(taken.tolist(), made.tolist())
        del made
        gc.collect()
        self.assertEqual(taken.tolist(), [[[1, 1], [1, 1]]])
        with self.assertRaises(BufferError):
            ones(2).__dlpack__()


if __name__ == "__main__":
    unittest.main()
