#!/usr/bin/python3
"""Makes tests/golden/torch/*.txt: what PyTorch computes, in float64, for every layer, loss, optimizer
and schedule. Run by hand with Debian's python3 (torch 1.13); the tests only read the files.

usage: make_torch.py [FOLDER]

Every file is a list of cases:
    case NAME
    config YAML            the layer (loss, optimizer, ...) as a user writes it
    KIND NAME DIMS...      a tensor, its values on the next line
Kinds: in (float input), ids (integer input), param, set (state before), out, grad, state (after),
num (a named number). Inputs and parameters are odd multiples of 1/64, so f32 holds them exactly and
no value lies on a kink; where a layer keeps a number in f32 (eps, p), the same f32 value is used.
A layer's scalar loss is sum (y - t)^2 with the target t (in t)."""

import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

from torch_text import case, distinct, f32, put, rng, save, values

# ---- layers ----


def layer(name, config, inputs, params, forward, sets=None, after=None, grads=True):
    """forward(inputs, params) -> y; after() -> states once forward has run."""
    case(name, config)
    x = [v.clone().requires_grad_(v.is_floating_point()) for v in inputs]
    p = {k: v.clone().requires_grad_() for k, v in params.items()}
    y = forward(x, p)
    t = values(*y.shape)
    ((y - t) ** 2).sum().backward()
    for i, v in enumerate(x):
        put("in" if v.is_floating_point() else "ids", "x%d" % i, v, True)
    put("in", "t", t, True)
    for k, v in p.items():
        put("param", k, v, True)
    for k, v in (sets or {}).items():
        put("set", k, v, True)
    put("out", "y", y)
    for i, v in enumerate(x):
        if grads and v.is_floating_point():
            put("grad", "x%d" % i, v.grad)
    for k, v in p.items():
        if grads:
            put("grad", k, v.grad)
    for k, v in (after() if after else {}).items():
        put("state", k, v)


def dense_cases():
    def f(x, p):
        return F.linear(x[0], p["weight"], p.get("bias"))

    layer("dense", "dense: 4", [values(3, 5)], {"weight": values(4, 5), "bias": values(4)}, f)
    layer("dense_no_bias", "dense: {units: 3, bias: false}", [values(4, 7)], {"weight": values(3, 7)}, f)
    layer("dense_sequence", "dense: 5", [values(2, 3, 4)], {"weight": values(5, 4), "bias": values(5)}, f)
    layer("dense_one", "dense: 1", [values(1, 1)], {"weight": values(1, 1), "bias": values(1)}, f)


