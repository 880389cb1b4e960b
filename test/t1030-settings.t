#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Settings: each one is read by the code or says that it is not, and a field
# added to the shape leaves the hashes of old models as they were.
# shellcheck source=test/lib.sh
. test/lib.sh

# Its name, and its check if train-worker does not run all of its values.
cfg-finalize --list-settings | awk '
	/^[a-z]/ { if (name) print name, check; name = $1; check = "" }
	/^    other values: see / { check = $NF }
	END { print name, check }' >"$T/settings"
is "settings are listed" "$([ "$(wc -l <"$T/settings")" -gt 300 ] && echo many)" many

sources=$(find bin lib kernels ckpt -name '*.c' |
	grep -vE '_(fields|check|suggest)\.c$|/check\.c$')
cut -d' ' -f1 <<<"$(grep -E ' $' "$T/settings")" | cut -d. -f2 >"$T/run"
# shellcheck disable=SC2086 # a list
grep -ohwFf "$T/run" $sources | sort -u >"$T/read"
is "a setting that is run is read" "$(grep -vxFf "$T/read" "$T/run")" ""
cut -d' ' -f2 "$T/settings" | sort -u | grep . >"$T/checks"
is "a check that tells of others is in the table" \
	"$(cfg-finalize --list-checks | cut -d' ' -f1 | grep -vxFf - "$T/checks")" ""

# Every field of Megatron's is a setting of the same name, is said another way
# (then it is suggested), or is none, and that says why.
cut -d' ' -f1 "$T/settings" | cut -d. -f2 >"$T/names"
grep -v '^#' test/data/field-names | grep -vxFf "$T/names" >"$T/others"
while read -r name; do
	like "$name has a reason" "$(cfg-finalize --set "shape.$name=1" test/data/whole.inc)" \
		"shape.$name: error: (no setting here: |unknown setting; try (place|spec|shape|run)\.)"
done <"$T/others"
is "as the man page lists them" "$(sed -n '/^\.SH FIELDS/,/^\.SH [^F]/p' bin/cfg-finalize.1 |
	sed -nE 's/^\.B ([a-z_]+)$/\1/p')" "$(while read -r name; do
	cfg-finalize --set "shape.$name=1" test/data/whole.inc | grep -q 'no setting here' && echo "$name"
done <"$T/others")"

# hash FILE: of its shape
hash() { cfg-finalize "$1" | tail -n1 | grep -o '[0-9a-f]*$'; }

while read -r file want; do
	is "the shape of $file is the one that checkpoints know" \
		"$(hash "etc/$file.cfg")" "$want"
done <<-END
	demo d50707bbae1a5c78668deb60897eb64e
	gpt2-124M 0d21ba327e17011fa5a121f3602da8ca
	gpt2-tiny d2c33984050be19b4e0ceb54abc8aff5
	llama-tiny-fp64 d50707bbae1a5c78668deb60897eb64e
	llama3-8B f67b03106db44c0f7f184ff00b73e184
END
done_testing
