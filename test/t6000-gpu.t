#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training on a GPU: the ops and the golden gradients, bf16 and fp16 beside fp32
# on the CPU, the same bits twice, the same scales of the loss, checkpoints
# there and back.  Generation: the tokens that transformers and the CPU generate.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh
gpu='spec.device="cuda"' cpu='spec.device="cpu"' bf16='spec.params_dtype="bf16"'
fp16='spec.params_dtype="fp16"'

CUDA_VISIBLE_DEVICES='' worker "$T/none" llama 1 "$gpu" 'spec.params_dtype="fp32"'
is "no GPU to be seen: exit 5" $? 5
like "and why" "$(<"$T/none.log")" \
	'no GPU is visible here|was built without CUDA \(make CUDA=1\)'
[ ! -e "$T/none/metrics.jsonl" ]
is "and nothing was begun" $? 0

ldd "$BIN/train-worker" | grep -q libcudart ||
	{ skip "on a GPU" "built without CUDA" && done_testing && exit; }
[ -n "$(nvidia-smi -L 2>/dev/null)" ] ||
	{ skip "on a GPU" "no GPU here" && done_testing && exit; }

# What is not built here says so; a bundle may hold the programs alone.
for program in g-kern g-moe g-attn g-gen; do
	if [ -x "$TRISECT_BUILD/test/$program" ]; then
		run "$TRISECT_BUILD/test/$program"
		is "$program against float64" "$rc:$(grep -c '^not ok' <<<"$out")" 0:0
	else
		skip "$program against float64" "not built: make gpu-test"
	fi
done
run "$TRISECT_BUILD/test/u-golden"
is "golden gradients" $rc 0
for type in fp32 fp16; do
	like "on the GPU too, in $type" "$out$err" "llama \"$type\" GPU: loss off by"
done

steps=(run.train_iters=20 run.lr_decay_iters=20 run.lr=1e-3 run.lr_warmup_init=0.0 run.min_lr=0.0
	run.hidden_dropout=0.0 run.attention_dropout=0.0)
worker "$T/cpu" llama 1 'spec.params_dtype="fp32"' "$cpu" "${steps[@]}"
worker "$T/fp32" llama 1 'spec.params_dtype="fp32"' "$gpu" "${steps[@]}"
worker "$T/bf16" llama 1 "$bf16" "$gpu" "${steps[@]}"
worker "$T/again" llama 1 "$bf16" "$gpu" "${steps[@]}"
ok "fp32: the CPU's losses" same_losses "$T/cpu" "$T/fp32" 1e-5 20
ok "bf16: each near them" same_losses "$T/cpu" "$T/bf16" 2e-2 20
mean() { # mean A B: how far their losses are from each other, on average
	paste <(losses "$1") <(losses "$2") |
		awk '{ d = $2 - $4; sum += d < 0 ? -d : d } END { print sum / NR }'
}
mean=$(mean "$T/cpu" "$T/bf16")
ok "bf16: nearer on average ($mean)" awk "BEGIN { exit !($mean < 5e-3) }"
ok "bf16: twice the same bits" equal_losses "$T/bf16" "$T/again" 20
ok "and the same weights, masters and moments" ckpt-merge diff "$T/bf16" "$T/again"

for dir in fp16 fp16-again; do
	worker "$T/$dir" llama 1 "$fp16" "$gpu" "${steps[@]}" run.loss_scale=1024.0
done
ok "fp16: each near the CPU's losses in fp32" same_losses "$T/cpu" "$T/fp16" 1e-3 20
mean=$(mean "$T/cpu" "$T/fp16")
ok "fp16: nearer than bf16 on average ($mean)" awk "BEGIN { exit !($mean < 2e-4) }"
ok "fp16: twice the same bits" equal_losses "$T/fp16" "$T/fp16-again" 20
worker "$T/fp16" llama 1 "$fp16" "$gpu" "${steps[@]}" run.loss_scale=1024.0 run.train_iters=22
is "fp16 resumes" "$?:$(losses "$T/fp16" | tail -1 | cut -f1)" 0:22

evals() { jq -r 'select(.eval_loss) | [.step, .eval_loss] | @tsv' "$1/metrics.jsonl"; }
for device in cpu cuda; do
	worker "$T/eval-$device" gpt2 1 "$fp16" "spec.device=\"$device\"" "${steps[@]}" run.loss_scale=1024.0 \
		run.train_iters=4 run.eval_interval=2 run.eval_iters=2
