# SPDX-License-Identifier: Apache-2.0
# What the tests of train-worker share.  Sourced after test/lib.sh.
# shellcheck shell=bash
layouts=test/data/layouts
compare=${TRISECT_BUILD:-build/cpu}/test/x-compare
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1

# worker DIR MODEL WORLD [SET]... : train in DIR, talk in DIR.log
worker() {
	local dir=$1 model=$2 world=$3 args=()

	shift 3
	for s in "$@"; do
		args+=(--set "$s")
	done
	set -- train-worker "$layouts/$model.cfg" \
		--set "run.dir=\"$dir\"" "${args[@]}"
	[ "$world" -eq 1 ] || set -- mpirun --oversubscribe -n "$world" "$@"
	# What should end by itself is ended when it does not.
	timeout -k 5 "${WORKER_SECONDS:-240}" "$@" >"$dir.log" 2>&1
}

losses() { jq -r '[.step, .loss] | @tsv' "$1/metrics.jsonl"; }

# The same, and what a step says of each depth of multi-token prediction.
all_losses() {
	jq -r '[.step, .loss], (.step as $s | .mtp // [] | to_entries[] | .key as $k |
		.value | to_entries[] | ["\($s) \($k) \(.key)", .value]) | @tsv' "$1/metrics.jsonl"
}

# same_losses A B TOLERANCE STEPS [LAST]: B's losses are A's of the same steps,
# up to step LAST
same_losses() {
	awk -F '\t' -v tol="$3" -v steps="$4" -v last="${5:-1e9}" '
		FNR == NR { ref[$1] = $2; next }
		{ n += !/ / }
		$1 + 0 > last { next }
		{ d = ref[$1] - $2; if (!($1 in ref)) bad = 1 }
		{ if (d < 0) d = -d; if (!(d <= worst)) worst = d }
		END { print n " losses, off by " worst + 0
		      exit !(n == steps && !bad && worst <= tol) }
	' <(all_losses "$1") <(all_losses "$2")
}

# The very same losses, bit for bit, of STEPS steps.
equal_losses() { # equal_losses A B STEPS
	losses "$1" >"$T/.a" && losses "$2" >"$T/.b" &&
		[ "$(wc -l <"$T/.a")" -eq "$3" ] && diff "$T/.a" "$T/.b"
}
