#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stage-build's text: tables as they were (UPDATE=1 writes them anew), worlds,
# exit codes.
. test/lib.sh

d=test/data/stage
unset SLURM_NTASKS

golden() { # NAME ARG... : standard output is what NAME.txt holds
	local name=$1

	shift
	run stage-build "$@"
	is "$name: exit 0" "$rc: $err" "0: "
	[ -z "${UPDATE-}" ] || printf '%s\n' "$out" >"$d/$name.txt"
	is "$name: the text" "$out" "$(<"$d/$name.txt")"
	is "$name: at most 100 columns" "$(wc -L <"$T/.out" | awk '$1 > 100')" ""
}

tp=place.tensor_model_parallel_size
pp=place.pipeline_model_parallel_size
vp=place.virtual_pipeline_model_parallel_size

golden tp2-pp2-vp2 --world 8 --set $tp=2 --set $pp=2 --set $vp=2 $d/gpt2.cfg
golden explain --world 8 --explain --set $tp=4 --set $pp=2 \
	--set 'place.num_layers_in_first_pipeline_stage=3' $d/llama.cfg
golden rank5 --world 8 --rank 5 --set $tp=4 --set $pp=2 \
	--set place.sequence_parallel=true $d/llama.cfg
golden layout --world 4 --set $pp=4 \
	--set 'place.pipeline_model_parallel_layout="E|ttt|ttttt|L"' $d/gpt2.cfg
golden world96 --world 96 --set $tp=4 --set $pp=4 \
	--set place.use_distributed_optimizer=true \
	--set run.global_batch_size=24 $d/llama.cfg
golden sbatch --world 12 --sbatch --per-node 4 --set $pp=4 $d/llama.cfg

# Worlds
run stage-build --set $tp=2 --set $pp=2 $d/llama.cfg
is "without --world the fewest ranks that fit" "$rc" 0
like "and it says so" "$err" "world 4: the fewest ranks that fit"
like "as the table does" "$out" "world 4 = tp 2 x pp 2"
SLURM_NTASKS=8 run stage-build --set $tp=2 --set $pp=2 $d/llama.cfg
like "SLURM_NTASKS is the world" "$out" "world 8 = tp 2 x dp 2 x pp 2"
SLURM_NTASKS=8 run stage-build --world 4 --set $tp=2 $d/llama.cfg
like "--world is stronger" "$out" "world 4 = tp 2 x dp 2"
SLURM_NTASKS=many run stage-build $d/llama.cfg
is "SLURM_NTASKS that is no number is bad usage" "$rc" 2
like "and named" "$err" "SLURM_NTASKS: 'many' is not a whole number"
run stage-build --world 6 --set $tp=4 $d/llama.cfg
is "a world that does not fit is a finding" "$rc:$out" "1:"
like "with its numbers" "$err" "world 6 .* tp 4 .*\[place-world\]"

# Findings, warnings, usage
run stage-build --world 2 --set $tp=2 --set shape.num_attention_heads=7 \
	--set shape.num_query_groups=7 $d/llama.cfg
is "an invalid config prints no plan" "$rc:$out" "1:"
like "but its findings" "$err" "error: .*\[[a-z-]*\]"
run stage-build --world 1 --set run.global_batch_size=90000000 $d/llama.cfg
is "a step too long to plan is not served" "$rc" 0
like "and has no program" "$out" "no program: train-worker does not serve"
like "with its length" "$err" "90000000 micro-batches .* at most 13107 "
run stage-build --world 1 --set shape.hidden_sise=3 $d/llama.cfg
is "so does an unknown setting" "$rc:$out" "1:"
run stage-build --world 4 --set $pp=4 --set shape.mtp_num_layers=1 --set shape.use_mup=true \
	--set 'place.pipeline_model_parallel_layout="Et*4|t*4|m|L"' $d/llama.cfg
