#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny random models of each family, as transformers saves them.

hf-golden.py make DIR      write DIR/FAMILY: config.json, safetensors, and
                           expected.json with ids, logits, losses and what
                           generate() goes on with; DIR/tokens.bin; of DeepSeek-V3
                           also files with multi-token prediction, which
                           transformers leaves out: in 8 bits, and what they stand for
hf-golden.py steps DIR     write DIR/FAMILY/steps.json of gpt2, llama2 and mixtral:
                           losses of 20 steps of torch's AdamW; make does, too
hf-golden.py check A B     both folders load with from_pretrained, and have the
                           same tensors, bit for bit, and the same logits
"""
import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import safetensors.torch
import torch
import transformers as t

t.utils.logging.disable_progress_bar()
VOCAB, LENGTH, ROWS = 97, 32, 4
NEW, MARGIN = 64, 1e-3
SAME = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}
GROUPS = {"num_key_value_heads": 2, "intermediate_size": 80}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.8}
LATENT = {"num_key_value_heads": 4, "intermediate_size": 80, "kv_lora_rank": 20, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 4, "v_head_dim": 6, "moe_intermediate_size": 24, "n_routed_experts": 8,
          "n_shared_experts": 1, "num_experts_per_tok": 4, "first_k_dense_replace": 1,
          "num_nextn_predict_layers": 0}

FAMILIES = {
    "gpt2": (t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=96, vocab_size=VOCAB,
                          bos_token_id=1, eos_token_id=2), torch.float32, None),
    "llama2": (t.LlamaConfig(**SAME, intermediate_size=80, num_key_value_heads=4), torch.float32, None),
    "llama3": (t.LlamaConfig(**SAME, **GROUPS, rope_parameters=LLAMA3), torch.bfloat16, None),
    "mistral": (t.MistralConfig(**SAME, **GROUPS, sliding_window=None), torch.bfloat16, "40KB"),
    "mixed": (t.LlamaConfig(**SAME, **GROUPS), (torch.bfloat16, torch.float32), None),
    "qwen2": (t.Qwen2Config(**SAME, **GROUPS, tie_word_embeddings=True), torch.float16, None),
    "qwen3": (t.Qwen3Config(**SAME, **GROUPS, head_dim=16), torch.bfloat16, None),
    "mixtral": (t.MixtralConfig(**SAME, num_key_value_heads=2, intermediate_size=40, num_local_experts=4,
                                num_experts_per_tok=2, sliding_window=None), torch.bfloat16, None),
    "qwen3_moe": (t.Qwen3MoeConfig(**SAME, **GROUPS, head_dim=8, moe_intermediate_size=24, num_experts=4,
                                   num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[0]),
                  torch.float32, None),
    "deepseek_v2": (t.DeepseekV2Config(**SAME, **LATENT, q_lora_rank=None, n_group=1, topk_group=1, topk_method="greedy",
                                       norm_topk_prob=False, routed_scaling_factor=1.5, rope_parameters=YARN),
                    torch.bfloat16, None),
    "deepseek_v3": (t.DeepseekV3Config(**SAME, **LATENT, q_lora_rank=24, n_group=4, topk_group=2,
                                       rope_parameters=YARN), torch.float32, None),
    "deepseek_v3_whole": (t.DeepseekV3Config(**SAME, **LATENT, q_lora_rank=None, n_group=1, topk_group=1,
                                             routed_scaling_factor=1.0), torch.float32, None),
}


def make_random(model, dtypes):
    """Every parameter far from where it starts: matrices in dtypes[0], vectors in dtypes[1]."""
    for name, p in model.named_parameters():
        vector = p.ndim == 1
        norm = vector and "bias" not in name
        p.data = (norm + torch.randn(p.shape) * (0.2 if vector else 0.15)).to(dtypes[vector])
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.copy_(torch.randn(b.shape) * 0.1)


def logits_of(model, ids):
    with torch.no_grad():
        return model.double().eval()(input_ids=ids[:, :-1], use_cache=False).logits


def load(folder, dtype):
    return t.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, experts_implementation="eager")


def greedy(model, ids):
    """NEW tokens behind each of two prompts, none of which was a close call."""
    texts = []
    for row in ids:
        for n in range(3, LENGTH):
            out = model.double().eval().generate(
                input_ids=row[None, :n], attention_mask=torch.ones(1, n), do_sample=False, max_new_tokens=NEW,
                eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
            best = torch.stack(out.logits)[:, 0].topk(2).values
            if (best[:, 0] - best[:, 1]).min() > MARGIN:
                break
        else:
            raise SystemExit("every prompt has a close call")
        texts.append({"prompt": row[:n].tolist(), "new": out.sequences[0, n:].tolist()})
    return texts


# As trisect has them: only matrices decay, embeddings among them.
ADAMW = {"lr": 5e-3, "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "clip_grad": 1.0}
STEPS = 20


def steps(top):
    """The losses and gradient norms of steps on all rows of ids, in float32, without dropout or a router's loss."""
    for name in "gpt2", "llama2", "mixtral":
        model = load(f"{top}/{name}", torch.float32).eval()
        with open(f"{top}/{name}/expected.json") as f:
            rows = torch.tensor(json.load(f)["ids"])
        params = list(model.parameters())
        optimizer = torch.optim.AdamW(
            [{"params": [p for p in params if p.ndim > 1]},
             {"params": [p for p in params if p.ndim == 1], "weight_decay": 0.0}], lr=ADAMW["lr"],
            betas=(ADAMW["adam_beta1"], ADAMW["adam_beta2"]), eps=ADAMW["adam_eps"], weight_decay=ADAMW["weight_decay"])
        losses, norms = [], []
        for _ in range(STEPS):
            optimizer.zero_grad()
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(params, ADAMW["clip_grad"]).item())
            optimizer.step()
            losses.append(loss.item())
        with open(f"{top}/{name}/steps.json", "w") as f:
            json.dump({"run": ADAMW, "losses": losses, "norms": norms}, f)
            f.write("\n")
        print(f"{name:10} losses {losses[0]:.4f} .. {losses[-1]:.4f}, norms {norms[0]:.3f} .. {norms[-1]:.3f}")


