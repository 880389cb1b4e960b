#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/local-cluster: comes up, runs PMIx steps, leaves nothing behind.
# shellcheck disable=SC2016 # what runs later expands later
. test/lib.sh

PATH=$PATH:/usr/sbin:/sbin
for name in slurmctld slurmd munged sinfo; do
	command -v $name >/dev/null || skip_all "no $name on this machine"
done
lc=slurm/local-cluster
at_exit '{ $lc down --dir "$T/a"; $lc down --dir "$T/b"; } >/dev/null 2>&1'
at() { (eval "$($lc env --dir "$1")" && shift && exec "$@"); } # DIR COMMAND...
traces() { # DIR: processes that carry it
	local p

	while IFS=/ read -r _ _ p _; do
		grep -sE '^(munged|slurm|sleep)' "/proc/$p/comm"
	done < <(grep -lsF "$1" /proc/[0-9]*/cmdline /proc/[0-9]*/environ)
	[ ! -e "$1" ] || echo "$1"
}

### refusals
run $lc
is "no verb: exit 2" "$rc" 2
run $lc up down
is "two verbs: exit 2" "$rc" 2
run $lc up --nodes none --dir "$T/a"
is "no number: exit 2" "$rc" 2
like "no number: says what it got" "$err" "--nodes wants .*not 'none'"
run $lc up --dir "$T/$(printf '%060d' 0)"
is "long folder name: exit 2" "$rc" 2
like "long folder name: both numbers" "$err" '[0-9]+ bytes, at most 60'
mkdir "$T/mine" && touch "$T/mine/file"
run $lc up --dir "$T/mine"
like "a folder in use: refused" "$rc $err" '^2 .*not empty and no cluster'
run $lc down --dir "$T/mine"
like "a folder in use: not removed" "$rc $err" '^2 .*no cluster of ours'
is "a folder in use: untouched" "$(ls -A "$T/mine")" file
run $lc down --dir "$T/a"
is "down when not up: exit 0" "$rc" 0
run $lc status --dir "$T/a"
like "status when not up" "$rc $err" '^1 .*not up'
run $lc env --dir "$T/a"
is "env when not up: prints nothing" "$rc$out" 1
mkdir "$T/bad" && printf '#!/bin/sh\necho boom >&2; exit 1\n' >"$T/bad/slurmctld"
chmod +x "$T/bad/slurmctld"
run env PATH="$T/bad:$PATH" $lc up --dir "$T/a"
like "a daemon that fails: its last words" "$rc $err" '^1 .*boom.*slurmctld does not'
is "a daemon that fails: nothing left" "$(traces "$T/a")" ""

### two at once, one of them started twice at once
$lc up --dir "$T/a" >"$T/up1" 2>&1 &
one=$!
$lc up --dir "$T/a" >"$T/up2" 2>&1 &
two=$!
run $lc up --nodes 1 --cpus 3 --dir "$T/b"
is "up: exit 0" "$rc" 0
ok "up twice at once: first" wait $one
ok "up twice at once: second" wait $two
is "up twice at once: one started it" "$(grep -c 'already up' "$T/up1" "$T/up2" |
	cut -d: -f2 | sort | tr -d '\n')" 01
run $lc up --nodes 3 --dir "$T/a"
like "up with other nodes: both numbers" "$rc $err" '^1 .*with 2 nodes, asked for 3'
run $lc status --dir "$T/a"
like "status: two nodes" "$rc $out" '^0 .*2 nodes.*n1 +idle +8 .*n2 +idle'
run $lc status --dir "$T/b"
like "status: one node of 3 CPUs" "$out" '1 nodes.*n1 +idle +3 '
is "no port is shared" "$(sed -nE 's/.*Port=([0-9]+).*/\1/p' \
	"$T/a/slurm.conf" "$T/b/slurm.conf" | sort | uniq -c | awk '{ print $1 }' |
	tr '\n' ' ')" "1 1 1 1 1 "
run env SLURM_JOB_ID=7 SLURM_CONF=/other $lc env --dir "$T/a"
like "env: leaves an outer job" "$out" 'unset SLURM_JOB_ID'
like "env: names this cluster" "$out" "export SLURM_CONF=$T/a/slurm.conf"

