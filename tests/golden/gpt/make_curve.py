#!/usr/bin/python3
"""Makes curve.txt: the loss of each of gpt.yaml's 200 updates as PyTorch computes it, from dltrain's own
initial weights and batches. Run by hand with Debian's python3 (torch 1.13); the test reads the file only.

usage: make_curve.py DLTRAIN [f32|f64] >curve.txt    (default f32, as committed)
       make_curve.py DLTRAIN bf16 >curve_bf16.txt    (autocast, on a GPU: PyTorch 2.11, cuDNN 9.19, an H200)

As for tests/golden/lenet: the initial weights are those of a checkpoint after one update with a learning
rate of 1e-30; the order of the samples is dltrain's documented one, whose second writing-down is
imported from there."""

import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

STEPS, BATCH, WINDOW, DEPTH, HEADS, LR, DECAY, CLIP = 200, 16, 64, 4, 4, 1e-4, 0.1, 1.0
HERE = os.path.dirname(os.path.abspath(__file__))


def neighbour():
    """tests/golden/lenet/make_curve.py without its main()."""
    path = HERE + "/../lenet/make_curve.py"
    text = open(path).read().rsplit("\nmain()", 1)[0]
    spec = importlib.util.spec_from_loader("lenet_curve", loader=None)
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def first_weights(dltrain, dtype):
    with tempfile.TemporaryDirectory() as out:
        words = [dltrain, "train", HERE + "/gpt.yaml", "vars.lr=1e-30", "--stop-at", "1", "--out", out + "/run"]
        code = subprocess.run(words + ["--device", "cpu"], stdout=subprocess.DEVNULL).returncode
        assert code == 75, code
        data = open(out + "/run/last.bin", "rb").read()
    n = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:n])
    weights = {}
    for name, t in header.items():
        if name.startswith(("__", "optimizer/", "ema/", "state/")):
            continue
        begin, end = t["data_offsets"]
        flat = np.frombuffer(data[n + begin : n + end], "<f4").reshape(t["shape"])
        weights[name] = torch.tensor(flat.astype(dtype)).requires_grad_()
    return weights


def windows(ids):
    """x [n, T] and y [n, T]; -100 behind the end of the text."""
    n = -(-(len(ids) - 1) // WINDOW)
    x = np.zeros(n * WINDOW, np.int64)
    y = np.full(n * WINDOW, -100, np.int64)
    x[: len(ids) - 1] = ids[:-1]
    y[: len(ids) - 1] = ids[1:]
    return torch.tensor(x.reshape(n, WINDOW)), torch.tensor(y.reshape(n, WINDOW))


def forward(p, ids):
    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])

    def linear(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    n, t = ids.shape
    mask = torch.ones(t, t, dtype=torch.bool, device=ids.device).triu(1)
    x = p["wte.weight"][ids] + p["wpe.weight"][:t]
    for k in range(DEPTH):
        at = "h.%d.body" % k
        q, key, v = linear(at + ".attention.qkv", norm(at + ".layer_norm", x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        score = (q @ key.transpose(-1, -2)) / key.shape[-1] ** 0.5
        a = torch.softmax(score.masked_fill(mask, float("-inf")), -1) @ v
        x = x + linear(at + ".attention.out", a.transpose(1, 2).reshape(n, t, -1))
        h = linear(at + "_2.dense", norm(at + "_2.layer_norm", x))
        gelu = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)))
        x = x + linear(at + "_2.dense_2", gelu)
    return F.linear(norm("ln_f", x), p["wte.weight"])


def main():
    kind = sys.argv[2] if len(sys.argv) > 2 else "f32"
    dtype, device = np.float64 if kind == "f64" else np.float32, "cuda" if kind == "bf16" else "cpu"
    text = open(HERE + "/../../../datasets/samples/shakespeare.txt", encoding="utf-8").read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    x, y = windows(np.array([number[c] for c in text]))
    x, y = x.to(device), y.to(device)
    p = {n: t.detach().to(device).requires_grad_() for n, t in first_weights(sys.argv[1], dtype).items()}
    plain = [t for n, t in p.items() if n.endswith(".bias") or "norm" in n or n.startswith(("ln_f", "wpe"))]
    rest = [t for t in p.values() if not any(t is q for q in plain)]
    groups = [{"params": rest, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    order, samples = neighbour().order, []
    while len(samples) < STEPS * BATCH:
        samples += order(len(x), len(samples) // len(x), len(x))
    for step in range(STEPS):
        ids = samples[step * BATCH : (step + 1) * BATCH]
        with torch.autocast(device, torch.bfloat16, enabled=kind == "bf16"):
            loss = F.cross_entropy(forward(p, x[ids]).flatten(0, 1), y[ids].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        optimizer.step()
        print("%d %.9f" % (step + 1, loss.item()), flush=True)


main()
