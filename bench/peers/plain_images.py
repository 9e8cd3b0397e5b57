"""Images in PyTorch, for plain.py.

A function gives the cases of a set: {name: (function, its operands ...)}.
"""

import torch
import torch.nn.functional as F

aten = torch.ops.aten


def images(o):
    if o.rows * o.columns < 32768:
        return {}
    last, planes = torch.channels_last, torch.contiguous_format
    return images_of(o, "channels-last", last) | images_of(o, "row-major", planes) | borders(o)


def images_of(o, layout, kind):
    def image(h, w):
        return o.values(o.rows * o.columns // 32768, 64, h, w).to(memory_format=kind)

    cases = norms(o, image) | pools(image, kind) | sizes(image)
    return {f"{name}: {layout}": case for name, case in cases.items()}


def norms(o, image):
    x, other, dy = image(32, 16), image(32, 16), image(32, 16)
    weight, bias = o.values(64), o.values(64)
    # On a CPU PyTorch wants statistics of the weights' type.
    statistics = {"device": o.device, "dtype": x.dtype if o.device == "cpu" else torch.float32}
    mean, rstd = torch.zeros(64, **statistics), torch.ones(64, **statistics)
    middle, scale = o.values(64, 1, 1), o.values(64, 1, 1)
    every = [True, True, True]

    def batch_norm(x):
        return F.batch_norm(x, None, None, weight, bias, True)

    def batch_norm_backward(dy, x):
        return aten.native_batch_norm_backward(
            dy, x, weight, None, None, mean, rstd, True, 1e-5, every
        )

    def backward_add_relu(dy, x, y):
        dz = aten.threshold_backward(dy, y, 0)
        return dz, *batch_norm_backward(dz, x)

    def sums(dy, x):
        return torch.stack((dy.sum((0, 2, 3)), (dy * (x - middle)).sum((0, 2, 3))))

    def gradient_x(dy, x):
        return (dy - middle - (x - middle) * scale) * scale

    return {
        "batch_norm": (batch_norm, x),
        "batch_norm add relu": (lambda x, y: F.relu(batch_norm(x) + y), x, other),
        "batch_norm_backward": (batch_norm_backward, dy, x),
        "batch_norm_backward add relu": (backward_add_relu, dy, x, other),
        "batch_norm_by": (lambda x: F.batch_norm(x, mean, rstd, weight, bias), x),
        "channel_moments": (lambda x: torch.var_mean(x, (0, 2, 3)), x),
        "batch_norm_backward_sums": (sums, dy, x),
        "batch_norm_backward_x": (gradient_x, dy, x),
        "conv2d_backward_bias": (lambda dy: dy.sum((0, 2, 3)), dy),
        "dropout2d": (lambda x: F.dropout2d(x, 0.1), x),
    } | group_norms(o, x, dy, weight, bias)


def group_norms(o, x, dy, weight, bias):
    def planes(x):
        # On a GPU PyTorch's autograd gives group norm planes, whatever the format.
        return x if o.device == "cpu" else x.contiguous()

    sizes = (x.shape[0], 64, 512, 16)
    _, *of_groups = aten.native_group_norm(planes(x), weight, bias, *sizes, 1e-5)
    return {
        "group_norm 16": (lambda x: F.group_norm(x, 16, weight, bias), x),
        "group_norm_backward 16": (
            lambda dy, x, mean, rstd: aten.native_group_norm_backward(
                planes(dy), planes(x), mean, rstd, weight, *sizes, [True, True, True]
            ),
            *(dy, x, *of_groups),
        ),
    }


def pools(image, kind):
    x, quarter, x_shape = image(32, 16), image(16, 8), image(32, 16).shape
    winners = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]
    return {
        "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x),
        "max_pool2d_values": (lambda x: F.max_pool2d(x, 3, 2, 1), x),
        "max_pool2d_backward": (
            lambda dy, x, winners: aten.max_pool2d_with_indices_backward(
                dy, x, [3, 3], [2, 2], [1, 1], [1, 1], False, winners
            ),
            *(quarter, x, winners),
        ),
        "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), x),
        "avg_pool2d_backward": (
            lambda dy, x: aten.avg_pool2d_backward(
                dy, x, [2, 2], [2, 2], [0, 0], False, True, None
            ),
            *(quarter, x),
        ),
        "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), x),
        "adaptive_avg_pool2d_backward": (
            lambda one: (one / 512).expand(x_shape).contiguous(memory_format=kind),
            image(1, 1),
        ),
    }


def sizes(image):
    x, dy, quarter, bordered = image(32, 16), image(32, 16), image(16, 8), image(34, 18)
    count = x.shape[0]
    return {
        "interpolate": (lambda x: F.interpolate(x, (32, 16), mode="bilinear"), quarter),
        "interpolate_backward": (
            lambda dy: aten.upsample_bilinear2d_backward(
                dy, [32, 16], [count, 64, 16, 8], False
            ),
            dy,
        ),
        "interpolate nearest": (lambda x: F.interpolate(x, (32, 16)), quarter),
        "interpolate_backward nearest": (
            lambda dy: aten.upsample_nearest2d_backward(dy, [32, 16], [count, 64, 16, 8]),
            dy,
        ),
        "pad_backward": (
            lambda dy, x: aten.reflection_pad2d_backward(dy, x, [1, 1, 1, 1]),
            *(bordered, x),
        ),
        "pad": (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), x),
    }


def borders(o):
    x = o.values(o.rows * o.columns // 32768, 64, 32, 16)
    dy = o.values(*x.shape[:2], 34, 18)
    return {
        "pad axes: row-major": (lambda x: F.pad(x, (1, 1, 1, 1)), x),
        "pad_backward axes: row-major": (lambda dy: dy[:, :, 1:-1, 1:-1].contiguous(), dy),
        "relayout: nchw to nhwc": (lambda x: x.permute(0, 2, 3, 1).contiguous(), x),
        "relayout: nchw to chwn": (lambda x: x.permute(1, 2, 3, 0).contiguous(), x),
    }
