#!/usr/bin/python3
"""Makes curve.txt: the loss of each of lenet.yaml's 200 updates as PyTorch computes it, from dltrain's own
initial weights and batches. Run by hand with Debian's python3 (torch 1.13); the test reads the file only.

usage: make_curve.py DLTRAIN [f32|f64] >curve.txt    (default f32, as committed)

The learning rate is small because training is chaotic: with SGD at 0.01, PyTorch's own curves from initial
weights that differ by 6e-8 of their size are 8e-4 apart within 120 updates. Here the loss falls to half,
and what is compared is the arithmetic.

The initial weights are those of a checkpoint after one update with a learning rate of 1e-30, which moves no
f32. The batches follow dltrain's documented order (core/base/rng.c): the n-th sample is the n-th element of
a permutation keyed by (seed, epoch), written down here a second time."""

import gzip
import json
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

SEED, STEPS, BATCH, MEAN, STD = 1, 200, 128, 0.2860, 0.3530
FOLDER = "/usr/share/datasets/fashion-mnist/"
MASK = (1 << 64) - 1


def philox(seed, stream, index):
    """Philox4x32-10 (Salmon et al. 2011): four 32-bit numbers."""
    c = [index & 0xFFFFFFFF, index >> 32, stream & 0xFFFFFFFF, stream >> 32]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def mix(x):
    """MurmurHash3's 64-bit finalizer."""
    x = ((x ^ x >> 33) * 0xFF51AFD7ED558CCD) & MASK
    x = ((x ^ x >> 33) * 0xC4CEB9FE1A85EC53) & MASK
    return x ^ x >> 33


def order(n, epoch, count):
    """The first `count` samples of an epoch: a Feistel network of eight rounds with cycle walking."""
    stream = 4 << 40 | epoch
    half = next(b for b in range(1, 33) if n <= 1 << 2 * b)
    key = [philox(SEED, stream, i // 4)[i % 4] << 32 for i in range(8)]
    out = []
    for x in range(count):
        while True:
            left, right = x >> half, x & ((1 << half) - 1)
            for k in key:
                left, right = right, (left ^ mix(k | right) >> 17) & ((1 << half) - 1)
            x = left << half | right
            if x < n:
                break
        out.append(x)
    return out


def first_weights(dltrain, dtype):
    with tempfile.TemporaryDirectory() as out:
        config = sys.path[0] + "/lenet.yaml"
        words = [dltrain, "train", config, "lr=1e-30", "--stop-at", "1", "--out", out + "/run", "--device", "cpu"]
        code = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        assert code == 75, code
        data = open(out + "/run/last.bin", "rb").read()
    n = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:n])

    def tensor(name):
        begin, end = header[name]["data_offsets"]
        flat = np.frombuffer(data[n + begin : n + end], "<f4").reshape(header[name]["shape"])
        return torch.tensor(flat.astype(dtype)).requires_grad_()

    layers = ["conv", "conv_2", "dense", "dense_2"]
    return [tensor(layer + "." + part) for layer in layers for part in ("weight", "bias")]


def forward(p, x):
    for i in (0, 2):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[i], p[i + 1], padding=2)), 2)
    return F.linear(F.relu(F.linear(x.flatten(1), p[4], p[5])), p[6], p[7])


def main():
    dtype = {"f32": np.float32, "f64": np.float64}[sys.argv[2] if len(sys.argv) > 2 else "f32"]
    images = np.frombuffer(gzip.open(FOLDER + "train-images-idx3-ubyte.gz").read()[16:], np.uint8)
    labels = np.frombuffer(gzip.open(FOLDER + "train-labels-idx1-ubyte.gz").read()[8:], np.uint8)
    images = images.reshape(-1, 1, 28, 28)
    p = first_weights(sys.argv[1], dtype)
    optimizer = torch.optim.AdamW(p, lr=1e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    samples = order(len(labels), 0, STEPS * BATCH)
    for step in range(STEPS):
        ids = samples[step * BATCH : (step + 1) * BATCH]
        x = torch.tensor((images[ids].astype(dtype) / 255 - MEAN) / STD).to(p[0].dtype)
        loss = F.cross_entropy(forward(p, x), torch.tensor(labels[ids].astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%d %.9f" % (step + 1, loss.item()), flush=True)


main()
