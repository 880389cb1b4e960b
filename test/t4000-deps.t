#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/deps: asks for nothing when all is there, says what is missing else.
# shellcheck disable=SC2016 # the fake tools expand their own arguments
. test/lib.sh

# A machine of its own making: real tools, and dpkg-query, id, apt-get and
# sudo as the test wants them.
fake=$T/bin
mkdir "$fake"
for tool in bash awk grep cat mktemp tail rm chmod; do
	ln -s "$(command -v $tool)" "$fake/$tool"
done
fake() { # NAME BODY
	printf '#!/bin/bash\n%s\n' "$2" >"$fake/$1"
	chmod +x "$fake/$1"
}
deps() { env -i PATH="$fake" CALLS="$T/calls" "$(command -v bash)" slurm/deps "$@"; }
present='echo installed'
# jq is known to dpkg but removed; the others are unknown to it.
absent='[ "${!#}" = jq ] && echo config-files; exit 1'

run slurm/deps --build --list
like "--list names a library" "$out" libconfig-dev
ok "--list names nothing twice" test -z "$(slurm/deps --list | sort | uniq -d)"
run slurm/deps --lint --list
is "--lint is no compiler" "$(grep -cx gcc <<<"$out")" 0
run slurm/deps --frobnicate
is "unknown option: exit 2" "$rc" 2
like "unknown option: named" "$err" 'unknown option --frobnicate'

fake dpkg-query "$present"
fake id 'echo 1000'
fake apt-get 'echo "$@" >>"$CALLS"'
run deps --all
is "all present, ordinary user: silent, exit 0" "$rc$out$err" 0
ok "all present: apt-get not called" test ! -e "$T/calls"

fake dpkg-query "$absent"
run deps --test
is "missing, no sudo: exit 5" "$rc" 5
like "missing, no sudo: names package and command" "$err" \
	"missing: gcc .* jq .*; neither root nor sudo.*apt-get install gcc"
ok "missing, no sudo: apt-get not called" test ! -e "$T/calls"

fake sudo 'echo "sudo $1 ... $4 ${!#}" >>"$CALLS"'
run deps --lint
is "missing, sudo: exit 0" "$rc" 0
is "missing, sudo: one call for what is missing" "$(cat "$T/calls")" \
	"sudo bash ... deps shellcheck"

fake sudo 'exit 1'
run deps --lint
is "sudo refuses: exit 5" "$rc" 5
like "sudo refuses: names the packages" "$err" 'apt-get failed; missing: clang-format'

rm "$fake/dpkg-query"
run deps --all
is "no Debian: exit 0" "$rc" 0
like "no Debian: says so" "$err" 'not a Debian system'
done_testing
