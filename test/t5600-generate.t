#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train-worker --generate: the tokens that transformers generates; the same
# under every layout, drawn or not, drafted or not; bad input.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh
hf=test/data/hf
tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
vp=place.virtual_pipeline_model_parallel_size ep=place.expert_model_parallel_size
layout=place.pipeline_model_parallel_layout
room=(shape.seq_length=40 run.global_batch_size=24)

# generate RANKS MODEL "OPTION..." [SET]... : from $T/MODEL
generate() {
	local args=() start=() options

	read -ra options <<<"$3"
	for s in "${room[@]}" "${@:4}"; do
		args+=(--set "$s")
	done
	[ "$1" -eq 1 ] || start=(mpirun --oversubscribe -n "$1")
	run timeout -k 5 100 "${start[@]}" train-worker "$layouts/$2.cfg" --generate \
		--set "run.dir=\"$T/$2\"" "${options[@]}" "${args[@]}"
}

ids() { jq -c .ids <<<"$out"; }

# same NAME WANT RANKS MODEL "OPTION..." [SET]...
same() {
	generate "${@:3}"
	is "$4: $1" "$rc $(ids)" "0 $2"
}

## transformers
for f in gpt2 llama2 llama3 mistral mixed qwen2 qwen3 mixtral qwen3_moe; do
	ckpt-merge import-hf $hf/$f "$T/hf-$f" >"$T/.out"
	ckpt-merge config "$T/hf-$f" >"$T/$f.cfg"
	jq -r '.greedy[].prompt | map(tostring) | join(" ")' $hf/$f/expected.json >"$T/$f.ids"
	run train-worker -q "$T/$f.cfg" --generate --prompt-ids "$T/$f.ids" --max-new-tokens 64 \
		--set "run.load=\"$T/hf-$f\"" --set shape.max_position_embeddings=96 --set 'spec.device="cpu"'
	is "$f: what transformers generates" "$(ids)" "$(jq -c '.greedy[].new' $hf/$f/expected.json)"
	is "$f: and no word" "$err" ""
done

## layouts
printf '%s\n' '101 32 116 104' 84 '104 101 32 119 111 114 108 100 32 111 102 32' \
	'10 10' '116 104 101 32 115' >"$T/ids"
few="--prompt-ids $T/ids --max-new-tokens 24"
declare -A want other
drawn="$few --temperature 0.9 --top-k 40 --top-p 0.95 --seed 5"

# Random weights say something else each time; drafts need some training.
random=(run.train_iters=1 run.lr=0.0 run.min_lr=0.0 run.init_method_std=0.3)
trained=(run.train_iters=30 'run.lr_decay_style="constant"' run.init_method_std=0.15)
for model in llama gpt2 mtp moe; do
	[ $model = mtp ] && weights=("${trained[@]}") || weights=("${random[@]}")
	worker "$T/$model" $model 1 "${room[@]}" run.lr_warmup_iters=0 run.lr_warmup_init=0.0 "${weights[@]}"
	find "$T/$model" -type f -exec cksum {} + >"$T/before"
	generate 1 $model "$few"
	is "$model: exit 0" "$rc" 0
	like "$model: how fast" "$err" "5 texts, 120 new tokens in .* tokens/s"
	ok "$model: more than one token" test "$(jq -s 'map(.ids[]) | unique | length' <<<"$out")" -gt 2
	is "$model: the prompts' order" "$(jq -c '[.prompt, (.ids | length), .end]' <<<"$out")" \
		"$(printf '[%d,24,"length"]\n' 1 2 3 4 5)"
	want[$model]=$(ids)
	generate 1 $model "$drawn"
	other[$model]=$(ids)
	ok "$model: what is drawn differs" test "${other[$model]}" != "${want[$model]}"
	generate 1 $model "$drawn --seed 6"
	ok "$model: with each seed" test "$(ids)" != "${other[$model]}"
	same "some at a time" "${want[$model]}" 1 $model "$few" run.micro_batch_size=3 run.global_batch_size=12
	same "tp 2, pp 2" "${want[$model]}" 4 $model "$few" $tp=2 $pp=2
	same "tp 2, pp 2, drawn" "${other[$model]}" 4 $model "$drawn" $tp=2 $pp=2
	same "dp 2, drawn" "${other[$model]}" 2 $model "$drawn" run.micro_batch_size=2
	same "dp 3, one of whose ranks has less, drawn" "${other[$model]}" 3 $model "$drawn"
	same "tp 2 with sequence parallel, drawn" "${other[$model]}" 2 $model "$drawn" $tp=2 place.sequence_parallel=true
	same "chunks, drawn" "${other[$model]}" 2 $model "$drawn" $pp=2 $vp=2
	is "$model: nothing was written" "$(find "$T/$model" -type f -exec cksum {} +)" "$(<"$T/before")"
