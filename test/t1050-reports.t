#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What users of Megatron-LM reported, and what its own checks let through or
# fall over: each as settings over one config, and what is said of it.
# shellcheck source=test/lib.sh
. test/lib.sh

# The settings, shortened.
long() { # long WORD
	local name=${1%%=*} value=${1#*=}

	case $name in
	tp) name=place.tensor_model_parallel_size ;;
	pp) name=place.pipeline_model_parallel_size ;;
	vp) name=place.virtual_pipeline_model_parallel_size ;;
	chunk) name=place.num_layers_per_virtual_pipeline_stage ;;
	group) name=place.microbatch_group_size_per_vp_stage ;;
	first) name=place.num_layers_in_first_pipeline_stage ;;
	last) name=place.num_layers_in_last_pipeline_stage ;;
	layout) name=place.pipeline_model_parallel_layout ;;
	sp) name=place.sequence_parallel ;;
	layers) name=shape.num_layers ;;
	heads) name=shape.num_attention_heads ;;
	groups) name=shape.num_query_groups ;;
	mtp) name=shape.mtp_num_layers ;;
	experts) name=shape.num_moe_experts ;;
	vocab) name=shape.vocab_size ;;
	batch) name=run.global_batch_size ;;
	esac
	echo "$name=$value"
}

# says ID WHAT "WORD..." PATTERN...: every pattern is in what is said
says() {
	local id=$1 what=$2 pattern sets=()

	# shellcheck disable=SC2086 # words
	for word in $3; do sets+=(--set "$(long "$word")"); done
	run cfg-finalize "${sets[@]}" --world "${world:-1}" test/data/whole.inc
	for pattern in "${@:4}"; do
		like "$id: $what: ${pattern:0:40}" "$out" "$pattern"
	done
}

## user reports, by their numbers in the study
pp1="tp=1 pp=1"
world=4 says U01 "layers that do not divide were dropped" "tp=1 pp=4 layers=30" \
	"30 slots, not a multiple of pipeline_model_parallel_size 4" \
	"first_pipeline_stage = 7 with num_layers_in_last_pipeline_stage = 7" \
	"account_for_embedding_in_pipeline_split = true" '\[place-split\]'
world=16 says U02 "half layers a chunk were dropped" "tp=1 pp=16 layers=80 chunk=2" \
	"80 layers / pp 16 = 5 a rank, not a multiple of .* 2" '\[place-virtual-layers\]'
world=3 says U04 "more first and last layers than layers" "tp=1 pp=3 layers=4 first=4 last=2" \
	"leave -2 layers for 1 middle stage" '\[place-split-ends\]'
world=2 says U04 "and without a last" "tp=1 pp=2 layers=2 first=4" '\[place-split-ends\]'
world=4 says U05 "a last stage of its own with virtual stages" "tp=1 pp=4 vp=2 layers=20 last=2" \
	"valid, "
world=2 says U07 "two ranks with virtual stages" "tp=1 pp=2 vp=2" \
	"note: .*Megatron-LM then wants overlap_p2p_comm" "valid, "
world=4 says U08 "a group below pp" "tp=1 pp=4 vp=2 group=2" \
	"group of 2 micro-batches is below pipeline_model_parallel_size 4" '\[run-group\]'
world=4 says U08 "a last group as large as pp" "tp=1 pp=4 vp=2 group=6 batch=32" "valid, "
world=4 says U08 "one that is smaller" "tp=1 pp=4 vp=2 group=7 batch=32" \
	"16 micro-batches % group 7 = 2, .* at least pipeline_model_parallel_size 4" \
	"try 14 micro-batches or 21 micro-batches" '\[run-group-rest\]'
says U09 "groups that do not divide heads" "$pp1 heads=32 shape.hidden_size=128 groups=5" \
	"num_attention_heads 32 is not a multiple of num_query_groups 5" \
	"num_query_groups = 4 or num_query_groups = 8"
says U09 "no groups" "$pp1 groups=0" "0 is not between 1 and"
world=4 says U14 "a vocabulary that tp does not divide" \
	"tp=4 pp=1 vocab=151669 place.should_pad_vocab=false" \
	"vocab_size 151669 is not a multiple of tensor_model_parallel_size 4" \
	"151672 rows" "152064 rows"
world=16 says U21 "MTP on a stage without layers" \
	"tp=1 pp=16 layers=60 mtp=1 layout=E(|tt)*30,|mL batch=32" ": valid, [0-9]+ parameters"
# one layer more with experts: 3 x 3 x 256 x 96 + 4 x 96 parameters
says U23 "every other layer with experts" "$pp1 experts=4 shape.moe_layer_freq=2" \
	"valid, $((861792 + 4 * 221568)) parameters"
says U23 "all of them" "$pp1 experts=4" "valid, $((861792 + 8 * 221568)) parameters"
sed '/ffn_hidden/d; s/hidden_size = 96/hidden_size = 5120/' test/data/whole.inc >"$T/swiglu.cfg"
like "U25: a derived width is said" "$(cfg-finalize "$T/swiglu.cfg")" \
	"64 \* floor\(hidden_size 5120 / 24\) = 13632 .*compare with theirs"

# shape "WORD...": the shape's hash, by which checkpoints load
shape() {
	local word sets=()

	# shellcheck disable=SC2086 # words
	for word in $1; do sets+=(--set "$(long "$word")"); done
	cfg-finalize --json "${sets[@]}" test/data/whole.inc | jq -r .shape_hash
}
whole=$(shape "")
is "U11: another padding is the same model" "$(shape place.make_vocab_size_divisible_by=1)" "$whole"
ok "U12: another vocabulary is another model" test "$(shape vocab=320)" != "$whole"
# U13, U30: test/t5000-layouts.t compares the losses of layouts, vocabulary padded
run cfg-finalize --set place.make_vocab_size_divisible_by=1000 test/data/whole.inc
like "U13, U16: padding is no parameter of the model" "$out" \
	"valid, 861792 parameters, vocabulary 256 in 2000 rows"
