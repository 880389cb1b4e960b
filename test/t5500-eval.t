#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train-worker --eval: the losses of training's own evaluations, the same under
# every layout, and nothing written.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh
tp=place.tensor_model_parallel_size=2 pp=place.pipeline_model_parallel_size=2

look() { # look RANKS MODEL SPLIT [SET]... : --eval of $T/MODEL
	local args=() start=()

	for s in "${@:4}"; do
		args+=(--set "$s")
	done
	[ "$1" -eq 1 ] || start=(mpirun --oversubscribe -n "$1")
	run "${start[@]}" train-worker "$layouts/$2.cfg" --eval "$3" --set "run.dir=\"$T/$2\"" "${args[@]}"
}

near() { # near NAME GOT WANT
	ok "$1" awk "BEGIN { d = $2 - $3; exit !((d < 0 ? -d : d) < 1e-12) }"
}

for model in llama mtp; do
	worker "$T/$model" $model 1 run.train_iters=3 run.eval_interval=3 run.eval_iters=2
	find "$T/$model" -type f -exec cksum {} + >"$T/before"
	trained=$(jq -r 'select(.eval_loss) | .eval_loss' "$T/$model/metrics.jsonl")
	look 1 $model valid run.eval_iters=2
	is "$model: exit 0" "$rc" 0
	near "$model: the loss of training's own evaluation" "$(jq .loss <<<"$out")" "$trained"
	is "$model: of so many tokens" "$(jq -c '[.step, .split, .samples, .tokens]' <<<"$out")" \
		'[3,"valid",24,384]'
	near "$model: its perplexity" "$(jq '.perplexity | log' <<<"$out")" "$trained"
	look 1 $model train
	like "$model: all of a split, if nobody says how much" "$err" "over 480 of 480 samples"
	all=$(jq .loss <<<"$out")
	look 4 $model train $tp $pp
	near "$model: tp 2, pp 2: the same" "$(jq .loss <<<"$out")" "$all"
	look 2 $model train place.use_distributed_optimizer=true
	near "$model: dp 2: the same" "$(jq .loss <<<"$out")" "$all"
	is "$model: nothing was written" "$(find "$T/$model" -type f -exec cksum {} +)" "$(<"$T/before")"
done

exec 9>>"$T/llama/.owner"
flock -n 9
look 1 llama valid
is "beside a job that trains there: exit 0" "$rc" 0
exec 9>&-
run train-worker $layouts/llama.cfg --eval valid --set "run.load=\"$T/llama\"" --set run.finetune=true
is "weights alone, from run.load" "$(jq -r .step <<<"$out")" 0
run train-worker $layouts/llama.cfg --eval valid --set "run.dir=\"$T/none\""
is "no checkpoint: exit 4" "$rc" 4
like "and why" "$err" "nothing to evaluate: neither run.dir nor run.load"
ok "nor a folder for one" test ! -e "$T/none"
look 1 llama valid run.global_batch_size=96
is "a split below one batch: exit 2" "$rc" 2
like "with its numbers" "$err" "has 53 samples of 16 tokens, fewer than global_batch_size 96"
look 1 llama tset
is "another split: exit 2" "$rc" 2
like "with those that there are" "$err" "'tset' is none of train, valid and test"

## documents: what follows an end is not scored, and not counted
look 1 llama valid run.eod_id=32 run.eod_mask_loss=true
is "scored tokens are told" "$rc $(jq '.tokens > 0 and .tokens < 16 * .samples' <<<"$out")" "0 true"
head -c 4000 /dev/zero | tr '\0' ' ' >"$T/ends.txt"
look 1 llama train run.eod_id=32 run.eod_mask_loss=true "run.data_path=\"$T/ends.txt\""
is "nothing to score is no perplexity" $rc 2
like "and it says why" "$err" "no token of the train split is scored: see run.eod_mask_loss"
done_testing
