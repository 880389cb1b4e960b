#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies of weights stay equal, and one that does not is noticed by name.  And
# depths that are detached leave the decoder as if there were none.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

helper=${TRISECT_BUILD:-build/cpu}/test/x-sync
tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
sp=place.sequence_parallel=true zero=place.use_distributed_optimizer=true

while read -r -u 3 name model world sets; do
	read -r -a words <<<"$sets"
	ok "$name: copies stay equal" worker "$T/run" "$model" "$world" \
		run.sync_check_interval=1 run.train_iters=3 "${words[@]}"
	rm -rf "$T/run" "$T/run.log"
done 3<<EOT
tied-mtp mtp 4 $pp=2 $tp=2 $sp
alone mtp 4 $pp=4 place.pipeline_model_parallel_layout="Etttt|tttt|mm|L"
zero llama 4 $zero $tp=2
experts moe 4 place.expert_model_parallel_size=2 $tp=2 $sp
bf16 llama 2 spec.params_dtype=bf16 $zero
EOT

spoiled() { # spoiled MODEL WORLD NAME RANK [SET]...: into $out and $rc
	sed '/^place = {/q' "$layouts/$1.cfg" >"$T/spoiled.cfg"
	printf '%s;\n' "${@:5}" >>"$T/spoiled.cfg"
	sed '1,/^place = {/d' "$layouts/$1.cfg" >>"$T/spoiled.cfg"
	run timeout -k 5 120 mpirun --oversubscribe -n "$2" "$helper" "$T/spoiled.cfg" "$3" "$4"
}

spoiled mtp 2 embed/tok -1 pipeline_model_parallel_size=2
is "the helper alone finds nothing" "$rc" 0
spoiled mtp 2 embed/tok 1 pipeline_model_parallel_size=2
is "a copy of the embedding that is not: exit 8" "$rc" 8
like "by name" "$err" "copies of embed/tok on ranks 0 and 1 are no longer equal"
spoiled llama 4 final_norm/w 2 tensor_model_parallel_size=2
is "a replica of data parallelism: exit 8" "$rc" 8
like "by name and rank" "$err" "copies of final_norm/w on ranks [01] and 2 are"
spoiled llama 4 layers/0003/attn/qkv/w 1 tensor_model_parallel_size=4
is "keys that two ranks of tensor parallelism hold: exit 8" "$rc" 8
like "by name again" "$err" "ranks 0 and 1 are no longer equal; resume from a checkpoint"

train() { worker "$T/$1" mtp "${@:2}" run.train_iters=5 spec.params_dtype=fp32; }
train none 1 shape.mtp_num_layers=0
train detached 1 run.mtp_detach_heads=true
train attached 1
ok "detached depths change no bit of the decoder's losses" equal_losses "$T/none" "$T/detached" 5
is "nor of its gradient's norm" "$(jq .grad_norm "$T/detached/metrics.jsonl")" \
	"$(jq .grad_norm "$T/none/metrics.jsonl")"
not_ok() { ! "$@" >/dev/null 2>&1; }
ok "attached ones do" not_ok equal_losses "$T/none" "$T/attached" 5
ok "and they learn" jq -se '.[-1].mtp[1].loss < .[0].mtp[1].loss - 0.3 and .[0].mtp_grad_norm > 0' \
	"$T/detached/metrics.jsonl"
done_testing