done
ok "fp16, gpt2: the CPU's losses" same_losses "$T/eval-cpu" "$T/eval-cuda" 1e-3 4
# shellcheck disable=SC2016
ok "and those of its evaluations" awk 'NF == 4 { d = $2 - $4; n += d < 1e-3 && d > -1e-3 }
	END { exit n != 2 }' <(paste <(evals "$T/eval-cpu") <(evals "$T/eval-cuda"))

trace() { jq -c '[.step, .loss_scale, .skipped]' "$1/metrics.jsonl"; }
for model in llama moe; do
	for device in cpu cuda; do
		worker "$T/$device-$model" $model 1 "$fp16" "spec.device=\"$device\"" "${steps[@]}" \
			run.initial_loss_scale=16777216.0 run.loss_scale_window=2.0 run.hysteresis=1
	done
	is "$model: a dynamic scale sinks and grows as the CPU's" "$(trace "$T/cuda-$model")" \
		"$(trace "$T/cpu-$model")"
	like "from a first step that is skipped" "$(trace "$T/cuda-$model" | head -1)" '^\[1,.*,true\]$'
	like "to some that are not" "$(trace "$T/cuda-$model" | grep -c false)" '^[1-9]'
done

worker "$T/there" llama 1 'spec.params_dtype="fp32"' "$cpu" "${steps[@]}" "run.load=\"$T/fp32\""
worker "$T/back" llama 1 'spec.params_dtype="fp32"' "$gpu" "${steps[@]}" "run.load=\"$T/there\""
digests() { ckpt-merge ls --digest "$1" | awk '$2 ~ /^(param|m|v)$/ { print $1, $2, $NF }'; }
is "a GPU's checkpoint loaded on the CPU" "$(digests "$T/there")" "$(digests "$T/fp32")"
is "and back" "$(digests "$T/back")" "$(digests "$T/fp32")"
like "there were digests" "$(digests "$T/fp32")" '[0-9a-f]{32}'
worker "$T/bf16" llama 1 "$bf16" "$gpu" "${steps[@]}" run.train_iters=22
is "bf16 resumes" "$?:$(losses "$T/bf16" | tail -1 | cut -f1)" 0:22
worker "$T/tuned" llama 1 "$bf16" "$gpu" "${steps[@]}" run.train_iters=1 \
	"run.load=\"$T/bf16\"" run.finetune=true run.lr=0.0
digests_of() { ckpt-merge ls --digest "$1" | awk -v role="$2" '$2 == role { print $1, $NF }'; }
is "weights alone, with lr 0, stay what they are" "$(digests_of "$T/tuned" param)" \
	"$(digests_of "$T/bf16" param)"
worker "$T/plain" llama 1 'spec.params_dtype="fp32"' "$cpu" "${steps[@]}" "run.load=\"$T/bf16\""
is "another precision is refused" $? 4
like "with the way out" "$(<"$T/plain.log")" "has float32 master weights.*run.finetune = true"
worker "$T/plain" llama 1 'spec.params_dtype="fp32"' "$cpu" "${steps[@]}" run.train_iters=1 \
	"run.load=\"$T/bf16\"" run.finetune=true run.lr=0.0
is "but for its weights" $? 0
is "the masters become the parameters" "$(digests_of "$T/plain" param)" \
	"$(digests_of "$T/bf16" master)"
worker "$T/half" llama 1 "$bf16" "$gpu" "${steps[@]}" run.train_iters=1 \
	"run.load=\"$T/plain\"" run.finetune=true run.lr=0.0
is "and back" "$?:$(digests_of "$T/half" master)" "0:$(digests_of "$T/bf16" master)"

## generation
# generate CONFIG "OPTION..." [SET]...
generate() {
	local options sets=() s

	read -ra options <<<"$2"
	for s in "${@:3}"; do
		sets+=(--set "$s")
	done
	run timeout -k 5 100 train-worker -q "$1" --generate "${options[@]}" "${sets[@]}"
}
ids() { jq -c .ids <<<"$out"; }

hf=test/data/hf
for f in gpt2 llama3 mistral mixed qwen3 mixtral qwen3_moe deepseek_v2 deepseek_v3; do
	ckpt-merge import-hf $hf/$f "$T/hf-$f" >"$T/.out"
	ckpt-merge config "$T/hf-$f" >"$T/$f.cfg"
	jq -r '.greedy[].prompt | map(tostring) | join(" ")' $hf/$f/expected.json >"$T/$f.ids"
	generate "$T/$f.cfg" "--prompt-ids $T/$f.ids --max-new-tokens $(jq '.greedy[0].new | length' $hf/$f/expected.json)" \
		"$gpu" "run.load=\"$T/hf-$f\"" shape.max_position_embeddings=96
	is "$f: what transformers generates" "$(ids)" "$(jq -c '.greedy[].new' $hf/$f/expected.json)"
	is "$f: and no word" "$err" ""