for vp in 1 2; do
	stage-build --world 2 --rank 1 --set place.tensor_model_parallel_size=1 \
		--set place.virtual_pipeline_model_parallel_size=$vp test/data/whole.inc 2>"$T/err" |
		grep -o 'layers/[0-9]*' | sort -u | xargs
done >"$T/layers"
is "U17: layers have their numbers in the model, whatever the chunks" "$(<"$T/layers")" \
	"layers/0004 layers/0005 layers/0006 layers/0007
layers/0002 layers/0003 layers/0006 layers/0007"
is "U18: experts in other places are the same model" \
	"$(shape "experts=4 tp=1 pp=4")" "$(shape "experts=4 tp=1 pp=1 place.expert_model_parallel_size=4")"
is "U19: a layout is no part of the model" "$(shape "layout=Etttt|ttttL")" "$whole"
is "U22: every check has a config that fires it" "$(cfg-finalize --list-checks | cut -d' ' -f1 |
	while read -r id; do [ -f "test/data/bad/$id.cfg" ] || echo "$id"; done)" ""
unset CUDA_DEVICE_MAX_CONNECTIONS
world=4 says U27 "the environment makes no config wrong" "" "valid, "
run env -i PATH="$PATH" CUDA_VISIBLE_DEVICES= cfg-finalize --world 4 test/data/whole.inc
is "U28: no GPU and no trainer is needed" $rc 0
cfg-finalize -o "$T/final.cfg" test/data/whole.inc >"$T/out"
like "U29: a finalised file has no value left to be changed" "$(<"$T/final.cfg")" \
	"ffn_hidden_size = 256; # given: .*kv_channels = 12; # derived: .*hidden_dropout = .*; # default"
run stage-build --world 4 --set place.tensor_model_parallel_size=1 \
	--set "place.pipeline_model_parallel_layout=E|tttt|tttt|L" --set place.pipeline_model_parallel_size=4 \
	test/data/whole.inc
like "U32: an embedding of its own stage, and a loss" "$out" \
	"0 +0 +- .*embedding.*1 +0 +0-3 .*2 +0 +4-7 .*3 +0 +- .*loss"

## what is wrongly accepted there, wrongly refused, or ends in a crash
world=2 says O02 "a first stage of no layers" "tp=1 pp=2 first=0" "0 is not between 1 and"
world=4 says O03 "33 layers, floored" "tp=1 pp=4 vp=2 layers=33" '\[place-split\]'
world=2 says O04 "9 layers on 2 stages" "tp=1 pp=2 layers=9" '\[place-split\]'
says O06 "sequence_parallel alone" "$pp1 sp=true" '\[place-sequence-parallel\]'
world=2 says O07 "both ends and no middle" "tp=1 pp=2 vp=2 first=4 last=4" "valid, "
says O11 "a name with a slip" "$pp1 shape.num_layer=9" \
	"shape.num_layer: error: unknown setting; try shape.num_layers"
says O20 "no MTP and MTP of none" "$pp1 mtp=0" "valid, "
world=4 says O21 "the help text's own layout" "tp=1 pp=4 layers=3 mtp=2 layout=E|(t|)*3,m|m||L" \
	'\[place-layout-mtp\]'
world=2 says O22 "MTP on the first rank" "tp=1 pp=2 layers=2 mtp=1 layout=Ettm|L" \
	"pipeline rank that is not the first \[place-layout-mtp\]"
world=2 says O23 "an embedding on the second stage" "tp=1 pp=2 layers=2 layout=|Et|tL|" \
	'\[place-layout-ends\]'
world=4 says O23 "a head before the last" "tp=1 pp=4 layers=2 layout=Et|tL||" \
	'\[place-layout-ends\]'
world=2 says O25 "nesting and blanks" "tp=1 pp=2 layers=4 layout=E(t,t|)*1,((t)*2)*1,L" "valid, "
world=2 says O26 "a pattern that would fill the memory" \
	"tp=1 pp=2 layout=E((((t*4096)*4096)*4096)*4096)*4096|L" '\[place-layout\]'
says O30 "a window pattern of another length" \
	"$pp1 shape.window_size=[16,0] shape.window_attn_skip_freq=[1,0,1]" \
	"wants a period .* num_layers 8 .*, not 3 numbers"
says C034 "more experts a token than there are" "$pp1 experts=2 shape.moe_router_topk=3" \
	"moe_router_topk 3 is more than num_moe_experts 2"
world=2 says C043 "recompute of more layers than a stage has" \
	"tp=1 pp=2 place.recompute_granularity=full place.recompute_method=block place.recompute_num_layers=5" \
	"recompute_num_layers 5 is more than the 4 layers of the largest stage"
world=2 says C091 "tokens that tp does not divide" \
	"tp=2 pp=1 sp=true shape.seq_length=63" \
	"63 / cp 1 = 63 tokens are not a multiple of tensor_model_parallel_size 2"
world=24 says X23 "experts that do not tile the world" \
	"tp=2 pp=3 layers=9 experts=8 place.expert_model_parallel_size=8 sp=true" \
	"world 24 is not a multiple of etp 2 x ep 8 x pp 3 = 48" '\[place-expert-world\]'
done_testing
