#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every answer is independent of the layout: test/data/layouts/list against
# one rank.  fp64: losses within 1e-12, final parameters within
# 1e-9 max(max |ref|, lr); fp32: losses within 5e-6, first gradients (the
# first moments after one step) within 2e-5 max(max |ref|, 1e-3 of the largest
# of all).  Of experts in fp32 the first losses alone: after some updates a
# token between two experts goes to the other one.  A sample seeded by the day here, all of them with TRISECT_LONG.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

train() { # train DIR MODEL WORLD DTYPE [SET]...
	local dtype=$4

	worker "$1" "$2" "$3" "spec.params_dtype=\"$dtype\"" \
		run.save_interval=1 "${@:5}"
}

run_sets() { # those settings of the groups shape and run: the reference's too
	for s in "$@"; do
		case $s in run.micro_batch_size=*) ;; run.* | shape.*) echo "$s" ;; esac
	done
}

check() { # check DTYPE NAME MODEL WORLD [SET]...
	local dtype=$1 name=$2 model=$3 world=$4 ref

	shift 4
	mapfile -t common < <(run_sets "$@")
	ref=$T/ref-$dtype-$model-$(md5sum <<<"${common[*]}" | cut -c1-8)
	[ -e "$ref.log" ] || train "$ref" "$model" 1 "$dtype" "${common[@]}"
	ok "$name $dtype: runs" train "$T/new" "$model" "$world" "$dtype" "$@"
	sed 's/^/# /' "$T/new.log" | grep -E 'error' || :
	if [ "$dtype" = fp64 ]; then
		ok "$name fp64: losses" same_losses "$ref" "$T/new" 1e-12 5
		ok "$name fp64: parameters" "$compare" \
			"$ref/step_00000005" "$T/new/step_00000005" param 1e-9 0.01 0
	else
		ok "$name fp32: losses" same_losses "$ref" "$T/new" 5e-6 5 \
			"$([[ $model = *moe ]] && echo 2)"
		ok "$name fp32: gradients" "$compare" \
			"$ref/step_00000001" "$T/new/step_00000001" m 2e-5 0 1e-3
	fi
	rm -rf "$T/new" "$T/new.log"
}

# ZeRO-1 on and off: the same bits, for every number of replicas.
check_zero() { # check_zero WORLD MODEL
	train "$T/off" "$2" "$1" fp32 run.global_batch_size=12
	train "$T/on" "$2" "$1" fp32 run.global_batch_size=12 \
		place.use_distributed_optimizer=true
	ok "zero-1 on dp $1, $2: bit-equal losses" equal_losses "$T/off" "$T/on" 5
	ok "zero-1 on dp $1, $2: bit-equal checkpoints" \
		ckpt-merge diff "$T/off/step_00000005" "$T/on/step_00000005"
	rm -rf "$T/on" "$T/off"
}

# The global loss of a step in one micro-batch: the same on ranks that share it.
check_global() { # check_global WORLD MICRO_BATCH [SET]...
	train "$T/new" moe "$1" fp64 "${global[@]}" "run.micro_batch_size=$2" "${@:3}"
	ok "global_aux_loss on $1 ranks: losses" same_losses "$T/global" "$T/new" 1e-12 5
	rm -rf "$T/new"
}

global=('run.moe_router_load_balancing_type="global_aux_loss"' run.moe_aux_loss_coeff=0.05)
train "$T/global" moe 1 fp64 "${global[@]}" run.micro_batch_size=12
check_global 3 4
check_global 2 6 place.expert_model_parallel_size=2
mapfile -t list < <(grep -v '^#' $layouts/list)
seed=${TRISECT_SEED:-$(date +%j)}
echo "# seed $seed"
for i in "${!list[@]}"; do
	if [ -z "${TRISECT_LONG:-}" ] && [ $(((i * 7 + 10#$seed) % 4)) -ne 0 ]; then
		continue
	fi
	read -r -a words <<<"${list[i]}"
	check fp64 "${words[@]}"
	if [ -n "${TRISECT_LONG:-}" ] || [ $((i % 2)) -eq 0 ]; then
		check fp32 "${words[@]}"
	fi
done
for dp in 2 3 ${TRISECT_LONG:+4 6}; do
	check_zero "$dp" llama
	check_zero "$dp" gpt2
	check_zero "$dp" moe
done
done_testing