done

printf '%s\n' '101 32 116 104' 84 '104 101 32 119 111 114 108 100 32 111 102 32' \
	'10 10' '116 104 101 32 115' >"$T/ids"
few="--prompt-ids $T/ids --max-new-tokens 24"
drawn="$few --temperature 0.9 --top-k 40 --top-p 0.95 --seed 5"
fp32='spec.params_dtype="fp32"'

# as_on_cpu NAME MODEL [SET]... : random weights that say something
as_on_cpu() {
	local name=$1 cfg=$layouts/$2.cfg here want other
	local sets=("$fp32" shape.seq_length=40 run.global_batch_size=12 "run.dir=\"$T/gen-$1\"" "${@:3}")

	worker "$T/gen-$name" "$2" 1 "${sets[@]}" "$cpu" run.lr_warmup_iters=0 run.lr_warmup_init=0.0 \
		run.train_iters=30 'run.lr_decay_style="constant"' run.init_method_std=0.15
	generate "$cfg" "$few" "${sets[@]}" "$cpu"
	want=$(ids)
	generate "$cfg" "$drawn" "${sets[@]}" "$cpu"
	other=$(ids)
	ok "$name: the CPU's tokens are various" test "$(jq -s 'map(.[]) | unique | length' <<<"$other")" -gt 4
	here=("${sets[@]}" "$gpu")
	generate "$cfg" "$few" "${here[@]}"
	is "$name: the CPU's tokens" "$rc $(ids)" "0 $want"
	generate "$cfg" "$drawn" "${here[@]}"
	is "$name: drawn" "$rc $(ids)" "0 $other"
	generate "$cfg" "$drawn" "${here[@]}" run.micro_batch_size=3
	is "$name: some at a time" "$rc $(ids)" "0 $other"
	generate "$cfg" "$few" "${here[@]}" run.micro_batch_size=4
	is "$name: as the likeliest ones" "$rc $(ids)" "0 $want"
	[ "$2" = mtp ] || return 0
	generate "$cfg" "$few --speculative" "${here[@]}"
	is "$name: drafted" "$rc $(ids)" "0 $want"
	ok "$name: some drafts are accepted" test "$(jq -s 'map(.accepted) | add' <<<"$out")" -gt 10
	generate "$cfg" "$drawn --speculative" "${here[@]}" run.micro_batch_size=2
	is "$name: drafted and drawn" "$rc $(ids)" "0 $other"
}
as_on_cpu llama llama
as_on_cpu gpt2 gpt2
as_on_cpu windows llama 'shape.window_size=[5,0]' shape.window_attn_skip_freq=3 'shape.softmax_type="learnable"'
as_on_cpu off-by-one llama 'shape.softmax_type="off-by-one"'
as_on_cpu own own
as_on_cpu mtp mtp
as_on_cpu mla mla
as_on_cpu mla-moe mla-moe
as_on_cpu moe moe
as_on_cpu biases moe shape.add_bias_linear=true
as_on_cpu sinkhorn moe 'run.moe_router_load_balancing_type="sinkhorn"' run.moe_aux_loss_coeff=0.0 \
	shape.moe_router_enable_expert_bias=false

for type in bf16 fp16; do
	half=(shape.seq_length=40 run.global_batch_size=12 "spec.params_dtype=\"$type\"" "$gpu" \
		"run.dir=\"$T/gen-$type\"" run.loss_scale=1024.0)
	worker "$T/gen-$type" llama 1 "${half[@]}" run.lr_warmup_iters=0 run.lr_warmup_init=0.0 \
		run.train_iters=30 'run.lr_decay_style="constant"' run.init_method_std=0.15
	generate $layouts/llama.cfg "$drawn" "${half[@]}"
	is "$type: goes on" "$rc $(jq -c '[.prompt, (.ids | length)]' <<<"$out" | tr -d '\n')" \
		"0 [1,24][2,24][3,24][4,24][5,24]"
	twice=$(ids)
	generate $layouts/llama.cfg "$drawn" "${half[@]}"
	is "$type: twice the same" "$(ids)" "$twice"
done
done_testing
