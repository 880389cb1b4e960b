#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the fuzzers read (make fuzz) and what they once fell over, read again: no
# crash, no hang, and what is valid stays so when it is written and read.
# shellcheck source=test/lib.sh
. test/lib.sh

replay=${TRISECT_BUILD:-$TOP/build/cpu}/test/x-replay
for target in test/fuzz/*.c; do
	name=$(basename "$target" .c)
	n=$(find "test/fuzz/$name" -type f | wc -l)
	run timeout 60 bash -c 'ulimit -v 1048576; exec "$@"' - \
		"$replay" "$name" "test/fuzz/$name"/*
	is "$name: exit code" $rc 0
	is "$name: all are read" "$out" "$n inputs"
	is "$name: nothing is said" "$err" ""
	ok "$name: there are some" test "$n" -ge 4
done
printf 'shape: { num_layers = 1; };' >"$T/one"
run "$replay" none "$T/one"
is "another target is none" $rc 2
done_testing
