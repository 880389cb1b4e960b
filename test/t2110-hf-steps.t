#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Steps of AdamW on models of transformers: the losses and gradient norms that
# torch's has for them (test/hf-golden.py says by which rules).
# shellcheck source=test/lib.sh
. test/lib.sh

hf=test/data/hf

steps() { # steps NAME: as many as torch did, by the same rules
	local name=$1 dir=$T/steps-$1 args=() s

	ckpt-merge config "$T/$name" >"$T/$name.cfg"
	mapfile -t args < <(jq -r '.run | to_entries[] | "run.\(.key)=\(.value)"' "$hf/$name/steps.json")
	for s in "run.train_iters=$(jq '.losses | length' "$hf/$name/steps.json")" \
		'run.lr_decay_style="constant"' shape.seq_length=32 "run.load=\"$T/$name\"" \
		run.finetune=true run.micro_batch_size=2 run.global_batch_size=4 \
		"run.data_path=\"$hf/tokens.bin\"" 'run.split="1,0,0"' \
		run.hidden_dropout=0.0 run.attention_dropout=0.0 "run.dir=\"$dir\""; do
		args+=("$s")
	done
	timeout 60 train-worker -q "$T/$name.cfg" "${args[@]/#/--set=}" >"$dir.log" 2>&1
}
# how far off the losses are, and the norms of the largest
apart() { # apart NAME
	jq -sc --slurpfile want "$hf/$1/steps.json" '
		def off($a; $b): [range($a | length) | ($a[.] - $b[.]) | fabs] | max;
		[length, off(map(.loss); $want[0].losses),
		 off(map(.grad_norm); $want[0].norms) / ($want[0].norms | max)]' \
		"$T/steps-$1/metrics.jsonl"
}
for f in gpt2 llama2 mixtral; do
	ckpt-merge import-hf "$hf/$f" "$T/$f" >"$T/.out"
	if [ $f = gpt2 ]; then # the length of learned positions is the model's
		ckpt-merge config "$T/$f" | sed 's/\bseq_length = .*/seq_length = 32;/' >"$T/short.cfg"
		ckpt-merge import-hf "$hf/$f" "$T/$f" --force --config "$T/short.cfg" >"$T/.out"
	fi
	run steps $f
	is "$f: 20 steps" $rc 0
	off=$(apart $f)
	echo "# $f: steps, losses off by, norms off by: $off"
	is "$f: torch's losses and norms" "$(jq '.[0] == 20 and .[1] < 1e-4 and .[2] < 1e-4' <<<"$off")" true
done
done_testing
