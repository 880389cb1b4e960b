# SPDX-License-Identifier: Apache-2.0
"""The same models in PyTorch, eager, on CPU: the peer of `make bench`.

usage: peer_torch.py MODEL CHECKPOINT TOKENS STEPS LR
MODEL is llama, or as that moe or mtp: test/bench/MODEL.cfg.
CHECKPOINT is a step folder of train-worker (one rank, fp32) holding the
weights to start from; TOKENS a text file whose windows are one global batch.
Prints one JSON object: losses, seconds a step, GFLOP/s of the products.
"""
import glob
import json
import sys
import time

import h5py
import numpy as np
import torch
import torch.nn.functional as F

H, D, T, B = 8, 64, 256, 8
C, EPS, BASE = H * D, 1e-5, 10000.0
LAYERS = {"llama": 8, "moe": 4, "mtp": 4}
E, K, AUX, MTP = 8, 2, 0.01, 0.1


def load(path):
    found = {}

    def visit(name, node):
        if isinstance(node, h5py.Dataset) and "/param/" in "/" + name:
            found[name.split("param/", 1)[1]] = torch.tensor(node[()])

    for name in glob.glob(f"{path}/model/*.h5") + glob.glob(f"{path}/experts/*.h5"):
        with h5py.File(name, "r") as f:
            f.visititems(visit)
    return {k: v.requires_grad_() for k, v in found.items()}


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def mlp(y, gate, up, fc2):
    return (F.silu(y @ gate.T) * (y @ up.T)) @ fc2.T


def experts(p, n, y):
    """Rows are put in the order of their experts, a product for each."""
    y = y.reshape(B * T, C)
    logits = y @ p[n + "moe/router/w"].T
    top, chosen = logits.topk(K, -1)
    rows, count = chosen.reshape(-1).argsort(stable=True), chosen.reshape(-1).bincount(minlength=E)
    weights = [[p[n + f"moe/{w}/w" + (f".{e}" if e else "")] for e in range(E)]
               for w in ("gate", "up", "fc2")]
    parts = y[rows // K].split(count.tolist())
    out = torch.cat([mlp(x, *w) for x, *w in zip(parts, *weights)])
    out = out * top.softmax(-1).reshape(-1)[rows].unsqueeze(1)
    aux = AUX * E / (K * (B * T) ** 2) * (count * logits.softmax(-1).sum(0)).sum()
    return torch.zeros_like(y).index_add(0, rows // K, out).view(B, T, C), aux


def layer(p, n, x, cos, sin):
    y = F.rms_norm(x, (C,), p[n + "attn_norm/w"], EPS)
    qkv = (y @ p[n + "attn/qkv/w"].T).view(B, T, H, 3, D)
    q, k, v = (qkv[:, :, :, j].transpose(1, 2) for j in range(3))
    o = F.scaled_dot_product_attention(
        rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True)
    x = x + o.transpose(1, 2).reshape(B, T, C) @ p[n + "attn/proj/w"].T
    y = F.rms_norm(x, (C,), p[n + "mlp_norm/w"], EPS)
    if n + "moe/router/w" in p:
        y, aux = experts(p, n, y)
        return x + y, aux
    return x + mlp(y, *(p[n + f"mlp/{w}/w"] for w in ("gate", "up", "fc2"))), 0


def head_loss(p, y, labels):
    logits = y.reshape(-1, C) @ p["head/out"].T
    return F.cross_entropy(logits, labels.reshape(-1), ignore_index=-1)


def next_token(x, last):
    return torch.cat((x[:, 1:], torch.full_like(x[:, :1], last)), 1)


def depth_loss(p, h, ids, labels, cos, sin):
    n = "mtp/00/"
    e = F.rms_norm(p["embed/tok"][next_token(ids, 0)], (C,), p[n + "enorm/w"], EPS)
    h = F.rms_norm(h, (C,), p[n + "hnorm/w"], EPS)
    x, _ = layer(p, n + "layer/", torch.cat((e, h), -1) @ p[n + "eh_proj/w"].T, cos, sin)
    y = F.rms_norm(x, (C,), p[n + "final_norm/w"], EPS)
    return head_loss(p, y, next_token(labels, -1))


def forward(p, layers, ids, labels, cos, sin):
    """The loss of the head, and all that is minimised."""
    x, more = p["embed/tok"][ids], 0
    for i in range(layers):
        x, aux = layer(p, f"layers/{i:04d}/", x, cos, sin)
        more = more + aux
    y = F.rms_norm(x, (C,), p["final_norm/w"], EPS)
    loss = head_loss(p, y, labels)
    if "mtp/00/eh_proj/w" in p:
        more = more + MTP * depth_loss(p, y, ids, labels, cos, sin)
    return loss, loss + more


def main():
    model, path, tokens, steps, lr = sys.argv[1:6]
    torch.set_num_threads(2)
    p = load(path)
    raw = np.fromfile(tokens, dtype=np.uint16, offset=1024).astype(np.int64)
    data = torch.tensor(np.stack([raw[i * T:i * T + T + 1] for i in range(B)]))
    ids, labels = data[:, :-1], data[:, 1:]
    inv = BASE ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * inv
    cos, sin = angle.cos().float(), angle.sin().float()
    decay = [v for v in p.values() if v.ndim > 1]
    plain = [v for v in p.values() if v.ndim == 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1},
         {"params": plain, "weight_decay": 0.0}],
        lr=float(lr), betas=(0.9, 0.95), eps=1e-8)
    losses, seconds = [], []
    for _ in range(int(steps)):
        begin = time.perf_counter()
        loss, objective = forward(p, LAYERS[model], ids, labels, cos, sin)
        objective.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        opt.step()
        opt.zero_grad()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    a, w = torch.randn(B * T, C), torch.randn(4 * C, C)
    begin, n = time.perf_counter(), 50
    for _ in range(n):
        a @ w.T
    gflops = 2 * B * T * C * 4 * C * n / (time.perf_counter() - begin) / 1e9
    print(json.dumps({"losses": losses, "seconds": seconds,
                      "gflops": gflops, "version": torch.__version__}))


if __name__ == "__main__":
    main()
