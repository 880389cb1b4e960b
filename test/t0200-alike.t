#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What all programs do alike: numbers of ranks, words for one and many, and
# how they end when memory does.
# shellcheck source=test/lib.sh
. test/lib.sh

sim=${TRISECT_BUILD:-build/cpu}/test/x-ckpt
model=(shape.num_layers=4 shape.hidden_size=32 shape.num_attention_heads=4
	shape.vocab_size=61 shape.seq_length=16)
"$sim" save "$T/a" 1 1 f32 "${model[@]}" || { echo "Bail out!"; exit 1; }

## the largest world
max=1048576
for program in "cfg-finalize" "stage-build" "ckpt-merge reshard $T/a $T/x -n"; do
	for world in 0 $((max + 1)) 16777216; do
		# shellcheck disable=SC2086 # words
		run $program --world $world etc/demo.cfg
		is "${program%% *} --world $world: usage" $rc 2
		is "${program%% *} --world $world: the limits" "${err#*error: }" \
			"--world: $world is not between 1 and $max"
	done
done

## one and many
setting() { # setting WORD: of a pipeline, without its long name
	local value=${1#*=}

	case ${1%%=*} in
	pp) echo "place.pipeline_model_parallel_size=$value" ;;
	vp) echo "place.virtual_pipeline_model_parallel_size=$value" ;;
	chunk) echo "place.num_layers_per_virtual_pipeline_stage=$value" ;;
	first) echo "place.num_layers_in_first_pipeline_stage=$value" ;;
	last) echo "place.num_layers_in_last_pipeline_stage=$value" ;;
	loss) echo "place.account_for_loss_in_pipeline_split=true" ;;
	layout) echo "place.pipeline_model_parallel_layout=$value" ;;
	layers) echo "shape.num_layers=$value" ;;
	recompute) echo "place.recompute_num_layers=2" ;;
	esac
}

{
	for file in test/data/bad/*.cfg; do
		read -ra args <<<"$(grep -am1 '^# args:' "$file" | cut -d: -f2-)"
		cfg-finalize "${args[@]}" "$file"
		stage-build --world 1 "$file"
		ckpt-merge reshard -n "$T/a" "$T/x" --config "$file"
		ckpt-merge check "$T/a" --config "$file"
	done
	# Models of one layer, in all the ways of not fitting a pipeline.
	for sets in pp=2 "pp=2 first=1" "pp=2 last=1" "pp=3 loss" "pp=2 chunk=1" \
		chunk=2 "pp=4 first=1 last=1 layers=3" "pp=2 layout=EtL" vp=2 \
		"pp=2 vp=3 chunk=1 layers=2" recompute "pp=2 vp=2 layout=Et|L layers=1"; do
		args=(--set shape.num_layers=1)
		for word in $sets; do
			args+=(--set "$(setting "$word")")
			[ "$word" != recompute ] ||
				args+=(--set place.recompute_granularity=full --set place.recompute_method=uniform)
		done
		cfg-finalize "${args[@]}" test/data/layouts/gpt2.cfg
	done
	stage-build --world 1 --set shape.num_layers=1 --svg "$T/1.svg" \
		test/data/layouts/gpt2.cfg && cat "$T/1.svg"
	cfg-finalize etc/demo.cfg
	stage-build --world 1 --svg "$T/one.svg" test/data/layouts/gpt2.cfg && cat "$T/one.svg"
	stage-build --world 1 --explain test/data/layouts/gpt2.cfg
	stage-build --world 1 --sbatch test/data/layouts/gpt2.cfg
	ckpt-merge ls "$T/a"
	ckpt-merge reshard -n "$T/a" "$T/x"
	ckpt-merge ls
} >"$T/said" 2>&1
many='errors?|warnings?|ranks?|files?|samples?|layers?|stages?|inputs?|operands?|pieces?|rows?|bytes?|heads?|weights?|micro-batch(es)?|entr(y|ies)|checkpoints?|problems?|elements?|nodes?|chunks?|slots?|tokens?|(middle|virtual) stages?'
is "1 of a thing is no plural" \
	"$(grep -aoE "(^|[ (])1 ($many)\\b" "$T/said" | grep -E 's$' | sort | uniq -c)" ""
is "and many of them are one" \
	"$(grep -aoE "(^|[ (])([02-9]|[1-9][0-9]+) ($many)\\b" "$T/said" | grep -vE 's$' | sort | uniq -c)" ""
like "there was something to look at" "$(<"$T/said")" "1 error"

## memory: done or exit 5 with a reason, and nothing else, whatever the limit
below() { # below KIB PROGRAM [ARG]... : run it with so much address space
	# The outer one keeps what the shell says of a signal.
	{ (ulimit -v "$1" && exec "${@:2}" >"$T/.out" 2>"$T/.err" </dev/null); } 2>/dev/null
}

ends() { # ends NAME STEP PROGRAM [ARG]... : limits up to where it works
	local name=$1 step=$2 kib=8000 code bad='' refused=0 works=0

	shift 2
	# The loader needs some, too.
	until below $kib "${@:1:1}" --version; do
		kib=$((kib + step))
		[ $kib -lt 400000 ] || { skip "$name" "no limit that works"; return; }
	done
	for (( ; works < 4 && kib < 2000000; kib += step)); do
		rm -rf "$T/run" "$T/resharded"
		below $kib "$@"
		code=$?
		case $code in
		0) works=$((works + 1)) ;;
		5) refused=$((refused + 1)) works=0
			grep -q 'out of memory' "$T/.err" || bad+=" $kib:silent" ;;
		*) bad+=" $kib:$code" works=0 ;;
		esac
	done
	is "$name: refused or done" "$bad" ""
	ok "$name: some limits were too low, and some high enough" \
		[ $refused -gt 0 -a $works -eq 4 ]
}

ckpt-merge config "$T/a" >"$T/shape.cfg"
mkdir "$T/many"
for i in {1..40}; do
	sed "s|@include \"|&$TOP/etc/|" etc/demo.cfg >"$T/many/$i.cfg"
done
ends "cfg-finalize" 1500 cfg-finalize etc/demo.cfg
ends "cfg-finalize, many" 3000 cfg-finalize --json -j 16 "$T/many"
ends "stage-build" 1500 stage-build --world 4 etc/demo.cfg
ends "stage-build --json" 3000 stage-build --world 8 --json etc/demo.cfg
ends "ckpt-merge verify" 1500 ckpt-merge verify "$T/a"
ends "ckpt-merge diff" 3000 ckpt-merge diff "$T/a" "$T/a"
ends "ckpt-merge ls" 3000 ckpt-merge ls --digest --json "$T/a"
ends "ckpt-merge config" 3000 ckpt-merge config "$T/a"
ends "ckpt-merge check" 3000 ckpt-merge check "$T/a" --config "$T/shape.cfg"
ends "ckpt-merge reshard" 1500 ckpt-merge reshard "$T/a" "$T/resharded" --world 2
ends "train-worker" 4000 train-worker test/data/layouts/llama.cfg \
	--set "run.dir=\"$T/run\"" --set run.train_iters=1 --set run.lr_decay_iters=6 \
	--set run.num_threads=4
done_testing
