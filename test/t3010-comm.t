#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between processes: their bits, and peers that do not answer.
. test/lib.sh

command -v mpirun >/dev/null || skip_all "no mpirun on this machine"
unit=${TRISECT_BUILD:-$TOP/build/cpu}/test/u-comm
helper=${unit%u-comm}x-comm
[ -x "$helper" ] || skip_all "$helper is not built"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export CMOCKA_MESSAGE_OUTPUT=TAP
ranks() { # N [MODE]
	timeout -k 5 120 mpirun --oversubscribe -n "$@"
}

tests() { # of the unit, by its plan
	"$unit" 2>/dev/null | sed -n 's/^1\.\.//p' | head -1
}

for n in 1 2 3 4 5; do
	run ranks $n "$unit"
	is "$n ranks: exit 0" "$rc" 0
	is "$n ranks: every rank passed" "$(grep -c '^ok' <<<"$out")" $(($(tests) * n))
done
run env OMPI_MCA_btl=self,tcp mpirun --oversubscribe -n 3 "$unit"
is "over TCP: exit 0" "$rc" 0

# mpirun's own PMIx server may crash or hang while it ends ranks by force
run_ended() { # as run ranks, again where it did
	local try

	for try in 1 2 3; do
		begun=$SECONDS
		run timeout -k 5 25 mpirun --oversubscribe -n "$@"
		[ $rc -lt 124 ] && return
		echo "# try $try: mpirun: exit $rc"
	done
}

### a peer that does not answer: CODE_COMM after the 1.5 s of its deadline
for mode in absent stopped; do
	run_ended 3 "$helper" $mode
	is "$mode: exit 6" "$rc" 6
	ok "$mode: in time" test $((SECONDS - begun)) -le 30
	like "$mode: names op, group, number and peer" "$err" \
		'sum: all-reduce \(sum\) in group world, number 0, of 1 elements: rank 0 has waited 1.5 s for rank 2 on'
	like "$mode: rank 1 says so too or was ended" "$err" \
		'x-comm\[[01]\]: error: '
done
run ranks 3 "$helper" killed
is "killed: the launcher ends the job" "$rc" 137

### collectives that do not match are named
run_ended 2 "$helper" kind
is "another operation: exit 6" "$rc" 6
like "another operation: its name" "$err" \
	'layer 3 attn out: all-(reduce \(sum\)|gather) in group world, number 0'
run_ended 2 "$helper" length
is "another length: exit 6" "$rc" 6
like "another length: both numbers, or too long" "$err" \
	'rank 1 sent 2 elements, 4 were expected|message truncated'
### more than 2^31 bytes; 10 GiB of memory
if [ -z "${TRISECT_LONG:-}" ]; then
	skip "large: counts past 2^31 bytes" "only in check-long"
else
	run ranks 2 "$helper" large
	is "large: counts past 2^31 bytes" "$rc" 0
fi
done_testing
