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
