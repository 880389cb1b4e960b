#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --suggest: each row's words make a valid config that needs the
# memory it says; what is said when none fits; usage.
# shellcheck source=test/lib.sh
. test/lib.sh

llama=test/data/stage/llama.cfg
gpu=(--set 'spec.device="cuda"' --set 'spec.params_dtype="bf16"')

# row N FILTER: what jq says of row N, from 0, of $json
row() { jq -r ".placements[$1]$2" <<<"$json"; }

# words N: the words of row N of $out as a shell reads them, from 1
words() {
	local text

	text=$(awk -v row="^$1:" '$0 ~ row { on = sub(row, "") }
		on { on = sub(/\\$/, ""); print }' <<<"$out" | tr '\n' ' ')
	eval "printf '%s\n' $text"
}

# propose WORLD MEMORY ARG...: --suggest as text in $out and as $json
propose() {
	local world=$1 memory=$2

	shift 2
	json=$(cfg-finalize --suggest --json --world "$world" \
		--gpu-memory "$memory" "$@")
	run cfg-finalize --suggest --world "$world" --gpu-memory "$memory" "$@"
}

# all_valid NAME WORLD MEMORY ARG...: --suggest, and every row as an input
all_valid() {
	local name=$1 world=$2 memory=$3 i bad='' n set text

	shift 3
	propose "$world" "$memory" "$@"
	is "$name: exit 0" "$rc: $err" '0: '
	n=$(jq '.placements | length' <<<"$json")
	ok "$name: there are rows" test "$n" -gt 3
	for ((i = 0; i < n; i++)); do
		readarray -t set < <(words $((i + 1)))
		text=$(cfg-finalize --world "$world" --gpu-memory "$memory" \
			--gpus-per-node 8 "$@" "${set[@]}") || bad+="$text"
		grep 'cluster-memory' <<<"$text" && bad+="$i does not fit"
	done
	is "$name: every row is valid and fits" "$bad" ''
}

propose 8 80G "$llama" "${gpu[@]}"
is "the words are those of the JSON" \
	"$(words 3 | grep -v '^--set$' | xargs -d '\n')" \
	"$(row 2 '.set[]' | xargs -d '\n')"
is "at most 100 columns" "$(wc -L <<<"$out" | awk '$1 > 100')" ''
first=$out
run cfg-finalize --suggest --world 8 --gpu-memory 80G "$llama" "${gpu[@]}"
is "twice the same" "$out" "$first"
n=$(jq '.placements | length' <<<"$json")
served=0
for ((i = 0; i < n; i++)); do
	[ "$(row $i .served)" = true ] || continue
	readarray -t set < <(words $((i + 1)))
	is "row $((i + 1)) needs what stage-build plans" "$(row $i .memory_bytes)" \
		"$(stage-build --json --world 8 "$llama" "${gpu[@]}" "${set[@]}" \
			2>/dev/null | jq '[.ranks[].bytes.total] | max')"
	served=$((served + 1))
done
ok "there are such rows" test $served -gt 2
all_valid "a small llama" 8 80G "$llama" "${gpu[@]}"

hf=test/data/hf
batch=(--set run.global_batch_size=512 --set shape.seq_length=4096)
all_valid "Llama-3-8B" 64 80G --from hf $hf/llama-3-8b.json "${batch[@]}"
all_valid "Mixtral" 128 80G --from hf $hf/mixtral-8x7b.json "${batch[@]}"
all_valid "DeepSeek-V3" 512 141GB --from hf $hf/deepseek-v3.json "${batch[@]}"
like "a multi-token layer stays with the head" "$out" 'mL"'
all_valid "Qwen3-30B-A3B" 32 80G --from hf $hf/qwen3-30b-a3b.json "${batch[@]}"
all_valid "Nemotron-NAS" 64 80G --from hf $hf/nemotron-nas.json "${batch[@]}"

# What was given is a hint, and is judged as well
run cfg-finalize --suggest --world 8 --gpu-memory 80G \
	--set run.global_batch_size=64 etc/llama3-8B.cfg
like "the input's placement is said to be a hint" "$out" \
	"is a hint only: tensor_model_parallel_size = 2,"
like "and has a row of its own" "$out" "given +2 +yes +2 +2 "
like "memory is that of the GPU, its nodes have eight" "$out" \
	"8 ranks in nodes of 8, GPU h200 with 80.0G"
like "and what a step is" "$out" "a step is 64 samples of [0-9,]+ tokens \(seq_length\), in (fp32|bf16)"
like "what was given is taken back" "$out" \
	"num_virtual_stages_per_pipeline_rank=unset"

all_valid "a given placement" 8 80G etc/llama3-8B.cfg \
	--set run.global_batch_size=64
run cfg-finalize -o - --set place.sequence_parallel=unset etc/llama3-8B.cfg
like "--set PATH=unset leaves the default" "$out" \
	"sequence_parallel = false; # default"

# Another GPU
run cfg-finalize --suggest --world 8 --gpu a100-80g \
	--set run.global_batch_size=64 etc/llama3-8B.cfg
is "another GPU" "$rc" 0
like "with its own memory" "$out" "GPU a100-80g with 80.0G"
like "which was not measured" "$out" "times on a100-80g were not measured"

# Two GPUs: in the order of the measured steps (test/data/h200-steps.tsv)
order() { # SETS...: which of dp, pp and tp 2 comes first, second, third
	cfg-finalize --suggest --json --world 2 etc/gpt2-124M.cfg "${gpu[@]}" "$@" |
		jq -r '[.placements[] | select(.cp == 1)] | sort_by(.step_seconds) |
			map(if .dp == 2 then "dp" elif .pp == 2 then "pp" else "tp" end) |
			reduce .[] as $x ([]; if index($x) then . else . + [$x] end) | join(" ")'
}
is "GPT-2 1.7B on two GPUs" "$(order --set shape.num_layers=48 \
	--set shape.hidden_size=1664 --set shape.ffn_hidden_size=6656 \
	--set shape.num_attention_heads=26 --set run.global_batch_size=32)" "dp pp tp"
is "GPT-2 350M on two GPUs" "$(order --set shape.num_layers=24 \
	--set shape.hidden_size=1024 --set shape.ffn_hidden_size=4096 \
	--set shape.num_attention_heads=16 --set run.global_batch_size=64)" "dp pp tp"

# None
run cfg-finalize --suggest --world 8 --gpu-memory 8G etc/llama3-8B.cfg \
	--set run.global_batch_size=64
is "none fits: a finding" "$rc" 1
like "and what comes nearest" "$out" \
	"none fits: the nearest, tp [0-9]+ .* needs [0-9.]+G of the 7.36G"
run cfg-finalize --suggest --world 37 --gpu-memory 80G etc/llama3-8B.cfg \
	--set run.global_batch_size=64
is "nothing divides: a finding" "$rc" 1
like "and says so" "$out" "none: no tp, cp, pp and micro-batches divide"

# JSON
run cfg-finalize --suggest --json --world 8 --gpu-memory 80G "$llama" "${gpu[@]}"
is "JSON: exit 0" "$rc" 0
is "in one line" "$(wc -l <<<"$out")" 1
like "with the settings of a row" "$out" '"set":\["place'
like "and its seconds" "$out" '"step_seconds":0\.[0-9]+'

# Usage
run cfg-finalize --suggest "$llama"
is "without a world: bad usage" "$rc" 2
like "with the way out" "$err" "needs --world, or --nodes with --gpus-per-node"
run cfg-finalize --nodes 4 "$llama"
is "nodes of nobody knows how many: bad usage" "$rc" 2
like "with the way out" "$err" "--nodes needs --gpus-per-node or --world"
run cfg-finalize --suggest --world 8 "$llama" "$llama"
is "two inputs: bad usage" "$rc" 2
run cfg-finalize --suggest --world 8 --from hf $hf/llama-3-8b.json
is "no batch to share out" "$rc" 3
like "with the way out" "$err" "global_batch_size is not given.*--set run.global"
run cfg-finalize --suggest --world 8 --set shape.num_query_groups=3 "$llama"
is "a model that is none" "$rc" 3
like "and why" "$err" "no placement makes it valid: shape"
run cfg-finalize --suggest --world 8 "$T/none.cfg"
is "no such file" "$rc" 2
for size in 80 80g G 1e3G; do
	run cfg-finalize --world 8 --gpu-memory $size "$llama"
	is "--gpu-memory $size is bad usage" "$rc" 2
	like "and is named" "$err" "--gpu-memory: '$size' is not a size like"
done
run cfg-finalize --gpu v100 "$llama"
is "a GPU that is not known" "$rc" 2
like "with those that are" "$err" "h200, h100, a100-80g and b200"
done_testing