### a PMIx step: every rank learns what every other put
cat >"$T/ring.c" <<'END'
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(x) do { if ((x) != PMIX_SUCCESS) return __LINE__ % 100; } while (0)
int main(void)
{
	pmix_proc_t me, all, peer;
	pmix_value_t v, *got;
	pmix_info_t info;
	bool yes = true;
	unsigned sum = 0, size;

	CHECK(PMIx_Init(&me, NULL, 0));
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	CHECK(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &got));
	size = got->data.uint32;
	v.type = PMIX_UINT32;
	v.data.uint32 = me.rank + 10;
	CHECK(PMIx_Put(PMIX_GLOBAL, "test.key", &v));
	CHECK(PMIx_Commit());
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	CHECK(PMIx_Fence(&all, 1, &info, 1));
	for (unsigned r = 0; r < size; r++) {
		PMIX_LOAD_PROCID(&peer, me.nspace, r);
		CHECK(PMIx_Get(&peer, "test.key", NULL, 0, &got));
		sum += got->data.uint32;
	}
	printf("%s rank %u of %u sum %u\n", getenv("SLURMD_NODENAME"), me.rank, size, sum);
	return PMIx_Finalize(NULL, 0);
}
END
# shellcheck disable=SC2046 # the words of pkg-config are flags
ok "compile a PMIx program" "${CC:-cc}" -o "$T/ring" "$T/ring.c" \
	$(pkg-config --cflags pmix) -lpmix
run at "$T/a" srun -N2 --ntasks-per-node=2 "$T/ring"
is "PMIx over two nodes" "$(sort <<<"$out")" "n1 rank 0 of 4 sum 46
n1 rank 1 of 4 sum 46
n2 rank 2 of 4 sum 46
n2 rank 3 of 4 sum 46"
run at "$T/b" srun -n3 "$T/ring"
is "PMIx in the other cluster" "$(sort <<<"$out")" "n1 rank 0 of 3 sum 33
n1 rank 1 of 3 sum 33
n1 rank 2 of 3 sum 33"
a=$(at "$T/a" sbatch --parsable -n1 -D "$T" --wrap "trap '' TERM; sleep 301 & sleep 302; wait")
b=$(at "$T/b" sbatch --parsable -n1 -D "$T" --wrap 'sleep 303')
running() { [ "$(at "$1" squeue -h -o %T)" = RUNNING ]; }
wait_for 20 running "$T/a"
wait_for 20 running "$T/b"
ok "job ids of the two differ" test "$a" -ne "$b"

### down takes its own and nothing else
at "$T/a" srun -n2 sleep 304 2>/dev/null &
sleep 0.5
run $lc down --dir "$T/a"
is "down under running jobs: exit 0" "$rc" 0
is "down: no process, no folder left" "$(traces "$T/a")" ""
run at "$T/b" squeue -h -o '%i %T'
is "the other cluster's job still runs" "$out" "$b RUNNING"
for p in "$T"/b/*.pid; do
	kill -KILL "$(cat "$p")"
done
run $lc up --nodes 1 --dir "$T/b"
is "up after a crash: exit 0" "$rc" 0
run at "$T/b" srun -n1 echo works
is "up after a crash: runs" "$out" works
$lc down --dir "$T/b" >"$T/down"
is "down after a crash: nothing left" "$(traces "$T/b")" ""

### as an ordinary user
if [ "$(id -u)" -ne 0 ]; then
	skip "as an ordinary user" "the tests above ran as one"
else
	mkdir "$T/user" && chmod 711 "$T" && chmod 755 "$T/ring"
	install -m 755 $lc "$T/lc" && chown nobody "$T/user"
	run setpriv --reuid=nobody --regid=nogroup --clear-groups \
		env -i PATH=/usr/bin:/bin T="$T" bash -euc 'cd "$T/user"
		"$T/lc" up --dir "$T/user/c" >/dev/null
		eval "$("$T/lc" env --dir "$T/user/c")"
		srun -N2 -n2 "$T/ring" | sort
		srun -n1 id -un
		"$T/lc" down --dir "$T/user/c"; ls -A'
	is "as an ordinary user" "$rc $out" "0 n1 rank 0 of 2 sum 21
n2 rank 1 of 2 sum 21
nobody
local-cluster: down"
fi
done_testing
