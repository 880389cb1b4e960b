# SPDX-License-Identifier: Apache-2.0
# TAP for shell tests.  Sourced from the project's root: ". test/lib.sh".
#
#   plan N | done_testing            how many tests: before or after
#   skip_all WHY                     this file has nothing to test here
#   skip NAME WHY                    one test that cannot run here
#   ok NAME COMMAND [ARG]...         passes when the command succeeds
#   is NAME GOT WANT                 passes when the texts are equal
#   like NAME GOT ERE                passes when a part of GOT matches
#   run COMMAND [ARG]...             sets $rc, $out and $err; never fails
#   wait_for S COMMAND [ARG]...      until it succeeds, at most S seconds
#   at_exit COMMAND                  run before $T is removed, last one first
#
# $TOP is the project, $BIN its programs (first on PATH), $T a folder of this
# test's own, removed with all in it.
# shellcheck shell=bash disable=SC2034
set -u
TOP=$PWD
BIN=${TRISECT_BIN:-${TRISECT_BUILD:-$TOP/build/cpu}/bin}
PATH=$BIN:$PATH
T=$(mktemp -d "${TMPDIR:-/tmp}/tri.XXXXXX")
rc=0 out='' err=''
_n=0 _failed=0 _planned='' _at_exit=:

_leave() {
	local code=$?

	trap '' INT TERM
	eval "$_at_exit"
	rm -rf "$T"
	[ $code -ne 0 ] || [ $_failed -eq 0 ] || code=1
	exit $code
}
trap _leave EXIT
trap 'exit 130' INT TERM

at_exit() { _at_exit="$1; $_at_exit"; }
plan() { _planned=1 && echo "1..$1"; }
skip_all() { echo "1..0 # SKIP $*" && exit 0; }
skip() { _n=$((_n + 1)) && echo "ok $_n - $1 # SKIP $2"; }
done_testing() { [ -n "$_planned" ] || echo "1..$_n"; }

_result() { # PASSED NAME [DETAIL]...
	_n=$((_n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $_n - $2"
		return
	fi
	_failed=$((_failed + 1))
	echo "not ok $_n - $2"
	shift 2
	printf '%s\n' "$*" | sed 's/^/# /'
}

wait_for() {
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

run() {
	"$@" >"$T/.out" 2>"$T/.err"
	rc=$?
	out=$(<"$T/.out") err=$(<"$T/.err")
}

ok() {
	local name=$1

	shift
	"$@" >"$T/.ok" 2>&1
	_result $? "$name" "$*: $(<"$T/.ok")"
}

is() {
	[ "$2" = "$3" ]
	_result $? "$1" "got:    $2"$'\n'"wanted: $3"
}

like() {
	[[ $2 =~ $3 ]]
	_result $? "$1" "got: $2"$'\n'"wanted a match of: $3"
}