done
same "tp 4, above the groups, drawn" "${other[llama]}" 4 llama "$drawn" $tp=4
same "a stage without layers, drawn" "${other[gpt2]}" 4 gpt2 "$drawn" $pp=4 "$layout=\"Et|ttttttt||L\""
same "ep 2, drawn" "${other[moe]}" 2 moe "$drawn" $ep=2
same "ep 2, dp 4, drawn" "${other[moe]}" 4 moe "$drawn" $ep=2
same "ep 2, pp 2, drawn" "${other[moe]}" 4 moe "$drawn" $ep=2 $pp=2

## drafts
same "drafted" "${want[mtp]}" 1 mtp "$few --speculative"
is "mtp: drafts of each text" "$(jq -c 'select(.drafts >= .accepted and .drafts > 0) | .prompt' <<<"$out")" \
	"$(printf '%d\n' 1 2 3 4 5)"
accepted=$(jq .accepted <<<"$out")
ok "mtp: some are accepted" test "$(jq -s 'map(.accepted) | add' <<<"$out")" -gt 10
like "mtp: and it says how many" "$err" "[0-9]+ of [0-9]+ drafts accepted: [12]\.[0-9]+ tokens a pass"
same "drafted and drawn" "${other[mtp]}" 1 mtp "$drawn --speculative" run.micro_batch_size=2
same "drafted, tp 2, pp 2" "${want[mtp]}" 4 mtp "$few --speculative" $tp=2 $pp=2
is "mtp: the same drafts are" "$(jq .accepted <<<"$out")" "$accepted"
same "drafted on a stage of its own, drawn" "${other[mtp]}" 3 mtp "$drawn --speculative" $pp=3 "$layout=\"Etttt|tttt|mmL\""
same "drafted before the last stage" "${want[mtp]}" 4 mtp "$few --speculative" $pp=4 "$layout=\"Etttt|tttt|mm|L\""
is "mtp: the same drafts are, there too" "$(jq .accepted <<<"$out")" "$accepted"
same "drafted, chunks, dp 2, drawn" "${other[mtp]}" 4 mtp "$drawn --speculative" $pp=2 $vp=2

## text, ends, transformer_impl
printf 'the \nA\n' >"$T/text"
printf '116 104 101 32\n65\n' >"$T/text.ids"
generate 1 llama "--prompt-ids $T/text.ids --max-new-tokens 20"
spoken=$(ids)
same "text" "$spoken" 1 llama "--prompt-text $T/text --max-new-tokens 20"
is "llama: as text too" "$(jq -c '.text | explode' <<<"$out")" "$(jq -c 'map(if . > 127 then 63 else . end)' <<<"$spoken")"
end=$(jq -s '.[0].ids[4]' <<<"$out")
generate 1 llama "--prompt-text $T/text --max-new-tokens 20 --end-id $end"
is "llama: up to an id" "$(jq -c '[.ids[-1], .end]' <<<"$out" | head -n 1)" "[$end,\"id\"]"
is "llama: the first of its kind" \
	"$(head -n 1 <<<"$out" | jq --argjson id "$end" '(.ids | index($id)) + 1 == (.ids | length)')" true
same "inference_optimized" "$spoken" 1 llama "--prompt-text $T/text --max-new-tokens 20" \
	'spec.transformer_impl="inference_optimized"'
same "fp32" "$spoken" 1 llama "--prompt-text $T/text --max-new-tokens 20" 'spec.params_dtype="fp32"'

