#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two GPUs against one: NCCL's collectives and messages, then every layout in
# fp32 with dropout, bf16 twice, fp16's scales of the loss, and generation.
# Starts the ranks with srun where there is a Slurm to ask, else with mpirun.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh
ldd "$BIN/train-worker" | grep -q libcudart || skip_all "built without CUDA"
[ "$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)" -ge 2 ] ||
	skip_all "fewer than two GPUs here"

launch=(mpirun --oversubscribe -n 2)
sinfo -h >/dev/null 2>&1 &&
	launch=(srun -n2 --gres=gpu:2 --mpi=pmix --kill-on-bad-exit=1)

# on NAME GPUS [SET]...: a run of $model in $T/NAME
model=llama
on() {
	local name=$1 start=("${launch[@]}") args=()

	[ "$2" -eq 2 ] || start=()
	for s in "${@:3}"; do
		args+=(--set "$s")
	done
	timeout -k 5 120 "${start[@]}" train-worker "$layouts/$model.cfg" \
		--set 'spec.device="cuda"' --set "run.dir=\"$T/$name\"" \
		"${args[@]}" >"$T/$name.log" 2>&1
}

tp=place.tensor_model_parallel_size=2 pp=place.pipeline_model_parallel_size=2
vp=place.virtual_pipeline_model_parallel_size=2 sp=place.sequence_parallel=true
zero=place.use_distributed_optimizer=true
common=(run.train_iters=5 run.lr=1e-3 run.lr_warmup_init=0.0 run.min_lr=0.0 run.hidden_dropout=0.1 run.attention_dropout=0.1)
fp32='spec.params_dtype="fp32"' bf16='spec.params_dtype="bf16"'
fp16='spec.params_dtype="fp16"'

if [ -x "$TRISECT_BUILD/test/g-comm" ]; then
	run timeout 120 "${launch[@]}" "$TRISECT_BUILD/test/g-comm"
	is "collectives and messages" "$rc:$(grep -c '^not ok' <<<"$out")" 0:0
else
	skip "collectives and messages" "not built: make gpu-test"
fi
run timeout 60 "${launch[@]}" env CUDA_VISIBLE_DEVICES=0 train-worker \
	"$layouts/llama.cfg" --set 'spec.device="cuda"' --set "$fp32" \
	--set "run.dir=\"$T/shared\""
ok "two ranks on one GPU are refused" [ $rc -ne 0 ]
like "by name" "$out$err" 'rank 0 on .* and rank 1 on .* use the same GPU'

on one 1 "$fp32" "${common[@]}"
layout() { # layout NAME [SET]...
	on "$1" 2 "$fp32" "${common[@]}" "${@:2}"
	ok "$1: one GPU's losses" same_losses "$T/one" "$T/$1" 1e-5 5
}
layout tp2 $tp
layout tp2sp $tp $sp
layout pp2 $pp
layout pp2vp2 $pp $vp
layout dp2
layout dp2zero $zero
ok "ZeRO-1 on and off: the same bits" equal_losses "$T/dp2" "$T/dp2zero" 5
ok "and the same weights and moments" ckpt-merge diff --tolerance 0 "$T/dp2" "$T/dp2zero"

# A tied head, evaluation and saves between the steps.
model=gpt2
pauses=(run.eval_interval=2 run.eval_iters=2 run.save_interval=3)
on tied 1 "$fp32" "${common[@]}" "${pauses[@]}"
on tied2 2 "$fp32" "${common[@]}" "${pauses[@]}" $pp
ok "tied, pp2, with pauses: one GPU's losses" same_losses "$T/tied" "$T/tied2" 1e-5 5
is "each evaluation in its row" "$(jq -c 'select(.eval_loss) | .step' "$T/tied2/metrics.jsonl" | xargs)" "2 4"
is "each save" "$(cd "$T/tied2" && echo step_*)" "step_00000003 step_00000005"
model=llama
(sleep 4 && touch "$T/long/stop") &
on long 2 "$fp32" "${common[@]}" $zero run.train_iters=1000000 run.lr_decay_iters=1000000
is "a stop is heard: 75, saved" "$?:$(losses "$T/long" | tail -1 | cut -f1)" \
	"75:$(cd "$T/long" && echo $((10#$(echo step_* | sed 's/.*_//'))))"

on half 2 "$bf16" "${common[@]}" $zero
on again 2 "$bf16" "${common[@]}" $zero
ok "bf16: near fp32" same_losses "$T/one" "$T/half" 2e-2 5
ok "bf16: twice the same bits" equal_losses "$T/half" "$T/again" 5
ok "and the same weights, masters and moments" ckpt-merge diff "$T/half" "$T/again"

on scaled 2 "$fp16" "${common[@]}" $tp $sp run.loss_scale=1024.0
ok "fp16: nearer" same_losses "$T/one" "$T/scaled" 2.5e-3 5
dynamic=("$fp16" "${common[@]}" run.initial_loss_scale=16777216.0 run.loss_scale_window=2.0 run.hysteresis=1)
trace() { jq -c '[.step, .loss_scale, .skipped]' "$1/metrics.jsonl"; }
on scales 1 "${dynamic[@]}"
on scales2 2 "${dynamic[@]}" $pp
is "both stages skip the steps that one GPU skips" "$(trace "$T/scales2")" "$(trace "$T/scales")"
like "there are such" "$(trace "$T/scales" | head -1)" 'true\]$'

printf '%s\n' '101 32 116 104' 84 '104 101 32 119 111 114 108 100 32 111 102 32' '10 10' >"$T/ids"
long=("$fp32" shape.seq_length=40 "run.dir=\"$T/said\"")
says() { # says GPUS "OPTION..." [SET]... : what $model generates
	local start=("${launch[@]}") options sets=() s

	read -ra options <<<"$2"
	[ "$1" -eq 2 ] || start=()
	for s in 'spec.device="cuda"' "${long[@]}" "${@:3}"; do
		sets+=(--set "$s")
	done
	run timeout -k 5 120 "${start[@]}" train-worker -q "$layouts/$model.cfg" --generate --prompt-ids "$T/ids" \
		--max-new-tokens 24 --temperature 0.9 --seed 5 "${options[@]}" "${sets[@]}"
	[ $rc -eq 0 ] && jq -c .ids <<<"$out"
}
for model in llama mtp moe; do
	rm -rf "$T/said"
	on said 1 "${long[@]}" run.train_iters=30 'run.lr_decay_style="constant"' run.init_method_std=0.15
	said=$(says 1 "")
	ok "$model: it says something" test "$(jq -s 'map(.[]) | unique | length' <<<"$said")" -gt 4
	is "$model: tp2 says the same" "$(says 2 "" $tp)" "$said"
	is "$model: pp2" "$(says 2 "" $pp)" "$said"
	is "$model: pp2vp2" "$(says 2 "" $pp $vp)" "$said"
	is "$model: dp2" "$(says 2 "" run.micro_batch_size=2)" "$said"
	[ $model != mtp ] || is "$model: drafted, pp2" "$(says 2 --speculative $pp)" "$said"
	[ $model != moe ] || is "$model: ep2" "$(says 2 "" place.expert_model_parallel_size=2)" "$said"
done
done_testing
