#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/*.sbatch in a real queue, with stand-ins for the programs: which exit
# codes requeue, how often, and what is handed on.
# shellcheck disable=SC2016 # what runs later expands later
. test/lib.sh

PATH=$PATH:/usr/sbin:/sbin
command -v slurmctld >/dev/null || skip_all "no slurmctld on this machine"
lc=$TOP/slurm/local-cluster
at_exit '$lc down --dir "$T/c" >/dev/null 2>&1'
mkdir "$T/bin" "$T/run"
export TRISECT_BIN=$T/bin RUNS=$T/run

fake() { # NAME, body on stdin
	{ echo '#!/bin/bash' && cat; } >"$T/bin/$1"
	chmod +x "$T/bin/$1"
}
# Fits every world but 3; keeps each job's run in a folder of its name.
fake cfg-finalize <<'END'
[ "$1" != --strict ] || { echo "cfg-finalize $*"; [ "${!#}" != bad.cfg ]; exit; }
while [ $# -gt 0 ]; do
	case $1 in
	--world) [ "$2" != 3 ] || { echo "world 3 does not fit"; exit 1; } ;;
	-o) out=$2 ;;
	esac
	shift
done
cat >"$out" <<X
shape :
{
  dir = "/not/this/one"; # given
};
run :
{
  dir = "$RUNS/$SLURM_JOB_NAME"; # given
};
X
END
fake train-worker <<'END'
try=${SLURM_RESTART_COUNT:-0}
[ "$SLURM_PROCID" -ne 0 ] || echo "try $try of $* cpus ${SLURM_CPUS_PER_TASK-}"
gain() { mkdir -p "$RUNS/$SLURM_JOB_NAME/step_0000000$((try + 8))"; }
case $SLURM_JOB_NAME in
saved) gain && [ $try -lt 2 ] && exit 75 ;;
halted) gain && touch "$RUNS/halted/stop" && exit 75 ;;
stuck) exit 6 ;;
often) gain && exit 7 ;;
invalid) exit 3 ;;
killed)
	[ $try -eq 0 ] || exit 0
	sleep 1
	[ "$SLURM_PROCID" -ne 1 ] || kill -KILL $$
	sleep 60
	;;
chain) [ $try -gt 0 ] || exit 75 ;;
cancel) trap 'echo asked to stop; exit 75' TERM && while sleep 0.1; do :; done ;;
esac
exit 0
END
fake ckpt-merge <<<'echo "ckpt-merge $*"'

$lc up --dir "$T/c" >"$T/up" 2>&1 || skip_all "no cluster: $(tail -1 "$T/up")"
eval "$($lc env --dir "$T/c")"
cd "$T" || exit 1
train() { # NAME OPTION...
	sbatch --parsable -J "$1" -o "$T/$1.out" "${@:2}" "$TOP/slurm/train.sbatch" \
		a.cfg --set run.x=1
}
log() { grep -vE '^(srun|slurmstepd)' "$1.out"; }
job() { # ID FIELD
	scontrol show job -o "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | sort -u | paste -sd' '
}

saved=$(train saved -N2 --ntasks-per-node=2 -c2)
merge=$(sbatch --parsable --dependency=afterok:"$saved" "$TOP/slurm/merge.sbatch" src dst --set place.x=2)
halted=$(train halted -n1)
stuck=$(train stuck -n1)
often=$(TRISECT_MAX_REQUEUE=1 train often -n1)
invalid=$(train invalid -n2)
never=$(sbatch --parsable --dependency=afterok:"$invalid" "$TOP/slurm/merge.sbatch" a b)
unfit=$(train unfit -n3)
killed=$(train killed -N2 -n2)
chain=$(train chain -n1 --array=1-2%1)
cancel=$(train cancel -n1)
wait_for 20 grep -qs 'try 0' cancel.out
scancel "$cancel"
printf '%s\n' one.cfg two.cfg '# no name' 'thr ee.cfg' '' >list
sbatch -Q --array=1-2 "$TOP/slurm/validate.sbatch" list --strict
echo bad.cfg >badlist
bad=$(sbatch --parsable -o bad.out "$TOP/slurm/validate.sbatch" badlist --strict)
ok "all jobs end" wait_for 90 eval '[ -z "$(squeue -h)" ]'

is "75: goes on until done" "$(log saved)" "try 0 of a.cfg --set run.x=1 cpus 2
train.sbatch: exit code 75: requeueing, restart 1
try 1 of a.cfg --set run.x=1 cpus 2
train.sbatch: exit code 75: requeueing, restart 2
try 2 of a.cfg --set run.x=1 cpus 2"
is "75: the job completes" "$(job "$saved" JobState)" COMPLETED
is "afterok: merge follows the last restart" "$(cat "merge-$merge.out")" \
	"ckpt-merge reshard src dst --set place.x=2"
like "75 by the stop file: says so" "$(log halted)" 'code 75 and .*/halted/stop is there: not requeueing'
is "75 by the stop file: no requeue" "$(job "$halted" Restarts) $(job "$halted" ExitCode)" "0 75:0"
is "6 without a step gained: stops" "$(log stuck | grep -c requeueing)" 1
like "6 without a step gained: says so" "$(log stuck)" 'no step saved since .*-1.*giving up'
is "6 without a step gained: worker's code" "$(job "$stuck" ExitCode)" 6:0
like "7 too often: says so" "$(log often)" 'exit code 7 after 1 restarts: giving up'
is "7 too often: worker's code" "$(job "$often" ExitCode)" 7:0
is "3: no requeue, worker's code" "$(job "$invalid" 'Restarts') $(job "$invalid" ExitCode)" "0 3:0"
is "afterok: merge of a failed job is dropped" "$(job "$never" JobState)" CANCELLED
like "world that does not fit: the finding" "$(log unfit)" 'world 3 does not fit.*a.cfg cannot run here'
is "world that does not fit: exit 3, no step" "$(job "$unfit" ExitCode) $(grep -c try unfit.out)" "3:0 0"
is "a killed rank: requeued once, done" "$(job "$killed" Restarts) $(job "$killed" JobState)" \
	"1 COMPLETED"
is "array: each element restarts alone" "$(job "$chain" Restarts) $(job "$chain" JobState)" \
	"1 COMPLETED"
like "scancel: the worker was asked" "$(log cancel)" 'asked to stop'
is "scancel: stays cancelled" "$(job "$cancel" Restarts) $(job "$cancel" JobState)" "0 CANCELLED"
is "validate: each element its lines" "$(cat validate-*_[12].out)" \
	"cfg-finalize --strict -- one.cfg
cfg-finalize --strict -- two.cfg thr ee.cfg"
is "validate: the code is cfg-finalize's" "$(job "$bad" ExitCode)" 1:0

run "$TOP/slurm/train.sbatch"
like "train without a config: usage" "$rc $err" '^2 .*usage'
run "$TOP/slurm/train.sbatch" a.cfg
like "train outside a job" "$rc $err" '^5 .*start it by sbatch'
run env TRISECT_BIN="$T/none" PATH=/usr/bin:/bin "$TOP/slurm/merge.sbatch" a b
like "merge without programs" "$rc $err" '^5 .*no ckpt-merge on PATH; set TRISECT_BIN'
run "$TOP/slurm/validate.sbatch" "$T/nolist"
like "validate without its list" "$rc $err" '^2 .*cannot read .*nolist'
done_testing