def make(top):
    os.makedirs(top, exist_ok=True)
    ids = np.random.default_rng(5).integers(3, VOCAB, (ROWS, LENGTH))
    stream = np.append(ids.reshape(-1), ids[0, 0]).astype(np.uint16)
    head = np.zeros(256, np.int32)
    head[:3] = 20240520, 1, len(stream)
    with open(f"{top}/tokens.bin", "wb") as f:
        f.write(head.tobytes() + stream.tobytes())
    # Row r is LENGTH inputs and, one further, as many labels.
    rows = torch.tensor(np.stack([stream[r * LENGTH:(r + 1) * LENGTH + 1] for r in range(ROWS)]).astype(np.int64))
    for name, (config, dtype, shard) in FAMILIES.items():
        torch.manual_seed(len(name))
        model = t.AutoModelForCausalLM.from_config(config, experts_implementation="eager")
        make_random(model, dtype if isinstance(dtype, tuple) else (dtype, dtype))
        model.tie_weights()
        shutil.rmtree(f"{top}/{name}", ignore_errors=True)
        model.save_pretrained(f"{top}/{name}", **({"max_shard_size": shard} if shard else {}))
        # Read again: .to() has rounded the angles of rope, too.
        logits = logits_of(load(f"{top}/{name}", torch.float32), rows)
        losses = [torch.nn.functional.cross_entropy(logits[r], rows[r, 1:]).item() for r in range(ROWS)]
        texts = greedy(load(f"{top}/{name}", torch.float32), rows[:2])
        with open(f"{top}/{name}/expected.json", "w") as f:
            json.dump({"ids": rows.tolist(), "greedy": texts, "losses": losses, "loss": sum(losses) / ROWS,
                       "last_logits": [[round(x, 9) for x in row] for row in logits[:, -1].tolist()]}, f)
            f.write("\n")
        print(f"{name:17} {sum(p.numel() for p in model.parameters()):7} parameters, loss {sum(losses) / ROWS:.6f}")
    make_mtp(top)
    steps(top)


MTP = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 24,
       "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
       "num_key_value_heads": 2, "q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 8,
       "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 4, "n_shared_experts": 2,
       "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
       "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
       "norm_topk_prob": True, "topk_method": "noaux_tc", "hidden_act": "silu", "rms_norm_eps": 1e-6,
       "rope_theta": 10000.0, "max_position_embeddings": 64, "vocab_size": 29, "tie_word_embeddings": False,
       "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32,
                        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}
