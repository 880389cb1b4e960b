# SPDX-License-Identifier: Apache-2.0
"""The same Llama in PyTorch, eager, on CPU: the peer of `make bench`.

usage: peer_torch.py CHECKPOINT TOKENS STEPS LR
CHECKPOINT is a step folder of train-worker (one rank, fp32) holding the
weights to start from; TOKENS a text file whose windows are one global batch.
Prints one JSON object: losses, seconds a step, GFLOP/s of the products.
"""
import json
import sys
import time

import h5py
import numpy as np
import torch
import torch.nn.functional as F

L, H, D, T, B = 8, 8, 64, 256, 8
C, EPS, BASE = H * D, 1e-5, 10000.0


def load(path):
    with h5py.File(f"{path}/model/pp00-tp00.h5", "r") as f:
        found = {}

        def visit(name, node):
            if isinstance(node, h5py.Dataset) and "/param/" in "/" + name:
                found[name.split("param/", 1)[1]] = torch.tensor(node[()])

        f.visititems(visit)
    return {k: v.reshape(v.shape).requires_grad_() for k, v in found.items()}


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def forward(p, ids, labels, cos, sin):
    x = p["embed/tok"][ids]
    for i in range(L):
        n = f"layers/{i:04d}/"
        y = F.rms_norm(x, (C,), p[n + "attn_norm/w"], EPS)
        qkv = (y @ p[n + "attn/qkv/w"].T).view(B, T, H, 3, D)
        q, k, v = (qkv[:, :, :, j].transpose(1, 2) for j in range(3))
        o = F.scaled_dot_product_attention(
            rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True)
        x = x + o.transpose(1, 2).reshape(B, T, C) @ p[n + "attn/proj/w"].T
        y = F.rms_norm(x, (C,), p[n + "mlp_norm/w"], EPS)
        g = F.silu(y @ p[n + "mlp/gate/w"].T) * (y @ p[n + "mlp/up/w"].T)
        x = x + g @ p[n + "mlp/fc2/w"].T
    y = F.rms_norm(x, (C,), p["final_norm/w"], EPS)
    logits = y @ p["head/out"].T
    return F.cross_entropy(logits.view(B * T, -1), labels.reshape(-1))


def main():
    path, tokens, steps, lr = sys.argv[1:5]
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
        loss = forward(p, ids, labels, cos, sin)
        loss.backward()
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
