#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training in 16 bits on CPUs: near float's losses under every layout, scales of
# the loss that leave no trace but skipped steps, and an exact resume.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
sp=place.sequence_parallel=true zero=place.use_distributed_optimizer=true
bf16=spec.params_dtype=bf16 fp16=spec.params_dtype=fp16
steps=run.train_iters=5

# shellcheck disable=SC2016
# near NAME REF NEW: the first losses, before rounding has changed the training
near() {
	losses "$2" | head -3 >"$T/.a"
	losses "$3" | head -3 >"$T/.b"
	ok "$1" awk 'FNR == NR { a[$1] = $2; next }
		{ d = a[$1] - $2; n += d < 6e-3 && d > -6e-3 }
		END { exit n != 3 }' "$T/.a" "$T/.b"
}

for model in llama gpt2 mtp moe mla own; do
	worker "$T/32-$model" $model 1 $steps spec.params_dtype=fp32
	for type in bf16 fp16; do
		worker "$T/$type-$model" $model 1 $steps spec.params_dtype=$type \
			run.initial_loss_scale=1024.0
		near "$model in $type" "$T/32-$model" "$T/$type-$model"
	done
done

one=$T/bf16-llama
worker "$T/tp2" llama 2 $steps $bf16 $tp=2 $sp
near "bf16 with tensor and sequence parallelism" "$one" "$T/tp2"
worker "$T/pp2" llama 2 $steps $bf16 $pp=2
ok "bf16 over two stages: the same bits" equal_losses "$one" "$T/pp2" 5
worker "$T/dp2" llama 2 $steps $bf16
worker "$T/zero" llama 2 $steps $bf16 $zero
near "bf16 with data parallelism" "$one" "$T/dp2"
ok "and with ZeRO-1: the same bits" equal_losses "$T/dp2" "$T/zero" 5
worker "$T/moe" moe 2 $steps $fp16 run.loss_scale=1024.0 place.expert_model_parallel_size=2
near "fp16 with experts on two ranks" "$T/fp16-moe" "$T/moe"

worker "$T/scaled" llama 1 $steps $bf16 run.loss_scale=4096.0
ok "a constant power of two changes no bit" equal_losses "$one" "$T/scaled" 5
is "and is told" "$(jq -c '[.loss_scale, .skipped]' "$T/scaled/metrics.jsonl" | uniq)" '[4096,false]'

dynamic=("$fp16" run.initial_loss_scale=16777216.0 run.loss_scale_window=2.0 run.hysteresis=1)
worker "$T/whole" llama 1 "${dynamic[@]}" run.train_iters=12
ok "a dynamic scale that is too large skips steps and sinks" \
	jq -se '.[0].skipped and (.[0].loss_scale > .[-1].loss_scale) and (.[-1].skipped | not)' \
	"$T/whole/metrics.jsonl"
# shellcheck disable=SC2016
ok "grows after good ones" \
	jq -se '[.[].loss_scale] as $s | any(range(1; length); $s[.] == 2 * $s[. - 1])' \
	"$T/whole/metrics.jsonl"
# shellcheck disable=SC2016
ok "and its skipped steps leave the learning rate where it was" \
	jq -se 'all(range(1; length) as $i | [.[$i - 1, $i]]; .[0].skipped == (.[0].lr == .[1].lr))' \
	"$T/whole/metrics.jsonl"
ok "a skipped step leaves the parameters alone" \
	jq -se '.[0].skipped and .[1].skipped and .[0].grad_norm == null' "$T/whole/metrics.jsonl"
for at in 1 8; do
	worker "$T/part$at" llama 1 "${dynamic[@]}" run.train_iters=$at run.lr_decay_iters=12
	worker "$T/part$at" llama 1 "${dynamic[@]}" run.train_iters=12
	ok "a resume at step $at goes on to the same bits" diff \
		<(jq -c '[.loss, .loss_scale, .skipped]' "$T/whole/metrics.jsonl") \
		<(jq -c '[.loss, .loss_scale, .skipped]' "$T/part$at/metrics.jsonl")
done
is "the checkpoint tells of both" \
	"$(ckpt-merge ls --json "$T/whole" | jq '.loss_scale > 0 and .skipped_steps > 0')" true
ok "resharding keeps them" ckpt-merge reshard "$T/whole" "$T/wide" --set $tp=2
is "as they were" "$(ckpt-merge ls --json "$T/wide" | jq -c '[.loss_scale, .skipped_steps]')" \
	"$(ckpt-merge ls --json "$T/whole" | jq -c '[.loss_scale, .skipped_steps]')"

echo "7 11 3" >"$T/prompt"
text() { # text DIR TYPE: what its model of 5 steps says
	train-worker $layouts/llama.cfg --generate --set "run.dir=\"$1\"" --set "spec.params_dtype=$2" \
		--prompt-ids "$T/prompt" --max-new-tokens 8 2>"$T/text.log" | jq -c .ids
}
for type in bf16 fp16; do
	said=$(text "$T/$type-llama" $type)
	is "a text goes on in $type as in fp32" "$said" "$(text "$T/$type-llama" fp32)"
	is "by 8 tokens" "$(jq length <<<"$said")" 8
done

worker "$T/vain" llama 1 "$fp16" run.train_iters=3
ok "a job whose every step is skipped says so" grep -q "none of this job's 3 steps had finite gradients" "$T/vain.log"

worker "$T/never" llama 1 $fp16 run.loss_scale=1e30 run.train_iters=100
is "a scale that no step survives ends the job" $? 8
is "after 64 of them" "$(wc -l <"$T/never/metrics.jsonl")" 63
ok "with the way out" grep -q 'no finite gradients for 64 steps in a row.*lower run.lr or run.loss_scale' "$T/never.log"
done_testing