## weights alone, beside a job that trains there
exec 9>>"$T/llama/.owner"
flock -n 9
same "while somebody trains" "${want[llama]}" 1 llama "$few"
exec 9>&-
same "with run.load" "${want[llama]}" 1 llama "$few" "run.dir=\"$T/none\"" "run.load=\"$T/llama\""

## a signal: what has ended was printed
yes 65 | head -n 20000 >"$T/many"
train-worker "$layouts/llama.cfg" --generate --prompt-ids "$T/many" --max-new-tokens 30 \
	--set "run.dir=\"$T/llama\"" --set shape.seq_length=40 >"$T/many.out" 2>"$T/many.err" &
wait_for 30 test -s "$T/many.out"
kill -TERM $!
wait $!
is "stopped: exit 75" $? 75
like "stopped: and why" "$(<"$T/many.err")" "stopped: signal 15"
ok "stopped: whole lines" jq -e '.ids | length == 30' "$T/many.out"

## bad input
refused() { # refused NAME CODE ERE "OPTION..." [SET]...
	generate 1 llama "${@:4}"
	is "$1: exit $2" "$rc" "$2"
	like "$1: why" "$err" "$3"
	is "$1: nothing else" "$out" ""
}
line() { printf '%s\n' '1 2' "$1" >"$T/bad" && echo "--prompt-ids $T/bad --max-new-tokens 9"; }

refused "an id above the vocabulary" 2 "line 2: 251 is not an id of the vocabulary, 0 to 250" "$(line '7 251')"
refused "an id below 0" 2 "line 2: -1 is not an id" "$(line '-1')"
refused "an id of 20 digits" 2 "line 2: 99999999999999999999 is not an id of" "$(line 99999999999999999999)"
refused "a word" 2 "line 2: '5x' is not an id" "$(line '5x')"
refused "an empty prompt" 2 "line 2: an empty prompt" "$(line '')"
refused "a prompt too long" 2 "line 1: a prompt of 2 tokens and 39 new ones .* more than max_position_embeddings 40" \
	"$(line '1 2' | sed 's/9$/39/')"
: >"$T/empty"
refused "no prompts" 2 "empty: has no prompts" "--prompt-ids $T/empty"
refused "no file" 2 "none: No such file" "--prompt-ids $T/none"
refused "a folder" 2 "Is a directory" "--prompt-ids $T"
refused "no depths" 2 "mtp_num_layers is 0" "$few --speculative"
refused "an end outside the vocabulary" 2 "end-id 251 is not an id of the vocabulary, 0 to 250" "$few --end-id 251"
refused "no prompt" 2 "needs one of --prompt-ids and --prompt-text" "--max-new-tokens 4"
refused "two prompts" 2 "needs one of --prompt-ids and --prompt-text" "$few --prompt-text $T/text"
refused "a temperature below 0" 2 "temperature: -1 is not between 0 and 1000" "$few --temperature -1"
refused "a temperature that is none" 2 "temperature: 'warm' is not a number" "$few --temperature warm"
refused "top-k without a temperature" 2 "need a --temperature above 0" "$few --top-k 4"
refused "top-p 0" 2 "top-p: 0 leaves no token" "$few --temperature 1 --top-p 0"
refused "top-p above 1" 2 "top-p: 1.5 is not between 0 and 1" "$few --temperature 1 --top-p 1.5"
refused "no new tokens" 2 "max-new-tokens: 0 is not between" "--prompt-ids $T/ids --max-new-tokens 0"
refused "with --eval" 2 "exclude each other" "$few --eval valid"
CUDA_VISIBLE_DEVICES='' refused "on a GPU that is not there" 5 \
	'no GPU is visible here|was built without CUDA' "$few" 'spec.device="cuda"' 'spec.params_dtype="fp32"'
refused "no checkpoint" 4 "nothing to generate from: neither run.dir nor run.load" "$few" "run.dir=\"$T/none\""
refused "text of a larger vocabulary" 2 "is for vocabularies of bytes; this one has 300" \
	"--prompt-text $T/text" shape.vocab_size=300
run train-worker $layouts/llama.cfg --prompt-ids "$T/ids"
is "prompts alone: exit 2" $rc 2
like "prompts alone: why" "$err" "--prompt-ids goes with --generate only"
done_testing