def same_pad(x, kernel, stride, dilation=(1, 1), value=0.0):
    """Output ceil(size / stride): (kernel - 1) / 2 on both sides as PyTorch's padding is given; for even
    kernels, or where that leaves the last rows unseen, TensorFlow's SAME, the odd row at the end."""
    pads = []
    for axis in (1, 0):
        size, reach = x.shape[2 + axis], dilation[axis] * (kernel[axis] - 1) + 1
        seen = (-(-size // stride[axis]) - 1) * stride[axis] + reach
        total, half = max(seen - size, 0), (reach - 1) // 2
        pads += [half, half] if reach % 2 and seen - half >= size else [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)


def conv_case(name, options, shape, filters, kernel, bias=True, same=False, **kw):
    groups = kw.get("groups", 1)
    params = {"weight": values(filters, shape[1] // groups, *kernel)}
    if bias:
        params["bias"] = values(filters)

    def f(x, p):
        v = x[0]
        if same:
            pair = lambda a: (a, a) if isinstance(a, int) else a
            v = same_pad(v, kernel, pair(kw.get("stride", 1)), pair(kw.get("dilation", 1)))
        return F.conv2d(v, p["weight"], p.get("bias"), **kw)

    layer(name, "conv: {filters: %d, %s}" % (filters, options), [values(*shape)], params, f)


def conv_cases():
    conv_case("conv", "kernel: 3", (2, 2, 4, 5), 3, (3, 3))
    conv_case("conv_pad", "kernel: 3, pad: 1, bias: false", (1, 3, 4, 3), 2, (3, 3), False, padding=1)
    conv_case("conv_stride", "kernel: 3, stride: 2, pad: 1", (2, 1, 5, 6), 2, (3, 3), stride=2, padding=1)
    conv_case("conv_same", "kernel: 3, stride: 2, pad: same", (1, 2, 6, 5), 2, (3, 3), same=True, stride=2)
    conv_case("conv_same_even_kernel", "kernel: [2, 4], pad: same", (1, 1, 3, 4), 2, (2, 4), same=True)
    conv_case("conv_same_dilation", "kernel: 3, pad: same, dilation: 2", (1, 1, 5, 4), 1, (3, 3), same=True, dilation=2)
    conv_case("conv_dilation", "kernel: 2, dilation: [2, 3]", (1, 2, 5, 5), 2, (2, 2), dilation=(2, 3))
    conv_case("conv_groups", "kernel: 3, pad: 1, groups: 2", (1, 4, 3, 3), 4, (3, 3), padding=1, groups=2)
    conv_case("conv_depthwise", "kernel: 3, pad: same, groups: 3, bias: false", (1, 3, 4, 4), 6, (3, 3), False, same=True, groups=3)
    conv_case("conv_uneven", "kernel: [2, 3], stride: [2, 1], pad: [1, 0]", (1, 2, 4, 5), 2, (2, 3), stride=(2, 1), padding=(1, 0))
    conv_case("conv_1x1", "kernel: 1", (2, 5, 2, 3), 3, (1, 1))
    conv_case("conv_whole", "kernel: [3, 4], pad: valid", (2, 2, 3, 4), 2, (3, 4))
    conv_case("conv_stride_over_kernel", "kernel: 1, stride: 2", (1, 2, 4, 5), 2, (1, 1), stride=2)


def pool_cases():
    def maxp(name, options, shape, **kw):
        layer(name, "max_pool: " + options, [distinct(*shape)], {}, lambda x, p: F.max_pool2d(x[0], **kw))

    def avgp(name, options, shape, **kw):
        layer(name, "avg_pool: " + options, [values(*shape)], {}, lambda x, p: F.avg_pool2d(x[0], **kw))

    maxp("max_pool", "2", (2, 2, 4, 5), kernel_size=2)
    maxp("max_pool_overlap", "{kernel: 3, stride: 2, pad: 1}", (1, 2, 5, 6), kernel_size=3, stride=2, padding=1)
    maxp("max_pool_ceil", "{kernel: 2, ceil_mode: true}", (1, 2, 5, 3), kernel_size=2, ceil_mode=True)
    maxp("max_pool_ceil_pad", "{kernel: 3, stride: 2, pad: 1, ceil_mode: true}", (1, 1, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True)
    maxp("max_pool_uneven", "{kernel: [1, 3], stride: [2, 1]}", (1, 2, 4, 5), kernel_size=(1, 3), stride=(2, 1))
    layer("max_pool_same", "max_pool: {kernel: 3, stride: 2, pad: same}", [distinct(1, 2, 6, 5)], {},
          lambda x, p: F.max_pool2d(same_pad(x[0], (3, 3), (2, 2), value=-math.inf), 3, 2))
    avgp("avg_pool", "2", (2, 2, 4, 5), kernel_size=2)
    avgp("avg_pool_pad", "{kernel: 3, stride: 2, pad: 1}", (1, 2, 5, 6), kernel_size=3, stride=2, padding=1)
    avgp("avg_pool_pad_excluded", "{kernel: 3, stride: 2, pad: 1, count_include_pad: false}", (1, 2, 5, 6),
         kernel_size=3, stride=2, padding=1, count_include_pad=False)
    avgp("avg_pool_ceil", "{kernel: 2, ceil_mode: true}", (1, 2, 5, 3), kernel_size=2, ceil_mode=True)
    avgp("avg_pool_ceil_pad", "{kernel: 3, stride: 2, pad: 1, ceil_mode: true}", (1, 1, 6, 5),
         kernel_size=3, stride=2, padding=1, ceil_mode=True)
    layer("avg_pool_same", "avg_pool: {kernel: 3, stride: 2, pad: same}", [values(1, 2, 6, 5)], {},
          lambda x, p: F.avg_pool2d(same_pad(x[0], (3, 3), (2, 2)), 3, 2))
    layer("global_avg_pool", "global_avg_pool", [values(2, 3, 3, 4)], {}, lambda x, p: x[0].mean(dim=(2, 3)))
    layer("global_max_pool", "global_max_pool", [distinct(2, 3, 3, 4)], {}, lambda x, p: x[0].amax(dim=(2, 3)))
    # 17 x 17 = 289 places: more than an index of one byte holds
    layer("global_max_pool_large", "global_max_pool", [distinct(1, 1, 17, 17)], {}, lambda x, p: x[0].amax(dim=(2, 3)))


def norm_cases():
    eps = f32(1e-5)

    def batch_norm(name, options, shape, momentum, training=True):
        c = shape[1]
        run = {"running_mean": values(c), "running_var": values(c) ** 2 + 0.5}
        held = {k: v.clone() for k, v in run.items()}
        layer(name, "batch_norm" + options, [values(*shape)], {"weight": values(c), "bias": values(c)},
              lambda x, p: F.batch_norm(x[0], held["running_mean"], held["running_var"], p["weight"], p["bias"],
                                        training, f32(momentum), eps),
              run, lambda: held, training)  # evaluation has no gradient

    batch_norm("batch_norm", "", (2, 3, 3, 2), 0.1)
    batch_norm("batch_norm_rows", ": {momentum: 0.25}", (5, 4), 0.25)
    batch_norm("batch_norm_eval", "", (2, 3, 2, 2), 0.1, False)

    def affine(x, p):
        return x * p["weight"] + p["bias"]

    for name, shape in (("layer_norm", (3, 7)), ("layer_norm_sequence", (2, 3, 5))):
        c = shape[-1]
        layer(name, "layer_norm", [values(*shape)], {"weight": values(c), "bias": values(c)},
              lambda x, p: F.layer_norm(x[0], (c,), p["weight"], p["bias"], eps))
    for name, config, e in (("rms_norm", "rms_norm", 1.1920929e-7), ("rms_norm_eps", "rms_norm: {eps: 0.01}", 0.01)):
        layer(name, config, [values(2, 3, 5)], {"weight": values(5)},
              lambda x, p: x[0] / torch.sqrt((x[0] ** 2).mean(-1, keepdim=True) + f32(e)) * p["weight"])
    for name, groups, shape in (("group_norm", 2, (2, 4, 2, 3)), ("group_norm_all", 1, (2, 3, 2, 2)), ("group_norm_rows", 3, (2, 6))):
        c = shape[1]
        layer(name, "group_norm: %d" % groups, [values(*shape)], {"weight": values(c), "bias": values(c)},
              lambda x, p: F.group_norm(x[0], groups, p["weight"], p["bias"], eps))
    layer("softmax", "softmax", [values(3, 5)], {}, lambda x, p: F.softmax(x[0], -1))
    layer("softmax_sequence", "softmax", [values(2, 3, 4) * 8], {}, lambda x, p: F.softmax(x[0], -1))


def activation_cases():
    def act(name, config, f, scale=2.0):
        layer(name, config, [values(2, 9) * scale], {}, lambda x, p: f(x[0]))

    act("relu", "relu", F.relu)
    act("leaky_relu", "leaky_relu", lambda x: F.leaky_relu(x, 0.01))
    act("leaky_relu_slope", "leaky_relu: 0.2", lambda x: F.leaky_relu(x, 0.2))
    act("gelu", "gelu", F.gelu)
    act("gelu_tanh", "gelu: tanh", lambda x: F.gelu(x, approximate="tanh"))
    act("silu", "silu", F.silu)
    act("sigmoid", "sigmoid", torch.sigmoid)
    act("sigmoid_far", "sigmoid", torch.sigmoid, 32.0)
    act("tanh", "tanh", torch.tanh)
    act("softplus", "softplus", F.softplus)
    act("softplus_beta", "softplus: 2", lambda x: F.softplus(x, 2.0), 16.0)
    act("elu", "elu", F.elu)
    act("elu_alpha", "elu: {alpha: 0.5}", lambda x: F.elu(x, 0.5))


def philox(seed, stream, index):
    """Philox4x32-10, Salmon et al. 2011, written from the paper."""
    mask = 0xFFFFFFFF
    c = [index & mask, index >> 32, stream & mask, stream >> 32]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def dropout_mask(shape, p, seed=1234, layer_id=0, batch=3):
    """ops/dropout.h: element i is kept when its draw is not below p 2^32."""
    stream = 2 << 40 | batch
    n = int(np.prod(shape))
    draws = [philox(seed ^ ((layer_id + 1) << 32), stream, i // 4)[i % 4] for i in range(n)]
    return torch.tensor([float(d >= int(p * 2**32)) for d in draws]).reshape(shape)


def other_cases():
    layer("dropout_eval", "dropout: 0.5", [values(2, 5)], {}, lambda x, p: x[0] * 1.0)
    for name, config, p in (("dropout", "dropout", 0.5), ("dropout_quarter", "dropout: 0.25", 0.25), ("dropout_tenth", "dropout: 0.1", f32(0.1))):
        layer(name, config, [values(3, 7)], {}, lambda x, q: x[0] * dropout_mask((3, 7), p) / (1 - p))
    layer("flatten", "flatten", [values(2, 2, 1, 3)], {}, lambda x, p: x[0].flatten(1))
    layer("reshape", "reshape: [3, 1, -1]", [values(2, 6)], {}, lambda x, p: x[0].reshape(2, 3, 1, 2))
    layer("add", "add", [values(2, 3), values(2, 3)], {}, lambda x, p: x[0] + x[1])
    layer("add_three", "add", [values(1, 2, 2, 2) for _ in range(3)], {}, lambda x, p: x[0] + x[1] + x[2])
    layer("mul", "mul", [values(2, 3), values(2, 3)], {}, lambda x, p: x[0] * x[1])
    layer("mul_gate", "mul", [values(2, 2, 2, 3), values(2, 2, 1, 1)], {}, lambda x, p: x[0] * x[1])
    layer("mul_gate_first", "mul", [values(2, 2, 1, 1), values(2, 2, 2, 2)], {}, lambda x, p: x[0] * x[1])
    layer("concat", "concat", [values(2, 1, 2, 2), values(2, 3, 2, 2)], {}, lambda x, p: torch.cat(x, 1))
    layer("concat_rows", "concat", [values(2, 3), values(2, 1), values(2, 2)], {}, lambda x, p: torch.cat(x, 1))
    layer("concat_sequence", "concat", [values(2, 2, 3), values(2, 2, 1)], {}, lambda x, p: torch.cat(x, 2))
    layer("concat_axis", "concat: {axis: 2}", [values(1, 2, 2, 2), values(1, 2, 1, 2)], {}, lambda x, p: torch.cat(x, 2))
    ids = torch.tensor([[0, 3, 3], [4, 0, 3]])
    layer("embedding", "embedding: {dim: 3, vocab: 5}", [ids], {"weight": values(5, 3)}, lambda x, p: F.embedding(x[0], p["weight"]))


def attention(x, p, heads, kv=None, causal=False, window=0, rope=None, qk_norm=False, keep=None):
    """The layer's formulas over the fused projection [queries | keys | values]; keep: of the weights."""
    kv = kv or heads
    b, t, _ = x.shape
    y = F.linear(x, p["qkv.weight"], p.get("qkv.bias"))
    d = y.shape[-1] // (heads + 2 * kv)
    q, k, v = (part.reshape(b, t, -1, d) for part in y.split([heads * d, kv * d, kv * d], -1))
    if qk_norm:
        eps = f32(1.1920929e-7)
        q = q / torch.sqrt((q**2).mean(-1, keepdim=True) + eps) * p["q_norm.weight"]
        k = k / torch.sqrt((k**2).mean(-1, keepdim=True) + eps) * p["k_norm.weight"]
    if rope:
        angle = torch.arange(t)[:, None] * rope ** (-torch.arange(0, d, 2) / d)[None, :]
        c, s = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]

        def turn(z):
            lo, hi = z[..., : d // 2], z[..., d // 2 :]
            return torch.cat([lo * c - hi * s, hi * c + lo * s], -1)

        q, k = turn(q), turn(k)
    k, v = (z.repeat_interleave(heads // kv, 2) for z in (k, v))
    score = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(d)
    i, j = torch.arange(t)[:, None], torch.arange(t)[None, :]
    hidden = (j > i) & torch.tensor(causal)
    if window:
        hidden = hidden | ((i - j).abs() >= window)
    a = F.softmax(score.masked_fill(hidden, -math.inf), -1)
    if keep is not None:
        a = a * keep
    o = torch.einsum("bhij,bjhd->bihd", a, v).reshape(b, t, heads * d)
    return F.linear(o, p["out.weight"], p.get("out.bias"))


def attention_params(width, heads, kv=None, bias=True, d=None):
    kv, d = kv or heads, d or width // heads
    inner = (heads + 2 * kv) * d
    # a quarter: scores of some units, so that rounding is not what a case shows
    p = {"qkv.weight": values(inner, width) / 4, "out.weight": values(width, heads * d) / 4}
    if bias:
        p.update({"qkv.bias": values(inner), "out.bias": values(width)})
    return p


def attention_mask(b, heads, t, p):
    """ops/attention.h: rows of draws are as long as t rounded up to 4."""
    t4 = -(-t // 4) * 4
    return dropout_mask((b, heads, t, t4), p)[..., :t] / (1 - p)


def check_attention():
    """The reference above is PyTorch's own attention."""
    x, p = values(2, 7, 12), attention_params(12, 3)
    hidden = torch.triu(torch.ones(7, 7), 1).bool()
    want, _ = F.multi_head_attention_forward(
        x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), 12, 3, p["qkv.weight"], p["qkv.bias"], None, None,
        False, 0.0, p["out.weight"], p["out.bias"], need_weights=False, attn_mask=hidden)
    assert torch.allclose(attention(x, p, 3, causal=True), want.transpose(0, 1), atol=1e-12)


def token_cases():
    """Layers of transformers. They leave the random numbers of the cases behind them as they were."""
    state = rng.get_state()
    check_attention()
    w = lambda x, p: x[0] + p["weight"][: x[0].shape[1]]
    layer("position", "position: {kind: learned, max: 7}", [values(2, 5, 3)], {"weight": values(7, 3)}, w)
    layer("position_full", "position", [values(3, 4, 2)], {"weight": values(4, 2)}, w)
    for t, c in ((5, 6), (3, 5)):
        wave = torch.tensor([[(math.cos if k % 2 else math.sin)(i * 10000 ** (-(k // 2 * 2) / c)) for k in range(c)] for i in range(t)])
        layer("position_waves_%d" % c, "position: sinusoidal", [values(2, t, c)], {}, lambda x, p: x[0] + wave)

    def att(name, options, shape, heads, kv=None, bias=True, d=None, more=None, **kw):
        params = dict(attention_params(shape[2], heads, kv, bias, d), **(more or {}))
        layer(name, "attention: {heads: %d%s}" % (heads, options), [values(*shape)], params,
              lambda x, p: attention(x[0], p, heads, kv, **kw))

    att("attention", "", (2, 5, 6), 2)
    att("attention_causal", ", causal: true", (2, 7, 6), 3, causal=True)
    att("attention_no_bias", ", causal: true, bias: false", (1, 9, 4), 1, bias=False, causal=True)
    att("attention_one_token", ", causal: true", (2, 1, 4), 2, causal=True)
    att("attention_grouped", ", kv_heads: 2, causal: true", (2, 5, 8), 4, 2, causal=True)
    att("attention_one_kv", ", kv_heads: 1", (1, 6, 6), 3, 1)
    att("attention_window", ", causal: true, window: 3", (1, 8, 4), 2, causal=True, window=3)
    att("attention_window_both", ", window: 2", (1, 6, 4), 1, window=2)
    att("attention_head_dim", ", head_dim: 5", (1, 4, 6), 2, d=5)
    att("attention_rope", ", causal: true, rope: true", (2, 5, 8), 2, causal=True, rope=10000.0)
    att("attention_rope_base", ", rope: true, rope_base: 100, kv_heads: 1", (1, 6, 8), 2, 1, rope=100.0)
    att("attention_qk_norm", ", qk_norm: true, causal: true", (2, 4, 6), 2, causal=True, qk_norm=True,
        more={"q_norm.weight": values(3), "k_norm.weight": values(3)})
    att("attention_all", ", kv_heads: 2, causal: true, window: 4, rope: true, qk_norm: true, bias: false", (1, 9, 8), 4, 2,
        False, causal=True, window=4, rope=10000.0, qk_norm=True, more={"q_norm.weight": values(2), "k_norm.weight": values(2)})
    att("attention_dropout", ", causal: true, dropout: 0.25", (2, 5, 4), 2, causal=True, keep=attention_mask(2, 2, 5, 0.25))
    att("attention_dropout_eval", ", dropout: 0.25", (1, 3, 4), 2)

    def glu(name, config, act, shape, hidden, bias=False):
        c, p = shape[-1], {}
        for k, dims in (("gate", (hidden, c)), ("up", (hidden, c)), ("down", (c, hidden))):
            p[k + ".weight"] = values(*dims)
            if bias:
                p[k + ".bias"] = values(dims[0])
        lin = lambda x, p, k: F.linear(x, p[k + ".weight"], p.get(k + ".bias"))
        layer(name, config, [values(*shape)], p, lambda x, p: lin(act(lin(x[0], p, "gate")) * lin(x[0], p, "up"), p, "down"))

    glu("swiglu", "swiglu: 5", F.silu, (2, 3, 4), 5)
    glu("swiglu_bias", "swiglu: {hidden: 3, bias: true}", F.silu, (3, 2), 3, True)
    glu("geglu", "geglu: 5", F.gelu, (2, 3, 4), 5)

    layer("patch_embed", "patch_embed: {patch: 2, dim: 5}", [values(2, 3, 4, 6)], {"weight": values(5, 3, 2, 2), "bias": values(5)},
          lambda x, p: F.conv2d(x[0], p["weight"], p["bias"], stride=2).flatten(2).transpose(1, 2))
    layer("patch_embed_whole", "patch_embed: {patch: 3, dim: 2, bias: false}", [values(1, 1, 3, 3)], {"weight": values(2, 1, 3, 3)},
          lambda x, p: F.conv2d(x[0], p["weight"], stride=3).flatten(2).transpose(1, 2))
    layer("class_token", "class_token", [values(3, 2, 4)], {"weight": values(1, 1, 4)},
          lambda x, p: torch.cat([p["weight"].expand(3, 1, 4), x[0]], 1))
    layer("token_pool", "token_pool", [values(2, 5, 3)], {}, lambda x, p: x[0].mean(1))
    layer("token_pool_first", "token_pool: first", [values(2, 5, 3)], {}, lambda x, p: x[0][:, 0])
    layer("max_pool_same_stride_3", "max_pool: {kernel: 3, stride: 3, pad: same}", [distinct(1, 1, 9, 7)], {},
          lambda x, p: F.max_pool2d(same_pad(x[0], (3, 3), (3, 3), value=-math.inf), 3, 3))
    rng.set_state(state)


# ---- losses ----


def loss(name, config, out, y, forward, w=None):
    """The value is the mean over rows with w = 1; the gradient is that of the mean."""
    case(name, config)
    p = out.clone().requires_grad_()
    rows = torch.ones(out.shape[0]) if w is None else torch.tensor(w)
    keep = rows > 0
    value = forward(p[keep], y[keep])
    value.backward()
    put("in", "out", out, True)
    put("in" if y.is_floating_point() else "ids", "y", y, True)
    put("in", "w", rows, True)
    put("num", "loss", value)
    put("grad", "out", p.grad)


def loss_cases():
    labels = torch.tensor([1, 0, 4, 2])
    weights = torch.tensor([1.0, 2.5, 0.5, 0.0, 3.0])

    def ce(**kw):
        def f(p, y):
            flat = p.reshape(-1, p.shape[-1])
            return F.cross_entropy(flat, y.reshape(-1), **kw)

        return f

    smooth = f32(0.1)
    loss("cross_entropy", "cross_entropy", values(4, 5), labels, ce())
    loss("cross_entropy_large", "cross_entropy", values(4, 5) * 64, labels, ce())
    loss("cross_entropy_smoothing", "cross_entropy: {label_smoothing: 0.1}", values(4, 5), labels, ce(label_smoothing=smooth))
    loss("cross_entropy_weights", "cross_entropy: {class_weights: [1, 2.5, 0.5, 0, 3]}", values(4, 5), labels, ce(weight=weights))
    loss("cross_entropy_weights_smoothing", "cross_entropy: {label_smoothing: 0.1, class_weights: [1, 2.5, 0.5, 0, 3]}",
         values(4, 5), labels, ce(weight=weights, label_smoothing=smooth))
    loss("cross_entropy_ignore", "cross_entropy: {ignore: -100}", values(4, 5), torch.tensor([1, -100, 4, 2]), ce())
    loss("cross_entropy_ignore_zero", "cross_entropy: {ignore: 0, label_smoothing: 0.1}", values(4, 5), labels, ce(ignore_index=0, label_smoothing=smooth))
    loss("cross_entropy_padding", "cross_entropy: {label_smoothing: 0.1}", values(4, 5), labels, ce(label_smoothing=smooth), w=[1.0, 1.0, 0.0, 1.0])
    loss("cross_entropy_sequence", "cross_entropy", values(2, 3, 4), torch.tensor([[0, 3, 1], [2, 2, -1]]), ce(ignore_index=-1))
    t = values(3, 4)
    loss("mse", "mse", values(3, 4), t, F.mse_loss)
    loss("mse_column", "mse", values(4, 1), values(4), lambda p, y: F.mse_loss(p[:, 0], y))
    loss("mse_padding", "mse", values(3, 4), t, F.mse_loss, w=[1.0, 0.0, 1.0])
    loss("mae", "mae", values(3, 4), t, F.l1_loss)
    loss("huber", "huber", values(3, 4), t, F.huber_loss)
    loss("huber_delta", "huber: 0.25", values(3, 4), t, lambda p, y: F.huber_loss(p, y, delta=0.25))
    targets = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.25]])
    loss("bce", "bce", values(2, 3), targets, F.binary_cross_entropy_with_logits)
    loss("bce_large", "bce", values(2, 3) * 64, targets, F.binary_cross_entropy_with_logits)


# ---- optimizers ----


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(b1 * m + (1 - b1) * p.grad), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with Adam's bias corrections; PyTorch has none."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                t = s["step"] = s.get("step", 0) + 1
                m, v = (s.setdefault(k, torch.zeros_like(p)) for k in ("exp_avg", "exp_avg_sq"))
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).add_(p.grad**2, alpha=1 - b2)
                r = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"]) + group["weight_decay"] * p
                p.sub_(group["lr"] * p.norm() / r.norm() * r)


class Muon(torch.optim.Optimizer):
    """K. Jordan's muon.py, zeropower_via_newtonschulz5 in float64, for one matrix."""

    def __init__(self, params, lr, momentum=0.95, nesterov=True, weight_decay=0.0, steps=5):
        super().__init__(params, dict(lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, steps=steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(buf, group["momentum"]) if group["nesterov"] else buf.clone()
                x = x / (x.norm() + 1e-7)
                tall = p.shape[0] > p.shape[1]
                x = x.T if tall else x
                for _ in range(group["steps"]):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if tall else x
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(x, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def optim(name, config, make, shape=(6,), lr=None):
    """lr: of the config, where the optimizer itself runs at another."""
    case(name, config)
    steps = 5
    w0, g = values(*shape), values(steps, *shape)
    w = w0.clone().requires_grad_()
    o = make([w])
    after = []
    for k in range(steps):
        w.grad = g[k].clone()
        o.step()
        after.append(w.detach().clone())
    put("in", "w", w0, True)
    put("in", "g", g, True)
    put("num", "lr", np.array(lr or o.param_groups[0]["lr"]), True)
    put("out", "w", torch.stack(after))
    for key, v in o.state[w].items():
        if torch.is_tensor(v) and v.shape == w.shape:
            put("state", key, v)


def optim_cases():
    T = torch.optim
    lr = f32(0.0625)
    optim("sgd", "sgd: 0.0625", lambda p: T.SGD(p, lr))
    optim("sgd_decay", "sgd: {lr: 0.0625, weight_decay: 0.1}", lambda p: T.SGD(p, lr, weight_decay=0.1))
    optim("sgd_momentum", "sgd: {lr: 0.0625, momentum: 0.9}", lambda p: T.SGD(p, lr, momentum=0.9))
    optim("sgd_dampening", "sgd: {lr: 0.0625, momentum: 0.9, dampening: 0.3, weight_decay: 0.1}",
          lambda p: T.SGD(p, lr, momentum=0.9, dampening=0.3, weight_decay=0.1))
    optim("sgd_nesterov", "sgd: {lr: 0.0625, momentum: 0.9, nesterov: true, weight_decay: 5e-4}",
          lambda p: T.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=5e-4))
    optim("adam", "adam", lambda p: T.Adam(p, f32(1e-3)))
    optim("adam_decay", "adam: {lr: 0.0625, betas: [0.8, 0.95], eps: 1e-4, weight_decay: 0.1}",
          lambda p: T.Adam(p, lr, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1))
    optim("adamw", "adamw: {lr: 0.0625}", lambda p: T.AdamW(p, lr))
    optim("adamw_decay", "adamw: {lr: 0.0625, betas: [0.9, 0.95], weight_decay: 0.5}",
          lambda p: T.AdamW(p, lr, betas=(0.9, 0.95), weight_decay=0.5))
    optim("rmsprop", "rmsprop", lambda p: T.RMSprop(p, f32(0.01)))
    optim("rmsprop_momentum", "rmsprop: {lr: 0.0625, alpha: 0.9, momentum: 0.5, weight_decay: 0.1}",
          lambda p: T.RMSprop(p, lr, alpha=0.9, momentum=0.5, weight_decay=0.1))
    optim("rmsprop_centered", "rmsprop: {lr: 0.0625, centered: true}", lambda p: T.RMSprop(p, lr, centered=True))
    optim("rmsprop_all", "rmsprop: {lr: 0.0625, alpha: 0.8, eps: 1e-3, momentum: 0.5, centered: true}",
          lambda p: T.RMSprop(p, lr, alpha=0.8, eps=1e-3, momentum=0.5, centered=True))
    optim("adagrad", "adagrad", lambda p: T.Adagrad(p, f32(0.01)))
    optim("adagrad_decay", "adagrad: {lr: 0.0625, lr_decay: 0.1, eps: 1e-3, weight_decay: 0.1}",
          lambda p: T.Adagrad(p, lr, lr_decay=0.1, eps=1e-3, weight_decay=0.1))
    optim("lion", "lion: 0.0625", lambda p: Lion(p, lr, (0.9, 0.99), 0.0))
    state = rng.get_state()
    for name, options, shape, kw in (
        ("muon", "0.0625", (4, 3), {}), ("muon_wide", "{lr: 0.0625, weight_decay: 0.1, ns_steps: 3}", (3, 5), dict(weight_decay=0.1, steps=3)),
        ("muon_plain", "{lr: 0.0625, momentum: 0.8, nesterov: false}", (3, 3), dict(momentum=0.8, nesterov=False))):
        optim(name, "muon: " + options, lambda p: Muon(p, lr, **kw), shape)
    optim("muon_rest", "muon: {lr: 0.0625, adamw_lr: 0.03125, weight_decay: 0.1}",
          lambda p: T.AdamW(p, lr / 2, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.1), lr=lr)
    optim("lamb", "lamb: 0.0625", lambda p: Lamb(p, lr, (0.9, 0.999), 1e-6, 0.01))
    optim("lamb_matrix", "lamb: {lr: 0.0625, betas: [0.8, 0.9], eps: 1e-3, weight_decay: 0}",
          lambda p: Lamb(p, lr, (0.8, 0.9), 1e-3, 0.0), (2, 3))
    rng.set_state(state)
    optim("lion_decay", "lion: {lr: 0.0625, betas: [0.95, 0.98], weight_decay: 0.1}", lambda p: Lion(p, lr, (0.95, 0.98), 0.1))


# ---- schedules ----


def schedule(name, config, lr, n, make):
    """Rates of updates 0 .. n-1 of PyTorch's scheduler around SGD(lr)."""
    case(name, config)
    o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr)
    s = make(o)
    rates = []
    for _ in range(n):
        rates.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    put("num", "lr", np.array(lr), True)
    put("out", "rate", np.array(rates), True)


def schedule_cases():
    """Spans are in steps. Warm-up is llm.c's (i + 1) / n, which is LinearLR from 1/n over n - 1 steps;
    PyTorch's LambdaLR recipe i / n would waste the first update on a rate of 0. PyTorch's
    CosineAnnealingLR, LinearLR and ExponentialLR step recursively and carry rounding of about 1e-16 an
    update. OneCycleLR also cycles the momentum; ours leaves it alone."""
    S = torch.optim.lr_scheduler
    schedule("warmup", "[{warmup: 8 steps}]", 0.5, 12, lambda o: S.LinearLR(o, 1 / 8, 1.0, 7))
    schedule("warmup_one", "[{warmup: 1 steps}]", 0.5, 3, lambda o: S.LambdaLR(o, lambda i: 1.0))
    schedule("cosine", "[{cosine: 20 steps}]", 0.5, 20, lambda o: S.CosineAnnealingLR(o, 20))
    schedule("cosine_to", "[{cosine: {span: 7 steps, to: 0.05}}]", 0.5, 7, lambda o: S.CosineAnnealingLR(o, 7, 0.05))
    schedule("cosine_cycles", "[{cosine: {span: 15 steps, to: 0.05, cycles: 3}}]", 0.5, 15, lambda o: S.CosineAnnealingWarmRestarts(o, 5, 1, 0.05))
    schedule("linear", "[{linear: 10 steps}]", 0.5, 14, lambda o: S.LinearLR(o, 1.0, 0.0, 10))
    schedule("linear_to", "[{linear: {span: 10 steps, to: 0.125}}]", 0.5, 14, lambda o: S.LinearLR(o, 1.0, 0.25, 10))
    schedule("step", "[{step: {span: 20 steps, every: 6 steps}}]", 0.5, 20, lambda o: S.StepLR(o, 6))
    schedule("step_gamma", "[{step: {span: 20 steps, every: 5 steps, gamma: 0.5}}]", 0.5, 20, lambda o: S.StepLR(o, 5, 0.5))
    schedule("exponential", "[{exponential: {span: 20 steps, gamma: 0.9}}]", 0.5, 20, lambda o: S.ExponentialLR(o, 0.9))
    schedule("exponential_every", "[{exponential: {span: 20 steps, gamma: 0.5, every: 10 steps}}]", 0.5, 20, lambda o: S.ExponentialLR(o, 0.5**0.1))
    schedule("one_cycle", "[{one_cycle: 20 steps}]", 0.5, 20, lambda o: S.OneCycleLR(o, 0.5, 20, cycle_momentum=False))
    schedule("one_cycle_linear", "[{one_cycle: {span: 13 steps, pct_start: 0.5, div_factor: 10, final_div_factor: 100, anneal: linear}}]",
             0.5, 13, lambda o: S.OneCycleLR(o, 0.5, 13, pct_start=0.5, anneal_strategy="linear", div_factor=10, final_div_factor=100, cycle_momentum=False))
    schedule("one_cycle_short", "[{one_cycle: {span: 3 steps, pct_start: 0.2}}]", 0.5, 3, lambda o: S.OneCycleLR(o, 0.5, 3, pct_start=0.2, cycle_momentum=False))
    schedule("warmup_cosine", "[{warmup: 4 steps}, {cosine: {span: 16 steps, to: 0.05}}]", 0.5, 20,
             lambda o: S.SequentialLR(o, [S.LinearLR(o, 1 / 4, 1.0, 3), S.CosineAnnealingLR(o, 16, 0.05)], [4]))
    # no scheduler of PyTorch: Vaswani et al. 2017, equation 3, scaled to lr at the end of the warm-up
    schedule("warmup_inverse_sqrt", "[{warmup: 5 steps}, {inverse_sqrt: 20 steps}]", 0.5, 25,
             lambda o: S.LambdaLR(o, lambda i: (i + 1) / 5 if i < 5 else math.sqrt(5 / i)))
    schedule("inverse_sqrt_timescale", "[{inverse_sqrt: {span: 20 steps, timescale: 8 steps}}]", 0.5, 20,
             lambda o: S.LambdaLR(o, lambda i: math.sqrt(8 / (8 + i))))
    schedule("constant", "[{constant: 5 steps}]", 0.5, 7, lambda o: S.ConstantLR(o, 1.0, 5))


# ---- metrics ----


def class_metrics(out, y, keep, smoothing=0.0):
    """By the definitions, class by class."""
    n = out.shape[1]
    rows = [(int(y[i]), list(out[i])) for i in range(len(y)) if keep[i] and y[i] != -100]
    order = [sorted(range(n), key=lambda k: (-o[k], k)) for _, o in rows]
    true, pred = [t for t, _ in rows], [o[0] for o in order]
    classes = sorted(set(true) | set(pred))
    p, r, f = [], [], []
    for k in classes:
        tp = sum(t == k and q == k for t, q in zip(true, pred))
        np_, nt = pred.count(k), true.count(k)
        p.append(tp / np_ if np_ else 0.0)
        r.append(tp / nt if nt else 0.0)
        f.append(2 * p[-1] * r[-1] / (p[-1] + r[-1]) if tp else 0.0)
    mean = lambda v: sum(v) / len(v)
    logits, labels = torch.tensor([o for _, o in rows]), torch.tensor(true)
    nll = F.cross_entropy(logits, labels)
    return {
        "loss": float(F.cross_entropy(logits, labels, label_smoothing=smoothing)),
        "top1": mean([t == q for t, q in zip(true, pred)]),
        "top5": mean([t in o[:5] for t, o in zip(true, order)]),
        "precision": mean(p), "recall": mean(r), "f1": mean(f),
        "confusion": mean([t == q for t, q in zip(true, pred)]),
        "perplexity": math.exp(nll),
        "bits_per_byte": float(nll) / math.log(2),  # of a row: bytes are the run's business
    }


def metric_case(name, config, out, y, w, figures):
    case(name, config)
    put("in", "out", out, True)
    put("in" if y.is_floating_point() else "ids", "y", y, True)
    put("in", "w", torch.tensor(w), True)
    for k, v in figures.items():
        put("num", k, np.array(v), True)


def metric_cases():
    for name, n, classes, w in (("classes", 24, 7, None), ("padding", 24, 7, 5), ("rare_class", 6, 8, None)):
        out, y = values(n, classes), torch.tensor(rng.randint(0, classes, n))
        keep = [1.0] * n if w is None else [1.0] * (n - w) + [0.0] * w
        metric_case(name, "cross_entropy: {label_smoothing: 0.1}", out, y, keep,
                    class_metrics(out.numpy(), y, keep, f32(0.1)))
    out, y = values(12, 6), torch.tensor(rng.randint(0, 6, 12))
    y[3] = y[7] = -100
    metric_case("ignored", "cross_entropy: {ignore: -100}", out, y, [1.0] * 12, class_metrics(out.numpy(), y, [1.0] * 12))
    out = torch.zeros(4, 6)
    metric_case("ties", "cross_entropy", out, torch.tensor([0, 1, 4, 5]), [1.0] * 4,
                class_metrics(out.numpy(), torch.tensor([0, 1, 4, 5]), [1.0] * 4))
    for name, shape, n_pad in (("values", (9, 1), 0), ("values_padding", (9, 3), 4)):
        p, t = values(*shape), values(*shape)
        keep = [1.0] * (9 - n_pad) + [0.0] * n_pad
        d, u = (p - t)[: 9 - n_pad], t[: 9 - n_pad]
        mse = float((d**2).mean())
        metric_case(name, "mse", p, t, keep, {"loss": mse, "mae": float(d.abs().mean()), "mse": mse, "rmse": math.sqrt(mse),
                    "r2": 1 - float((d**2).sum() / ((u - u.mean()) ** 2).sum())})


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
    os.makedirs(folder, exist_ok=True)
    for make in (dense_cases, conv_cases, pool_cases, norm_cases, activation_cases, other_cases, token_cases):
        make()
    save(folder, "layers.txt")
    loss_cases()
    save(folder, "losses.txt")
    optim_cases()
    save(folder, "optimizers.txt")
    schedule_cases()
    save(folder, "schedules.txt")
    metric_cases()
    save(folder, "metrics.txt")


if __name__ == "__main__":
    main()
