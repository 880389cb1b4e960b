#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bootstrap under a launcher: who is there, who disagrees, who is missing.
# shellcheck disable=SC2016 # what runs later expands later
. test/lib.sh

command -v mpirun >/dev/null || skip_all "no mpirun on this machine"
helper=${TRISECT_BUILD:-$TOP/build/cpu}/test/x-boot
[ -x "$helper" ] || skip_all "$helper is not built"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() { # N COMMAND...
	timeout -k 5 60 mpirun --oversubscribe -n "$@"
}

run ranks 3 "$helper" all
is "three ranks: exit 0" "$rc" 0
is "three ranks know each other" "$(sort <<<"$out")" \
	"rank 0 of 3, node 0, local 0 of 3, nonce 1, last 0.1.0
rank 1 of 3, node 1, local 1 of 3, nonce 1, last 0.1.0
rank 2 of 3, node 2, local 2 of 3, nonce 1, last 0.1.0"
run "$helper" all
is "alone: exit 0" "$rc $out" \
	"0 rank 0 of 1, node 0, local 0 of 1, nonce 1, last 0.1.0"

### a rank that differs: one line, on rank 0, names both
differs() { # MODE WHAT A B
	run ranks 3 "$helper" "$1"
	is "$1 differs: exit 5" "$rc" 5
	is "$1 differs: said once" "$(grep -c 'error: ' <<<"$err")" 1
	like "$1 differs: both ranks and values" "$err" \
		"\[0\]: error: $2 differs: rank 0 on [^ ]+ has $3, rank 2 on [^ ]+ has $4: "
}
differs version 'binary version' 0.1.0 0.0.9
differs shape shape 0123456789abcdef0123456789abcdef x123.*
differs config config 0123456789abcdef0123456789abcdef x123.*
differs step 'step to resume from' 120 -1

run ranks 3 "$helper" device
is "a GPU for two: exit 5" "$rc" 5
is "a GPU for two: said once" "$(grep -c 'error: ' <<<"$err")" 1
like "a GPU for two: both ranks, the GPU, the way out" "$err" \
	'\[0\]: error: rank 0 on [^ ]+ and rank 2 on [^ ]+ use the same GPU, 0000:00:00.0 of [^ ]+: .*--gpus-per-task=1'

### a rank that does not come
begun=$SECONDS
run ranks 3 "$helper" late
is "late: exit 6" "$rc" 6
ok "late: in time" test $((SECONDS - begun)) -le 30
like "late: who" "$err" \
	'bootstrap of 3 ranks not complete in 2 s .*rank [01] on [^ ]+ has no word of ranks 2: look there'

### ranks that fail before the exchange: one line, its code is the job's
run ranks 3 "$helper" aborts
is "one fails: exit 9" "$rc" 9
is "one fails: its words alone" "$(grep 'error: ' <<<"$err")" \
	'x-boot[2]: error: disk full'
run ranks 3 "$helper" alike
is "all fail alike: exit 3" "$rc" 3
is "all fail alike: rank 0's words alone" "$(grep 'error: ' <<<"$err")" \
	'x-boot[0]: error: no such config'

### environments that lie
run env PMIX_NAMESPACE=gone PMIX_RANK=0 "$helper" all
is "stale environment: exit 5" "$rc" 5
like "stale environment: says so" "$err" \
	'stale or broken PMIx environment \(PMIX_NAMESPACE gone, PMIX_RANK 0,.*srun --mpi=pmix'
begun=$SECONDS
run ranks 1 bash -c 'for v in ${!PMIX_SERVER_URI*}; do
	export $v="${!v%%;*};tcp4://10.255.255.1:4444"
done; exec "$1" all' bash "$helper"
is "a server that never answers: exit 5 or 6" "${rc/5/6}" 6
ok "a server that never answers: in time" test $((SECONDS - begun)) -le 30
like "a server that never answers: says so" "$err" 'PMIx_Init: '
run env SLURM_STEP_NUM_TASKS=4 "$helper" all
is "srun without PMIx: exit 5" "$rc" 5
like "srun without PMIx: what to do" "$err" \
	'one of 4 tasks \(SLURM_STEP_NUM_TASKS\) but without PMIx.*srun --mpi=pmix'
for gds in hash ^ds21; do
	run env PMIX_MCA_gds=$gds mpirun --oversubscribe -n 3 "$helper" all
	is "with gds=$gds" "$rc$(grep -c '^rank' <<<"$out")" 03
done
done_testing