BLOCK = 16


def mtp_shapes():
    """Names and shapes as DeepSeek's own files have them."""
    shapes = {"model.embed_tokens.weight": (29, 24), "model.norm.weight": (24,), "lm_head.weight": (29, 24)}
    for layer in range(3):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": (24,), at + "post_attention_layernorm.weight": (24,),
                   at + "self_attn.q_a_proj.weight": (20, 24), at + "self_attn.q_a_layernorm.weight": (20,),
                   at + "self_attn.q_b_proj.weight": (24, 20),
                   at + "self_attn.kv_a_proj_with_mqa.weight": (16, 24),
                   at + "self_attn.kv_a_layernorm.weight": (12,), at + "self_attn.kv_b_proj.weight": (28, 12),
                   at + "self_attn.o_proj.weight": (24, 12)}
        mlps = {at + "mlp.": 40}
        if layer > 0:
            shapes |= {at + "mlp.gate.weight": (4, 24), at + "mlp.gate.e_score_correction_bias": (4,)}
            mlps = {at + f"mlp.experts.{e}.": 12 for e in range(4)} | {at + "mlp.shared_experts.": 24}
        for mlp, width in mlps.items():
            shapes |= {mlp + "gate_proj.weight": (width, 24), mlp + "up_proj.weight": (width, 24),
                       mlp + "down_proj.weight": (24, width)}
    at = "model.layers.2."
    return shapes | {at + "embed_tokens.weight": (29, 24), at + "enorm.weight": (24,), at + "hnorm.weight": (24,),
                     at + "eh_proj.weight": (24, 48), at + "shared_head.norm.weight": (24,),
                     at + "shared_head.head.weight": (29, 24)}


def blocks_of(w):
    """Matrix W in 8 bits, the scales of its blocks, and what both stand for."""
    rows, cols = (-(-n // BLOCK) for n in w.shape)
    scale, q = torch.empty(rows, cols), torch.empty(w.shape, dtype=torch.float8_e4m3fn)
    whole = torch.empty(w.shape)
    for r in range(rows):
        for c in range(cols):
            part = (slice(r * BLOCK, (r + 1) * BLOCK), slice(c * BLOCK, (c + 1) * BLOCK))
            scale[r, c] = w[part].abs().max() / 448
            q[part] = (w[part] / scale[r, c]).to(torch.float8_e4m3fn)
            whole[part] = q[part].float() * scale[r, c]
    return q, scale, whole


def make_mtp(top):
    small, whole = {}, {}
    torch.manual_seed(3)
    for name, shape in mtp_shapes().items():
        vector = len(shape) == 1
        w = (vector + torch.randn(shape) * 0.2).float()
        if "_proj" in name:
            small[name], small[name + "_scale_inv"], whole[name] = blocks_of(w)
            continue
        small[name] = w if "e_score" in name else w.bfloat16()
        whole[name] = small[name].float()
    for here, there in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
        for tensors in small, whole:
            tensors[f"model.layers.2.{here}.weight"] = tensors[there + ".weight"].clone()
    fp8 = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}}
    for name, tensors, more in ("deepseek_v3_fp8", small, fp8), ("deepseek_v3_mtp", whole, {}):
        os.makedirs(f"{top}/{name}", exist_ok=True)
        safetensors.torch.save_file(tensors, f"{top}/{name}/model.safetensors", metadata={"format": "pt"})
        with open(f"{top}/{name}/config.json", "w") as f:
            json.dump(MTP | more, f, indent=2)
            f.write("\n")
        print(f"{name:10} {len(tensors)} tensors")


def check(a, b):
    x, y = (load(d, "auto") for d in (a, b))
    p, q = x.state_dict(), y.state_dict()
    assert list(p) == list(q), set(p) ^ set(q)
    for name in p:
        assert p[name].dtype == q[name].dtype and torch.equal(p[name], q[name]), name
    rows = torch.tensor(json.load(open(f"{a}/expected.json"))["ids"])
    assert torch.equal(logits_of(x, rows), logits_of(y, rows))
    print(f"{len(p)} tensors and all logits equal")


if __name__ == "__main__":
    {"make": make, "steps": steps, "check": check}[sys.argv[1]](*sys.argv[2:])
