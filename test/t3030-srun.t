#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bootstrap and collectives under a real srun, over two nodes.
# shellcheck disable=SC2016 # what runs later expands later
. test/lib.sh

PATH=$PATH:/usr/sbin:/sbin
for name in slurmctld slurmd munged srun; do
	command -v $name >/dev/null || skip_all "no $name on this machine"
done
units=${TRISECT_BUILD:-$TOP/build/cpu}/test
[ -x "$units/x-comm" ] || skip_all "$units/x-comm is not built"
lc=slurm/local-cluster
at_exit '$lc down --dir "$T/c" >/dev/null 2>&1'
$lc up --nodes 2 --dir "$T/c" >"$T/up" 2>&1 || { cat "$T/up"; exit 1; }
eval "$($lc env --dir "$T/c")"
# the transport must find out about the shared machine by itself
for name in ${!OMPI_MCA_*}; do
	unset "$name"
done
export CMOCKA_MESSAGE_OUTPUT=TAP
ranks() { # NODES TASKS_PER_NODE COMMAND...
	timeout -k 5 120 srun --mpi=pmix -N"$1" --ntasks-per-node="$2" "${@:3}"
}

run ranks 2 2 "$units/x-boot" all
is "two nodes know each other" "$rc $(sort <<<"$out" | head -1)" \
	"0 rank 0 of 4, node 0, local 0 of 4, nonce 1, last 0.1.0"
is "a rank's number on its node, as Slurm has it" \
	"$(sort <<<"$out" | grep -o 'node [0-9]*, local [0-9]*')" \
	"node 0, local 0
node 1, local 1
node 0, local 2
node 1, local 3"
run ranks 2 2 "$units/x-boot" device
like "a GPU for two: both ranks and nodes" "$rc $err" \
	'^5 .*rank 0 on n1 and rank 3 on n2 use the same GPU, 0000:00:00.0 of '
tests=$("$units/u-comm" 2>/dev/null | sed -n 's/^1\.\.//p' | head -1)
run ranks 2 2 "$units/u-comm"
is "collectives over two nodes" "$rc $(grep -c '^ok' <<<"$out")" \
	"0 $((4 * tests))"
run ranks 1 2 "$units/u-comm"
is "collectives on one node" "$rc $(grep -c '^ok' <<<"$out")" \
	"0 $((2 * tests))"

run ranks 2 2 "$units/x-boot" config
like "a mismatch names nodes" "$rc $err" \
	'^5 .*config differs: rank 0 on n1 has .*, rank 3 on n2 has x123'
run ranks 2 2 "$units/x-boot" late
like "a late rank" "$rc $err" \
	'^6 .*rank [0-2] on n[12] has no word of ranks [0-9, ]*3[ :]'
run ranks 2 2 "$units/x-boot" aborts
is "an abort: srun ends with its code" "$rc" 9
is "an abort: its words" "$(grep 'error: disk' <<<"$err")" \
	'x-boot[3]: error: disk full'
run ranks 2 2 "$units/x-boot" dies
like "a rank that dies in the bootstrap: killed, or missed" "$rc" '^(137|6)$'
run ranks 2 2 "$units/x-comm" stopped
like "a stopped peer" "$rc $err" \
	'^6 .*waited 1.5 s for rank .*3 on n2'
run ranks 2 2 "$units/x-comm" killed
like "a killed peer: by Slurm's signal or its deadline" "$rc" '^(137|6)$'
run srun --mpi=none -N2 -n4 "$units/x-boot" all
like "srun --mpi=none is refused" "$rc $err" \
	'^5 .*one of 4 tasks .*srun --mpi=pmix'
run srun --mpi=none -n1 "$units/x-boot" all
is "one task without PMIx is alone" "$rc $out" \
	"0 rank 0 of 1, node 0, local 0 of 1, nonce 1, last 0.1.0"
done_testing
