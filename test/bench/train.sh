#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train-worker beside PyTorch: the same models, the same first weights and
# tokens, one process, two threads.  Five rounds of each, one after the other;
# prints the ratio of each and the median, and how far 20 losses are apart.
#
#	train.sh [MODEL]...	of llama, moe and mtp; all of them
#
#   PEER_PYTHON  a python with torch, numpy and h5py (default: a private
#                environment in build/bench, made from the package index)
set -eu
bench=$PWD/build/bench
lr=0.0001
mkdir -p "$bench"
python=${PEER_PYTHON:-$bench/venv/bin/python}
if ! "$python" -c 'import torch, numpy, h5py' 2>/dev/null; then
	echo "making $bench/venv with torch, numpy and h5py"
	python3 -m venv "$bench/venv"
	"$bench/venv/bin/pip" install -q torch numpy h5py
fi
t=$(mktemp -d "$bench/train.XXXXXX")
[ -n "${KEEP:-}" ] || trap 'rm -rf "$t"' EXIT

# Eight windows: every step's global batch is all of them.
"$python" - "$t/tokens.bin" <<'X'
import sys
import numpy as np
head = np.zeros(256, np.int32)
head[:3] = 20240520, 1, 8 * 256 + 1
with open(sys.argv[1], "wb") as f:
    f.write(head.tobytes())
    f.write(np.random.default_rng(1).integers(0, 32000, head[2]).astype(np.uint16).tobytes())
X

ours() { # ours DIR STEPS [SET]... : of $model
	local sets=()

	for s in "${@:3}"; do
		sets+=(--set "$s")
	done
	rm -rf "$1"
	train-worker -q "test/bench/$model.cfg" --set "run.dir=\"$1\"" --set "run.train_iters=$2" \
		--set 'run.split="1,0,0"' --set "run.data_path=\"$t/tokens.bin\"" "${sets[@]}"
}

peer() { # peer STEPS : of $model
	"$python" test/bench/peer_torch.py "$model" "$t/first/step_00000001" \
		"$t/tokens.bin" "$1" $lr
}

compare() {
	"$python" - "$t" <<'X'
import json
import statistics as st
import sys
t, tokens, ratios = sys.argv[1], 8 * 256, []
print("round    ours tok/s   torch tok/s   ratio")
for r in range(1, 6):
    ours = [json.loads(x) for x in open(f"{t}/ours.{r}")]
    peer = json.load(open(f"{t}/peer.{r}"))
    a = tokens * 1e3 / st.median(x["step_ms"] for x in ours[1:])
    b = tokens / st.median(peer["seconds"][1:])
    ratios.append(a / b)
    print(f"{r:5}{a:14.0f}{b:14.0f}{a / b:8.2f}")
    if r == 1:
        off = max(abs(x["loss"] - y) for x, y in zip(ours, peer["losses"]))
        flops = ours[0]["tflops"] * 1e3 * ours[0]["step_ms"] / 1e3
        whole = flops / st.median(x["step_ms"] for x in ours[1:]) * 1e3
print(f"median ratio {st.median(ratios):.2f} (PyTorch {peer['version']}, eager, 2 threads)")
print(f"20 losses off by at most {off:.1e}")
print(f"whole step {whole:.0f} GFLOP/s; torch's products alone {peer['gflops']:.0f} GFLOP/s")
X
}

[ $# -gt 0 ] || set -- llama moe mtp
for model; do
	echo "-- $model"
	ours "$t/first" 1 run.lr=0.0 run.save_interval=1
	for round in 1 2 3 4 5; do
		steps=$((round == 1 ? 20 : 6))
		ours "$t/ours" $steps
		peer $steps >"$t/peer.$round"
		cp "$t/ours/metrics.jsonl" "$t/ours.$round"
	done
	compare
done
