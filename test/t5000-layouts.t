#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every answer is independent of the layout: test/data/layouts/list against
# one rank.  fp64: losses within 1e-12, final parameters within
# 1e-9 max(max |ref|, lr); fp32: losses within 5e-6, first gradients (the
# first moments after one step) within 2e-5 max(max |ref|, 1e-3 of the largest
# of all).  A seeded sample here, all of them with TRISECT_LONG.
# shellcheck source=test/lib.sh
. test/lib.sh

data=test/data/layouts
compare=${TRISECT_BUILD:-build/cpu}/test/x-compare
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1

train() { # train DIR MODEL WORLD DTYPE [SET]... ; log in DIR.log
	local dir=$1 model=$2 world=$3 dtype=$4 args=()

	shift 4
	for s in "$@"; do
		args+=(--set "$s")
	done
	mpirun --oversubscribe -n "$world" train-worker "$data/$model.cfg" \
		--set "run.dir=\"$dir\"" --set "spec.params_dtype=\"$dtype\"" \
		--set run.save_interval=1 "${args[@]}" >"$dir.log" 2>&1
}

run_sets() { # those settings that are of the group run: the reference's too
	for s in "$@"; do
		case $s in run.micro_batch_size=*) ;; run.*) echo "$s" ;; esac
	done
}

losses() { jq -r .loss "$1/metrics.jsonl"; }

# The largest difference of two runs' losses is at most $3.
same_losses() {
	paste <(losses "$1") <(losses "$2") | awk -v tol="$3" '
		NF != 2 { bad = 1 }
		{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
		END { print NR " losses, off by " worst; exit !(NR == 5 && !bad && worst <= tol) }'
}

check() { # check DTYPE NAME MODEL WORLD [SET]...
	local dtype=$1 name=$2 model=$3 world=$4 ref

	shift 4
	mapfile -t common < <(run_sets "$@")
	ref=$T/ref-$dtype-$model-$(md5sum <<<"${common[*]}" | cut -c1-8)
	[ -e "$ref.log" ] || train "$ref" "$model" 1 "$dtype" "${common[@]}"
	ok "$name $dtype: runs" train "$T/new" "$model" "$world" "$dtype" "$@" ||
		sed 's/^/# /' "$T/new.log"
	if [ "$dtype" = fp64 ]; then
		ok "$name fp64: losses" same_losses "$ref" "$T/new" 1e-12
		ok "$name fp64: parameters" "$compare" \
			"$ref/step_00000005" "$T/new/step_00000005" param 1e-9 0.01 0
	else
		ok "$name fp32: losses" same_losses "$ref" "$T/new" 5e-6
		ok "$name fp32: gradients" "$compare" \
			"$ref/step_00000001" "$T/new/step_00000001" m 2e-5 0 1e-3
	fi
	rm -rf "$T/new" "$T/new.log"
}

mapfile -t list < <(grep -v '^#' $data/list)
seed=${TRISECT_SEED:-$(date +%j)}
echo "# seed $seed"
for i in "${!list[@]}"; do
	if [ -z "${TRISECT_LONG:-}" ] && [ $(((i * 7 + seed) % 4)) -ne 0 ]; then
		continue
	fi
	read -r -a words <<<"${list[i]}"
	check fp64 "${words[@]}"
	if [ -n "${TRISECT_LONG:-}" ] || [ $((i % 2)) -eq 0 ]; then
		check fp32 "${words[@]}"
	fi
done
done_testing
