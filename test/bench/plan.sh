#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How long the plan tools take: 10,000 configs, placements for 4096 ranks, and a
# plan of 16,384.
set -eu
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

cfg-finalize -o "$t/one.cfg" etc/demo.cfg >/dev/null
mkdir "$t/many"
grep -vE '^\s*#|^\s*$' etc/shape/llama-tiny.inc >"$t/shape.inc"
for ((i = 0; i < 10000; i++)); do
	printf 'shape: {\n%s\n};\nrun: { seed = %d; micro_batch_size = 4; };\n' "$(<"$t/shape.inc")" "$i" >"$t/many/$i.cfg"
done

timed() { # timed TEXT COMMAND...
	local begin=$EPOCHREALTIME text=$1

	shift
	"$@" >"$t/out"
	awk -v text="$text" -v a="$begin" -v b="$EPOCHREALTIME" \
		'BEGIN { printf "%-52s %6.2f s\n", text, b - a }'
}

timed "cfg-finalize, 10,000 files of $(grep -c = "$t/many/0.cfg") lines, -j 2" \
	cfg-finalize -j 2 "$t/many"
for model in llama-3-70b mixtral-8x7b deepseek-v3; do
	timed "cfg-finalize --suggest, world 4096, $model" \
		cfg-finalize --suggest --world 4096 --gpu-memory 80G --from hf \
		--set run.global_batch_size=4096 "test/data/hf/$model.json"
done
timed "stage-build, 16,384 ranks as tp8 pp16 vp2, JSON" \
	stage-build --world 16384 --json etc/llama3-8B.cfg \
	--set place.tensor_model_parallel_size=8 \
	--set place.pipeline_model_parallel_size=16 \
	--set place.virtual_pipeline_model_parallel_size=2 \
	--set run.micro_batch_size=1 --set run.global_batch_size=4096
