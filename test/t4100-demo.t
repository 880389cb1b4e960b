#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo: two at once do not disturb each other, one of them as an ordinary
# user; nothing is left behind.
# shellcheck source=test/lib.sh
. test/lib.sh

[ -n "${TRISECT_LONG:-}" ] || skip_all "two demos at once: check-long only"
as_user=()
if [ "$(id -u)" -eq 0 ]; then
	as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$T/user")
	# An ordinary user reads the project through a copy of its own.
	mkdir "$T/user"
	cp -r bin etc slurm "$T/user"
	mkdir -p "$T/user/build/cpu"
	cp -r "$BIN" "$T/user/build/cpu/bin"
	chmod -R a+rX "$T" && chown -R 65534:65534 "$T/user" && chmod 755 "$T"
fi
mkdir "$T/one" "$T/two" && chmod 1777 "$T/one" "$T/two"

demo() { # demo TMPDIR PROJECT [COMMAND PREFIX]...
	(cd "$2" && TMPDIR=$1 TRISECT_BIN=$2/build/cpu/bin "${@:3}" "$2/slurm/demo") >"$1.log" 2>&1
}

mkdir -p "$T/root/build/cpu" && cp -r bin etc slurm "$T/root" && cp -r "$BIN" "$T/root/build/cpu/bin"
demo "$T/one" "$T/root" env &
first=$!
if [ ${#as_user[@]} -gt 0 ]; then
	demo "$T/two" "$T/user" "${as_user[@]}"
else
	demo "$T/two" "$T/root" env
fi
is "the second demo" $? 0
wait $first
is "the first demo" $? 0
for d in one two; do
	like "demo $d: losses after the reshard are the uninterrupted run's" \
		"$(cat "$T/$d.log")" 'equal those of the uninterrupted run .*: ok'
	is "demo $d: leaves nothing" "$(ls -A "$T/$d")" ""
done
is "no daemon of theirs is left" "$(pgrep -f "$T/" || :)" ""
done_testing