is "what is not served yet is a warning" "$rc" 0
like "on standard error" "$err" "use_mup: warning: .*\[served-mup\]"
like "the stages are known" "$out" "embedding, mtp 1"
like "the rest is not" "$out" "no program: train-worker does not serve"
like "but its weights, and estimates" "$out" \
	" 0   0   0   0   0   0   0   0 +37,248 +146K +146K +291K( +~[0-9.]+[KM]){2,4}"
like "and estimated times" "$out" "estimated on h200, 4 a node: [0-9.e-]+ s a step, "
run stage-build --world 1 --gpu h200 --set 'spec.device="cuda"' $d/llama.cfg
like "they are there for GPUs too" "$out" "estimated on h200, 1 a node: "
run stage-build --world 1 --gpu a1 $d/llama.cfg
is "an unknown GPU: exit 2" "$rc" 2
like "with those that are known" "$err" "'a1'.*h200, h100, a100-80g and b200"
run stage-build --world 4 --set $pp=4 --set shape.mtp_num_layers=1 \
	--set 'place.pipeline_model_parallel_layout="Et*4|t*4|m|L"' $d/llama.cfg
is "at most 100 columns" "$(wc -L <"$T/.out" | awk '$1 > 100')" ""
run stage-build --world 4 --rank 3 --set $tp=2 \
	--set shape.num_moe_experts=4 --set shape.mtp_num_layers=1 \
	--set place.expert_model_parallel_size=2 \
	--set 'place.recompute_granularity="selective"' \
	--set place.sequence_parallel=true $d/llama.cfg
is "and a rank has its arrays" "$rc" 0
like "whole experts, each of them cut" "$out" \
	" layers/0007/moe/gate/w \[120:144, 0:32\]"
like "and the layer of multi-token prediction" "$out" \
	"mtp/00/eh_proj/w \[16:32, 0:64\]"
like "but no program" "$out" "activations +-
.*no program: train-worker does not serve"
run stage-build --world 8 --set 'place.data_parallel_sharding_strategy="optim_grads_params"' \
	--explain --set run.global_batch_size=16 $d/llama.cfg
like "sharded parameters are what a rank allocates" "$out" " 0   0   0   0   0   0   0   0 +9,328 +36.4K +36.4K +72.9K +~"
like "and explained" "$out" "optimizer state, gradients and parameters: each rank of dp_cp keeps"
run stage-build --world 1 --set 'spec.device="auto"' $d/llama.cfg
like "whose bytes they are" "$out" 'planned for CPUs; spec.device = "cuda" plans for GPUs'
run stage-build --world 1 --sbatch --set 'spec.device="cuda"' $d/llama.cfg
like "a GPU's host holds what is saved" "$out" "1 x \(what is saved \+ 25% \+ 2560 MiB\)"
run stage-build --world 1 --rank 0 --set shape.attention_output_gate=true $d/llama.cfg
is "weights that are not known have no rank in detail" "$rc" 1
like "and it says which" "$err" "and of gates"
run stage-build --world 4 --rank 4 $d/llama.cfg
is "a rank outside of the world is bad usage" "$rc" 2
like "and named" "$err" "--rank: 4 is not below the world of 4"
run stage-build --json --sbatch $d/llama.cfg
is "one kind of output at a time" "$rc" 2
run stage-build
is "no config is bad usage" "$rc" 2
run stage-build "$T/none.cfg"
is "a missing config is bad usage" "$rc" 2
like "and named" "$err" "none.cfg"
echo 'shape = {' >"$T/cut.cfg"
run stage-build "$T/cut.cfg"
is "so is one that ends too early" "$rc" 2
run stage-build --world 1 - <$d/llama.cfg
is "- is standard input" "$rc: ${out%%$'\n'*}" "0: -"
run stage-build --world 1 --svg "$T/no/such.svg" $d/llama.cfg
is "a drawing that cannot be written" "$rc" 9
run stage-build --help
is "--help" "$rc" 0
like "names the options" "$out" "--per-node=N"
if [ -c /dev/full ]; then
	stage-build --world 1 $d/llama.cfg >/dev/full 2>"$T/.err"
	is "a full disk is not silent" "$?" 9
fi
done_testing
