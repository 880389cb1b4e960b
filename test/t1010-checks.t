#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every check of the table: test/data/bad/ID.cfg fires it, and exactly what
# its "# expect:" says; test/data/good/ID.cfg, its repaired neighbour, does
# not.  "# args:" are options of the run, "# input:" a file to read in its place
# (JSON has no comments).
# shellcheck source=test/lib.sh
. test/lib.sh

# header KEY FILE: what follows "# KEY:" at its beginning
header() { grep -am1 "^# $1:" "$2" | cut -d: -f2- | xargs; }

# input FILE: what to read for it
input() {
	local other

	other=$(header input "$1")
	echo "${other:-$1}"
}

# found FILE: the ids of its findings, sorted, on one line
found() {
	local args

	read -ra args <<<"$(header args "$1")"
	cfg-finalize "${args[@]}" "$(input "$1")" | grep -a '\]$' |
		sed -E 's/.*\[([a-z-]+)\]$/\1/' | sort -u | xargs
}

ids=$(cfg-finalize --list-checks | cut -d' ' -f1)
for id in $ids; do
	bad=test/data/bad/$id.cfg good=test/data/good/$id.cfg
	if [ ! -f "$bad" ] || [ ! -f "$good" ]; then
		ok "$id has both files" false
		continue
	fi
	is "$id fires" "$(found "$bad")" "$(header expect "$bad")"
	like "$id is among what is expected" " $(header expect "$bad") " " $id "
	is "$id keeps quiet" "$(found "$good" | tr ' ' '\n' | grep -x "$id")" ''
	read -ra args <<<"$(header args "$good")"
	ok "$id: the repaired config is valid" \
		cfg-finalize "${args[@]}" "$(input "$good")"
done
for file in test/data/bad/*.cfg test/data/good/*.cfg; do
	basename "$file" .cfg
done | sort -u | grep -vxF "$ids" >"$T/strangers"
is "no file without a check" "$(<"$T/strangers")" ''
done_testing
