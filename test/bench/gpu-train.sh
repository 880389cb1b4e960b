#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train-worker beside PyTorch (torch.compile) on one GPU, in bf16: GPT-2 124M
# and 1.5B, T 1024, random tokens; each runs until the card is warm, one after
# the other and back.  Then where a step of ours goes, op by op.
#
#   PEER_PYTHON  a python with torch and numpy (default: python3)
#   MODELS       which of them (default: "124M 1.5B")
#   TMPDIR       holds the last checkpoints: 22 GB of 1.5B
set -eu
python=${PEER_PYTHON:-python3}
seconds=${SECONDS_EACH:-8}
t=$(mktemp -d "${TMPDIR:-/tmp}/gpu-train.XXXXXX")
trap 'rm -rf "$t"' EXIT

"$python" - "$t/tokens.bin" <<'X'
import sys
import numpy as np
n = 64 * 1024 * 100 + 1
head = np.zeros(256, np.int32)
head[:3] = 20240520, 1, n
with open(sys.argv[1], "wb") as f:
    f.write(head.tobytes())
    f.write(np.random.default_rng(1).integers(0, 50257, n).astype(np.uint16).tobytes())
X

ours() { # ours NAME LAYERS HIDDEN HEADS BATCH STEPS
	train-worker -v etc/gpt2-124M.cfg --set "shape.num_layers=$2" \
		--set "shape.hidden_size=$3" --set "shape.ffn_hidden_size=$((4 * $3))" \
		--set "shape.num_attention_heads=$4" --set "run.micro_batch_size=$5" \
		--set "run.global_batch_size=$5" --set "run.train_iters=$6" \
		--set 'spec.device="cuda"' --set 'spec.params_dtype="bf16"' \
		--set 'run.split="90,10,0"' --set run.lr_warmup_iters=5 \
		--set "run.data_path=\"$t/tokens.bin\"" --set run.log_interval=1 \
		--set "run.dir=\"$t/run.$1\"" --set run.eval_interval=100000 --profile $(($6 - 3)) \
		>"$t/profile.$1" 2>"$t/ours.$1" || { cat "$t/ours.$1" >&2 && exit 1; }
}

table() { # table NAME LAYERS HIDDEN BATCH
	"$python" - "$t" "$@" <<'X'
import json
import re
import statistics as st
import sys
t, name = sys.argv[1:3]
layers, hidden, batch = (int(x) for x in sys.argv[3:6])
tokens, text = batch * 1024, open(f"{t}/ours.{name}").read()
steps = [tokens / float(x) for x in re.findall(r"step \d+/.* (\d+) tok/s", text)]
planned = int(re.search(r"memory: (\d+) bytes planned", text)[1])
peer = json.load(open(f"{t}/peer.{name}"))
a = st.median(steps[len(steps) // 3:])
b = st.median(peer["seconds"][len(peer["seconds"]) // 3:])
flops = tokens * 6 * (layers * (12 * hidden**2 + 1024 * hidden) + hidden * 50304)
for who, s, gib in (("trisect", a, planned), (f"PyTorch {peer['version']}", b, peer["peak_bytes"])):
    print(f"{name:5} {who:22} {s * 1e3:7.1f} ms {tokens / s / 1e3:7.1f}k tok/s  "
          f"MFU {flops / s / 989.5e12:.1%}  {gib / 2**30:5.1f} GiB")
print(f"{name:5} ratio {b / a:.3f}")
X
}

for row in "124M 12 768 12 64 90" "1.5B 48 1600 25 16 40"; do
	read -r name layers hidden heads batch steps <<<"$row"
	[[ " ${MODELS:-124M 1.5B} " == *" $name "* ]] || continue
	"$python" test/bench/peer_gpu.py "$layers" "$hidden" "$heads" "$batch" 1024 "$seconds" >"$t/peer.$name"
	ours "$name" "$layers" "$hidden" "$heads" "$batch" "$steps"
	table "$name" "$layers" "$hidden" "$batch"
	cat "$t/profile.$name"
	rm -rf "$t/run.$name"
done
nvidia-smi --query-gpu=name,clocks.sm,power.draw --format=csv,noheader
