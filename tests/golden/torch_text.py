"""The text format of tests/golden/torch/*.txt and the numbers the cases are made of, for
make_torch.py, whose head describes both."""

import os

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(7)
lines = []


def f32(v):
    """The f32 nearest to v, as a double."""
    return float(np.float32(v))


def values(*shape):
    """Odd multiples of 1/64 in (-2, 2)."""
    return torch.tensor((2 * rng.randint(-64, 64, size=shape) + 1) / 64.0)


def distinct(*shape):
    """The same without equal values: maxima are unique."""
    n = int(np.prod(shape))
    return torch.tensor(((2 * rng.permutation(n) + 1 - n) / 64.0).reshape(shape))


def put(kind, name, tensor, exact=False):
    array = np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor)
    lines.append(" ".join([kind, name] + [str(d) for d in array.shape]))
    if array.dtype.kind == "i":
        lines.append(" ".join(str(v) for v in array.ravel()))
    else:
        lines.append(" ".join(("%.17g" if exact else "%.13g") % v for v in array.ravel()))


def case(name, config):
    lines.append("")
    lines.append("case " + name)
    lines.append("config " + config)


def save(folder, name):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("# made by tests/golden/make_torch.py, torch " + torch.__version__ + ", float64\n")
        f.write("\n".join(lines[1:]) + "\n")
    lines.clear()
