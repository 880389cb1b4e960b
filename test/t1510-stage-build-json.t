#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stage-build --json: exactly the documented object, and numbers that agree.
. test/lib.sh

d=test/data/stage
unset SLURM_NTASKS
set8=(--world 8 --set place.tensor_model_parallel_size=2
	--set place.pipeline_model_parallel_size=2
	--set place.virtual_pipeline_model_parallel_size=2)

jq_is() { # NAME FILTER WANT, of $out
	is "$1" "$(jq -c "$2" <<<"$out")" "$3"
}

run stage-build --json "${set8[@]}" $d/gpt2.cfg
is "exit 0 in silence" "$rc:$err" "0:"
is "one line" "$(wc -l <"$T/.out")" 1
jq_is "keys" keys_unsorted '["shape_hash","world","grid","stages","ranks","estimate","groups","bubble"]'
jq_is "keys of grid" '.grid | keys_unsorted' \
	'["tp","pp","vp","cp","ep","etp","dp","edp"]'
jq_is "grid" '[.grid[]]' '[2,2,2,1,1,2,2,2]'
jq_is "keys of stages" '[.stages[] | keys_unsorted] | unique' \
	'[["pp","vp","first_layer","num_layers","embedding","final_norm","mtp_layers","output_head","loss","parameters","flops"]]'
jq_is "keys of ranks" '[.ranks[] | keys_unsorted] | unique' \
	'[["rank","tp","cp","ep","etp","dp","edp","pp","parameters","bytes"]]'
jq_is "keys of bytes" '[.ranks[].bytes | keys_unsorted] | unique' \
	'[["parameters","gradients","optimizer","activations","communication","host","total"]]'
jq_is "keys of groups" '.groups | keys_unsorted' \
	'["tp","cp","dp","dp_cp","ep","etp","edp","pp","embedding"]'
jq_is "stages in the order of the data" '[.stages[] | [.pp,.vp,.first_layer,.num_layers]]' \
	'[[0,0,0,2],[1,0,2,2],[0,1,4,2],[1,1,6,2]]'
jq_is "roles" '[.stages[] | [.embedding,.final_norm,.output_head,.loss]] | .[0,3]' \
	'[true,false,false,false]'$'\n''[false,true,true,true]'
jq_is "ranks in order, tp fastest" '[.ranks[] | [.rank,.tp,.dp,.pp]] | .[0,1,2,7]' \
	'[0,0,0,0]'$'\n''[1,1,0,0]'$'\n''[2,0,1,0]'$'\n''[7,1,1,1]'
jq_is "keys of the estimate" '.estimate | keys_unsorted' \
	'["gpu","gpus_per_node","step_seconds","tokens_per_second","share_of_peak","bubble","bytes"]'
jq_is "its bytes are the plan's" '(.ranks | map({(.pp | tostring): .bytes}) | add) ==
	(.estimate.bytes | map({(.pp | tostring): del(.pp)}) | add)' true
jq_is "total is the sum" '[.ranks[].bytes | ([.[]] | add) == 2 * .total] | all' true
jq_is "groups tile the world" '[.groups | del(.embedding)[] | flatten | sort == [range(8)]] | all' true
jq_is "the tied embedding's groups" .groups.embedding '[[0,4],[1,5],[2,6],[3,7]]'
jq_is "bubble is a share" '.bubble > 0 and .bubble < 1' true
hash=$(cfg-finalize --json $d/gpt2.cfg | jq -r '.shape_hash, .parameters')
is "hash and parameters are cfg-finalize's" \
	"$(jq -r '.shape_hash, ([.stages[].parameters] | add)' <<<"$out")" "$hash"

all=$(jq -c '.ranks[5], .stages, .groups' <<<"$out")
run stage-build --json --rank 5 "${set8[@]}" $d/gpt2.cfg
is "--rank: only its entry" "$(jq -c '.ranks[], .stages, .groups' <<<"$out")" "$all"

run stage-build --json --world 1 --set shape.attention_output_gate=true $d/llama.cfg
is "not served: exit 0" "$rc" 0
jq_is "what is not known is null" \
	'[.stages[0].parameters,.stages[0].flops,.ranks[0].parameters,.ranks[0].bytes.total,.bubble]' \
	'[null,null,null,null,null]'
jq_is "but estimated" '.estimate | .step_seconds > 0 and ([.bytes[0][]] | min) >= 0 and .bytes[0].total > 0' true
run stage-build --json --world 1 --set 'place.recompute_granularity="selective"' $d/llama.cfg
jq_is "what is known is not" \
	'[.stages[0].parameters,.stages[0].flops,.ranks[0].bytes.parameters/4 >= .stages[0].parameters,.ranks[0].bytes.activations]' \
	"[$(cfg-finalize --json $d/llama.cfg | jq .parameters),null,true,null]"

run stage-build --json --world 16384 --set place.tensor_model_parallel_size=8 \
	--set run.global_batch_size=2048 $d/llama.cfg
jq_is "a large world" '[.ranks | length, .[-1].dp], (.groups.dp | length, (.[7] | .[-1]))' \
	'[16384,2047]'$'\n'8$'\n'16383
done_testing
