"""The Python package against PyTorch and NumPy; gradients by gradcheck and against PyTorch's."""

import copy
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: no NumPy")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

import bs

DOUBLE = {"dtype": torch.float64} if torch else {}


def mask_of(*rows):
    return np.array([[int(c) for c in row] for row in rows], dtype=np.uint8)


def spread(mask, block):
    """The pattern element by element."""
    return torch.from_numpy(np.kron(mask, np.ones((block, block)))).bool()


class Numpy(unittest.TestCase):
    def test_arrays_in_and_out(self):
        draw = np.random.default_rng(1)
        a, b = draw.normal(size=(16, 5)).astype("f4"), draw.normal(size=(5, 24)).astype("f4")
        layout = bs.Layout.from_mask(mask_of("101", "011"), 8)
        values = bs.sdd(a, b, layout)
        self.assertIsInstance(values, np.ndarray)
        self.assertEqual((values.shape, values.dtype), ((4, 8, 8), np.float32))
        np.testing.assert_allclose(values[1], (a @ b)[:8, 16:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bs.dsd(values, layout, b.T), bs.to_dense(values, layout) @ b.T,
                                   rtol=1e-4, atol=1e-4)
        a.flags.writeable = False  # copied, as DLPack has no way to say so
        np.testing.assert_array_equal(bs.sdd(a, b, layout), values)
        wide = np.zeros((16, 10), "f4")
        wide[:, ::2] = a  # strides are kept
        np.testing.assert_array_equal(bs.sdd(wide[:, ::2], b, layout), values)
        self.assertTrue((bs.to_sparse(np.ones((16, 24)), layout) == 1).all())
        np.testing.assert_array_equal(np.from_dlpack(layout.mask())[0], mask_of("101", "011"))

    def test_gemm(self):
        draw = np.random.default_rng(2)
        a, b = draw.normal(size=(3, 7, 5)), draw.normal(size=(3, 5, 9))
        bias = draw.normal(size=9)
        for dtype, close in (("f8", 1e-12), ("f4", 1e-4)):
            x, y, z = a.astype(dtype), b.astype(dtype), bias.astype(dtype)
            got = bs.gemm(x, y, bias=z, alpha=0.5, activation="silu")
            t = 0.5 * a @ b + bias
            self.assertEqual((type(got), got.dtype), (np.ndarray, np.dtype(dtype)))
            np.testing.assert_allclose(got, t / (1 + np.exp(-t)), rtol=close, atol=close)
            turned = np.ascontiguousarray(y[0].T).T  # columns are dense
            np.testing.assert_allclose(bs.gemm(x[0], turned), a[0] @ b[0], rtol=close, atol=close)
        halves = bs.gemm(a[0].astype("f2"), b[0].astype("f2"))
        self.assertEqual(halves.dtype, np.float16)
        np.testing.assert_allclose(halves, a[0] @ b[0], rtol=5e-3, atol=5e-3)
        fixed = np.zeros((7, 9))
        fixed.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            bs.gemm(a[0], b[0], out=fixed)
        numbers = draw.integers(-3, 3, size=(16, 32)).astype("i1")
        sums = bs.gemm(numbers.view("u1"), numbers.view("u1").T, element_a="i8", element_b="i8",
                       out=np.zeros((16, 16), "i4"), threadblock=(64, 64, 64), stages=3,
                       warps=(2, 2, 1), instruction=(16, 8, 32), accumulator="i32",
                       op_class="tensor_op")
        np.testing.assert_array_equal(sums, numbers.astype("i4") @ numbers.T.astype("i4"))

    def test_results_outlive_their_makers(self):
        layout = bs.Layout.dense(1, block=8)
        values = bs.sdd(np.ones((8, 3)), np.ones((3, 8)), layout)
        del layout
        view = values[0, :2]
        del values
        self.assertEqual(view.sum(), 48)


@unittest.skipIf(torch is None, "no PyTorch")
class Torch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.mask = mask_of("10", "11")
        self.layout = bs.Layout.from_mask(self.mask, 8)

    def leaf(self, *shape):
        return torch.randn(*shape, requires_grad=True, **DOUBLE)

    def same(self, ours, theirs, leaves, rtol=1e-9):
        """Equal results and gradients, the latter through a random projection."""
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol)
        weight = torch.randn_like(ours)
        mine = torch.autograd.grad((ours * weight).sum(), leaves, retain_graph=True)
        theirs = torch.autograd.grad((theirs * weight).sum(), leaves, retain_graph=True)
        for gradient, expected in zip(mine, theirs):
            torch.testing.assert_close(gradient, expected, rtol=rtol, atol=rtol)

    def test_products(self):
        a, b, x = self.leaf(16, 5), self.leaf(5, 16), self.leaf(2, 16, 3)
        kept = spread(self.mask, 8)
        s, dense = bs.sdd(a, b, self.layout), (a @ b) * kept
        self.same(bs.to_dense(s, self.layout), dense, (a, b))
        self.same(bs.dsd(s, self.layout, x, transpose_a=True), dense.T @ x, (a, b, x))
        self.same(bs.dds(x, s, self.layout, transpose_a=True), x.mT @ dense, (a, b, x))
        self.same(bs.dsd(bs.to_sparse(a @ b, self.layout), self.layout, x), dense @ x, (a, b, x))

    def test_softmax(self):
        x = self.leaf(3, 8, 8)
        kept = spread(self.mask, 8) & torch.ones(16, 16).tril().bool()
        scores = bs.to_dense(x, self.layout) * 0.5
        y = bs.to_dense(bs.softmax(x, self.layout, scale=0.5, causal=True), self.layout)
        self.same(y, scores.masked_fill(~kept, -np.inf).softmax(-1).nan_to_num(), (x,))

    def test_attention(self):
        q, k, v = self.leaf(2, 4, 16, 8), self.leaf(2, 2, 16, 8), self.leaf(2, 2, 16, 8)
        padding = torch.arange(16) < torch.tensor([[16], [11]])
        kept = spread(self.mask, 8) & padding[:, None, None, :]
        theirs = torch.nn.functional.scaled_dot_product_attention(
            q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), kept)
        self.same(bs.attention(q, k, v, self.layout, key_padding_mask=padding), theirs, (q, k, v))

    def test_lstm(self):
        peer = torch.nn.LSTM(3, 5, bidirectional=True, **DOUBLE)
        x, h0, c0 = self.leaf(7, 2, 3), self.leaf(2, 2, 5), self.leaf(2, 2, 5)
        y, (h_n, c_n) = peer(x, (h0, c0))
        weights = [w for w, _ in zip(peer.parameters(), range(8))]
        ours = [bs.lstm(x, weights[:4], h0[0], c0[0]),
                bs.lstm(x, weights[4:], h0[1], c0[1], reverse=True)]
        leaves = (x, h0, c0, *weights)
        self.same(torch.cat([d[0] for d in ours], -1), y, leaves)
        self.same(torch.stack([d[2] for d in ours]), c_n, leaves[:1])
        self.same(torch.stack([d[1] for d in ours]), h_n, leaves[:1])
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [7, 4])
        one = torch.nn.LSTM(3, 5, **DOUBLE)
        z, _ = torch.nn.utils.rnn.pad_packed_sequence(one(packed)[0])
        mine, _, _ = bs.lstm(x, tuple(one.parameters()), lengths=[7, 4])
        self.same(torch.cat([mine[:, :1], torch.cat([mine[:4, 1:], 0 * mine[4:, 1:]])], 1), z, (x,))

    def test_conv2d(self):
        x, w, bias = self.leaf(2, 16, 6, 5), self.leaf(24, 8, 3, 2), self.leaf(24)
        theirs = torch.nn.functional.conv2d(x, w, bias, (2, 1), (1, 0), 1, 2)
        self.same(bs.conv2d(x, w, bias, (2, 1), (1, 0), 1, 2), theirs, (x, w, bias))
        kept = np.random.default_rng(2).integers(0, 2, (3, 2, 3, 2)).astype("u1")
        layout = bs.Layout.for_conv2d(kept, 8)
        values = self.leaf(layout.nnz, 8, 8)
        dense = bs.to_dense(values, layout).view(24, 3, 2, 16).permute(0, 3, 1, 2)
        theirs = torch.nn.functional.conv2d(x, dense, bias, 1, 1)
        self.same(bs.block_sparse_conv2d(x, values, layout, (3, 2), bias, 1, 1), theirs,
                  (x, values, bias))

    def test_rnnt_loss(self):
        """Against the sum over all paths, step by step in the log domain."""
        logits = self.leaf(2, 3, 3, 4)
        targets, frames, labels = torch.tensor([[1, 2], [3, 0]]), [3, 2], [2, 1]
        losses = []
        for b in range(2):
            log_p, alpha = logits[b].log_softmax(-1), {}
            for t in range(frames[b]):
                for u in range(labels[b] + 1):
                    terms = [torch.zeros((), **DOUBLE)] if t == u == 0 else []
                    terms += [alpha[t - 1, u] + log_p[t - 1, u, 3]] if t else []
                    terms += [alpha[t, u - 1] + log_p[t, u - 1, targets[b, u - 1]]] if u else []
                    alpha[t, u] = torch.logsumexp(torch.stack(terms), 0)
            last = frames[b] - 1, labels[b]
            losses.append(-alpha[last] - log_p[last][3])
        # 3 is the blank: the second target is then one that no text has, but the formula holds
        ours = bs.rnnt_loss(logits, targets, torch.tensor(frames), torch.tensor(labels))
        self.same(ours, torch.stack(losses).mean(), (logits,))
        per = bs.rnnt_loss(logits, targets, torch.tensor(frames), torch.tensor(labels),
                           reduction="none")
        self.same(per, torch.stack(losses), (logits,))

    def test_autograd(self):
        a, b = self.leaf(16, 2), self.leaf(2, 16)
        self.assertTrue(torch.autograd.gradcheck(lambda a, b: bs.sdd(a, b, self.layout), (a, b)))
        frozen = b.detach()
        bs.sdd(a, frozen, self.layout).sum().backward()  # a gradient of stride 0
        torch.testing.assert_close(a.grad, spread(self.mask, 8).double() @ frozen.T)
        with torch.no_grad():
            self.assertFalse(bs.sdd(a, b, self.layout).requires_grad)
        changed = (a * 1.0)
        y = bs.sdd(changed, b, self.layout)
        changed.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            y.sum().backward()
        y = bs.sdd(a, b, self.layout)
        y.mul_(2).sum().backward()  # its backward looks at no result
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            low = bs.sdd(a.to(dtype), b.to(dtype), self.layout)
            self.assertEqual(low.dtype, dtype)
            expected = bs.sdd(a.to(dtype).double(), b.to(dtype).double(), self.layout).to(dtype)
            torch.testing.assert_close(low, expected)

    def test_what_backward_reads_must_stay(self):
        q, x = self.leaf(1, 1, 16, 8), self.leaf(3, 2, 4)
        seen = torch.ones(1, 16, dtype=torch.bool)
        made = [bs.softmax(self.leaf(3, 8, 8), self.layout), bs.attention(q, q, q, self.layout),
                bs.lstm(x, (self.leaf(8, 4), self.leaf(8, 2)))[0]]
        for y in made:
            loss = y.sum()
            loss.backward(retain_graph=True)
            y.detach().add_(1)
            with self.assertRaisesRegex(RuntimeError, "inplace"):
                loss.backward()
        y = bs.attention(q, q, q, self.layout, key_padding_mask=seen)
        seen[:, 8:] = False
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            y.sum().backward()

    def test_classes_of_users(self):
        class Mine(torch.Tensor):
            pass

        Mine.__module__ = "somewhere"
        a = self.leaf(16, 5).detach().as_subclass(Mine)
        self.assertIsInstance(bs.sdd(a, a.T, self.layout), torch.Tensor)

    def test_layouts_in_modules(self):
        module = torch.nn.Linear(2, 2)
        module.layout = self.layout
        self.assertIs(copy.deepcopy(module).layout, self.layout)

    def test_three_lines(self):
        # three lines
        layout = bs.Layout.bigbird(8, block=16, window_blocks=3)
        q, k, v = torch.randn(3, 2, 4, 128, 32, requires_grad=True)
        bs.attention(q, k, v, layout).sum().backward()
        # end
        dense = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, spread(np.from_dlpack(layout.mask())[0], 16))
        torch.testing.assert_close(bs.attention(q, k, v, layout), dense, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
