# SPDX-License-Identifier: Apache-2.0
"""PyTorch at its best on one GPU: a GPT-2 of the given size, torch.compile,
cuDNN's attention, autocast to bf16 with a bf16 residual stream, float32
parameters, fused AdamW, gradients clipped to 1.  Fresh random tokens each
step.  Prints one JSON object: seconds of every step and peak memory.

usage: peer_gpu.py LAYERS HIDDEN HEADS BATCH LENGTH SECONDS
"""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LAYERS, C, H, B, T = (int(x) for x in sys.argv[1:6])
SECONDS = float(sys.argv[6])
V, V_PADDED = 50257, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc1, self.fc2 = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V_PADDED, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(C)

    def forward(self, ids, labels):
        x = (self.tok(ids) + self.pos.weight).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.tok.weight)
        return F.cross_entropy(logits.view(-1, V_PADDED).float(), labels.view(-1))


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt().cuda()
    for p in model.parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=0.02)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step_fn = torch.compile(model)
    times, begin, counted = [], None, 0.0
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        while counted < SECONDS or len(times) < 10:
            ids = torch.randint(0, V, (B, T + 1), device="cuda")
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast("cuda", torch.bfloat16):
                loss = step_fn(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            now = time.perf_counter()
            if begin is None and now - start < 5:
                begin = now
            if begin is not None:
                counted = now - begin
            times.append(now - start)
    print(json.dumps({"version": torch.__version__, "seconds": times,
                      "loss": loss.item(),
                      "peak_bytes": torch.cuda.max_memory_allocated()}))


main()
