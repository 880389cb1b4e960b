#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is planned is what runs: the bytes that stage-build prints are those
# that train-worker allocates, and its peak resident memory stays within 48 MiB
# of them (the program, its libraries, Open MPI's buffers), or 256 MiB where
# cuBLASLt and NCCL are linked in.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

check() { # check NAME MODEL WORLD [SET]...
	local name=$1 model=$2 world=$3 args=() peak planned

	for s in "${@:4}"; do
		args+=(--set "$s")
	done
	planned=$(stage-build --json --world "$world" "${args[@]}" \
		"$layouts/$model.cfg" 2>/dev/null | jq -r '.ranks[0].bytes.total')
	worker "$T/$name" "$model" "$world" "${@:4}" run.train_iters=2 run.lr_decay_iters=2
	is "$name: rank 0 allocates what was planned" \
		"$(jq -s -r '.[0].memory_bytes' "$T/$name/metrics.jsonl")" "$planned"
	rm -rf "${T:?}/$name"
}

mapfile -t list < <(grep -v '^#' $layouts/list)
for i in "${!list[@]}"; do
	[ -n "${TRISECT_LONG:-}" ] || [ $((i % 5)) -eq 0 ] || continue
	read -r -a words <<<"${list[i]}"
	check "${words[@]}"
done

# One rank with buffers large enough to see what comes beside them.
run train-worker -v $layouts/llama.cfg --set "run.dir=\"$T/large\"" --set run.train_iters=2 \
	--set run.lr_decay_iters=2 --set shape.hidden_size=512 \
	--set shape.ffn_hidden_size=1024
read -r planned peak < <(grep -oE '[0-9]+ bytes' <<<"$err" | grep -oE '[0-9]+' | paste -sd' ')
room=48
ldd "$BIN/train-worker" | grep -q libcublasLt && room=256
ok "a larger model: peak $peak is within $room MiB of the $planned planned" \
	test $((peak - planned)) -lt $((room << 20)) -a "$planned" -gt $((100 << 20))
ok "without save_interval the end is saved" ckpt-merge verify "$T/large/step_00000002"
done_testing
