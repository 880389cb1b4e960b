#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A finalised file says the same as the one that it was made from: what was
# derived is given now, and the verdict stays.
# shellcheck source=test/lib.sh
. test/lib.sh

# verdict FILE OPTION... : one line, whatever the file's name
verdict() { cfg-finalize --json "${@:2}" "$1" | sed -E 's/"file":"[^"]*",//; s/"findings":.*"shape_hash"/"shape_hash"/'; }

# (an imported one is ours once it is written)
for file in etc/*.cfg test/data/good/*.cfg; do
	grep -aq '^# input:' "$file" && continue
	line=$(grep -am1 '^# args:' "$file" | cut -d: -f2-)
	read -ra args <<<"$line"
	read -ra own <<<"$(sed -E 's/--from [a-z]+//' <<<"$line")"
	cfg-finalize -o "$T/final.cfg" --force "${args[@]}" "$file" >/dev/null
	[ "$(verdict "$file" "${args[@]}")" = "$(verdict "$T/final.cfg" "${own[@]}")" ] ||
		echo "$file: $(verdict "$T/final.cfg" "${own[@]}")"
done >"$T/changed"
is "no verdict changes" "$(<"$T/changed")" ""
cfg-finalize -o "$T/again.cfg" "$T/final.cfg" >/dev/null
is "finalised twice is finalised once" "$(sed 's/ *#.*//' "$T/again.cfg")" \
	"$(sed 's/ *#.*//' "$T/final.cfg")"
done_testing
