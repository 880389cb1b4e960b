#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The configs that are installed: valid, served, and explained line by line.
# shellcheck source=test/lib.sh
. test/lib.sh

run cfg-finalize --json --world 4 etc
is "all of etc/ is valid" $rc 0
is "and served" "$(grep -v '"served":true' <<<"$out")" ""
for file in etc/*.cfg; do
	like "$file was among them" "$out" "\"file\":\"$file\""
done

for file in etc/*/*.inc; do
	group=$(basename "$(dirname "$file")")
	like "$file is used" "$(cat etc/*.cfg)" "@include \"$group/$(basename "$file")\""
done
for file in etc/*.cfg etc/*/*.inc; do
	# a setting needs a comment on the line above it
	is "$file explains every setting" "$(awk '
		/^[\t ]*[a-z_0-9]+ = / && above !~ /^[\t ]*# / { print FNR }
		{ above = $0 }' "$file")" ""
done
done_testing
