#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a finding suggests works: with NAME = VALUE [with NAME = VALUE ...] set,
# the finding is gone and no other error has come for it.
# shellcheck source=test/lib.sh
. test/lib.sh

# header KEY FILE: what follows "# KEY:" at its beginning
header() { grep -am1 "^# $1:" "$2" | cut -d: -f2- | xargs; }

declare -A groups
while IFS=. read -r group name; do
	groups[$name]=$group
done < <(cfg-finalize --list-settings | grep -o '^[a-z]*\.[a-z0-9_]*')

# settings SUGGESTION: $sets, its settings as options; none if it says
# something else
settings() {
	local text=${1%% (*} part name

	sets=()
	text=${text// with /$'\n'}
	while read -r part; do
		name=${part%% = *}
		if [[ $part != *' = '* || ! ${groups[$name]-} ]]; then
			sets=()
			return
		fi
		sets+=(--set "${groups[$name]}.$name=${part#* = }")
	done <<<"${text// and /$'\n'}"
}

# left ID PATH: of the findings on standard input, that one and other errors
left() {
	sed -nE "s/.*: (error|warning|note): .*\[([a-z-]+)\]\$/\1 \2/p" |
		grep -vxF "$known" | grep "^error\|[a-z]* $1\$"
}

tried=0
for file in test/data/bad/*.cfg; do
	id=$(basename "$file" .cfg)
	case $id in
	shape-heads | shape-delta-heads) continue ;; # rope or tp want more
	esac
	input=$(header input "$file")
	read -ra args <<<"$(header args "$file")"
	cfg-finalize "${args[@]}" "${input:-$file}" >"$T/text"
	grep -q "; try .* = .*\[$id\]\$" "$T/text" || continue
	known=$(grep -ao 'error: .*\[[a-z-]*\]$' "$T/text" |
		sed -E 's/^error: .*\[([a-z-]+)\]$/error \1/' |
		grep -vx "error $id")
	while read -r suggestion; do
		settings "$suggestion"
		[ ${#sets[@]} -gt 0 ] || continue
		tried=$((tried + 1))
		is "$id: $suggestion" "$(cfg-finalize "${args[@]}" \
			"${sets[@]}" "${input:-$file}" | left "$id")" ''
	done < <(cfg-finalize --json "${args[@]}" "${input:-$file}" |
		jq -r --arg id "$id" '.findings[] | select(.id == $id) |
			.suggest[]')
done
ok "many suggestions were tried" [ "$tried" -gt 80 ]
done_testing
