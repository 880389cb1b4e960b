#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Save at step 3 under one layout, go on to step 6 under another: the losses
# and parameters are those of the run that never stopped.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
vp=place.virtual_pipeline_model_parallel_size
ep=place.expert_model_parallel_size
sp=place.sequence_parallel=true zero=place.use_distributed_optimizer=true
common=(run.train_iters=6 run.save_interval=3 run.lr_decay_iters=6)

layout() { # layout NAME: its world, then its settings
	case $1 in
	one) echo 1 ;;
	tp2) echo 2 $tp=2 $sp ;;
	tp4) echo 4 $tp=4 ;;
	pp2vp2) echo 2 $pp=2 $vp=2 ;;
	pp4) echo 4 $pp=4 ;;
	pp4empty) echo 4 $pp=4 'place.pipeline_model_parallel_layout="Et|ttttttt||L"' ;;
	alone) echo 4 $pp=4 'place.pipeline_model_parallel_layout="Etttt|tttt|mm|L"' ;;
	dp2zero) echo 2 $zero ;;
	dp3) echo 3 ;;
	tp2pp2) echo 4 $tp=2 $pp=2 ;;
	pp2dp2zero) echo 4 $pp=2 $zero ;;
	ep2tp2) echo 4 $ep=2 $tp=2 $sp ;;
	ep2dp4zero) echo 4 $ep=2 $zero ;;
	esac
}

go() { # go DIR MODEL LAYOUT [SET]...
	local words

	read -r -a words <<<"$(layout "$3")"
	worker "$1" "$2" "${words[@]}" "${common[@]}" "${@:4}"
}

same_end() { # same_end NAME REF NEW
	ok "$1: losses" same_losses "$2" "$3" 1e-12 3
	ok "$1: parameters" "$compare" "$2/step_00000006" "$3/step_00000006" \
		param 1e-9 0.01 0
	ok "$1: moments" "$compare" "$2/step_00000006" "$3/step_00000006" \
		v 1e-8 0 1e-6
}

pair() { # pair MODEL FROM TO
	local name="$1 $2 -> $3" words sets=()

	rm -rf "$T/a" "$T/b" "$T/c"
	go "$T/a" "$1" "$2" run.train_iters=3
	ok "$name: sound" ckpt-merge verify "$T/a"
	ok "$name: resumes from run.load" go "$T/b" "$1" "$3" "run.load=\"$T/a\""
	same_end "$name, loaded" "$T/whole-$1" "$T/b"
	read -r -a words <<<"$(layout "$3")"
	for s in "${words[@]:1}"; do
		sets+=(--set "$s")
	done
	ok "$name: resharded" ckpt-merge reshard "$T/a" "$T/c" \
		--world "${words[0]}" \
		--set $tp=1 --set $pp=1 --set $ep=1 --set place.sequence_parallel=false \
		--set place.use_distributed_optimizer=false \
		"${sets[@]}"
	ok "$name: resumes what was resharded" go "$T/c" "$1" "$3"
	same_end "$name, resharded" "$T/whole-$1" "$T/c"
}

for model in llama gpt2 mtp moe moe-bias mla-moe own; do
	go "$T/whole-$model" $model one run.save_interval=6
done

# The same layout again: the very same bits.
go "$T/cut" llama tp2pp2 run.train_iters=3
go "$T/cut" llama tp2pp2
go "$T/uncut" llama tp2pp2
ok "resumed under its own layout: bit-equal losses" equal_losses "$T/uncut" "$T/cut" 6
ok "resumed under its own layout: bit-equal state" ckpt-merge diff "$T/cut" "$T/uncut"
like "says from where it resumes" "$(cat "$T/cut.log")" 'resumed from .*step 3'

pair llama tp2pp2 pp2dp2zero
pair gpt2 pp2vp2 tp2
pair llama pp4empty dp2zero
pair mtp alone tp2
pair moe ep2dp4zero ep2tp2
pair moe-bias tp4 ep2tp2
pair mla-moe ep2tp2 pp2dp2zero
pair own tp4 pp2dp2zero
if [ -n "${TRISECT_LONG:-}" ]; then
	pair moe ep2tp2 pp2vp2
	pair moe tp2 ep2dp4zero
	pair mla-moe pp2vp2 ep2tp2
	pair own pp2vp2 tp2
	pair llama tp4 dp3
	pair llama dp2zero tp4
	pair gpt2 dp3 tp2pp2
	pair gpt2 pp4 pp2vp2
	pair llama one pp2dp2zero
	pair gpt2 pp2dp2zero one
	pair gpt2 tp2 pp4empty
fi

# Dropout goes on where it was.
drop=(run.hidden_dropout=0.1 run.attention_dropout=0.1)
go "$T/dry" gpt2 one "${drop[@]}"
go "$T/wet" gpt2 tp2 run.train_iters=3 "${drop[@]}"
go "$T/wet" gpt2 pp2vp2 "${drop[@]}"
ok "with dropout, tp2 -> pp2vp2: losses" same_losses "$T/dry" "$T/wet" 1e-12 6

# Weights alone: step 0 of a new run, with their loss.
go "$T/fine" llama one "run.load=\"$T/whole-llama\"" run.finetune=true run.train_iters=1
is "run.finetune starts at step 0" "$(jq .step "$T/fine/metrics.jsonl")" 1

# Rows of a longer life are dropped when an earlier step is resumed.
rm -rf "$T/cut/step_00000006"
go "$T/cut" llama tp2pp2 run.train_iters=4
is "metrics.jsonl has each step once" "$(jq -r .step "$T/cut/metrics.jsonl" | tr '\n' ' ')" "1 2 3 4 "
ok "a finished run ends at once" go "$T/cut" llama tp2pp2 run.train_iters=4
like "and says so" "$(cat "$T/cut.log")" 'nothing left to do'
done_testing
