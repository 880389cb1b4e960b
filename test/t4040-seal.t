#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Seals in a real queue: a job that asks for something else is refused, by the
# user's sbatch and by slurmctld.
# shellcheck disable=SC2016 # what runs later expands later
# shellcheck source=test/lib.sh
. test/lib.sh

PATH=$PATH:/usr/sbin:/sbin
command -v slurmctld >/dev/null || skip_all "no slurmctld on this machine"
lc=$TOP/slurm/local-cluster
at_exit '$lc down --dir "$T/c" >/dev/null 2>&1'
$lc up --nodes 2 --dir "$T/c" >"$T/up" 2>&1 || skip_all "no private cluster: $(tail -n1 "$T/up")"
eval "$($lc env --dir "$T/c")"

cat >"$T/job" <<'SH'
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=4
echo "ran with $SLURM_NTASKS tasks on $SLURM_JOB_NUM_NODES nodes"
srun --ntasks=1 --nodes=1 true && echo "a smaller step, too"
SH
cp "$T/job" "$T/unsealed"
cfg-finalize --world 4 --nodes 2 --seal "$T/job" test/data/whole.inc >"$T/out" 2>&1
seal=$(sed -n 's/^#TRISECT //p' "$T/job")
anew="change the request, or seal it anew: cfg-finalize --seal SCRIPT"

# submit ARGS: sbatch waits for the end; what the job said is in $said
submit() {
	rm -f "$T/said"
	run timeout 60 sbatch --wait --output "$T/said" "$@"
	said=$(cat "$T/said" 2>/dev/null)
}

submit "$T/job"
is "a job as sealed runs" "$rc $said" "0 ran with 4 tasks on 2 nodes
a smaller step, too"
submit -N2 -n4 --ntasks-per-node=2 "$T/job"
is "said in more words, too" $rc 0
submit --ntasks=2 "$T/unsealed"
is "one without a seal runs as it is" "$rc $said" "0 ran with 2 tasks on 2 nodes
a smaller step, too"

refused() { # NAME SENTENCE ARGS...: by the user's own sbatch
	submit "${@:3}"
	is "$1: exit code" "$((rc != 0))" 1
	like "$1: the sentence" "$err" "error: .*trisect: the job $2"
	is "$1: it did not run" "$said" ""
}
refused "other tasks" "asks for 3 tasks, its seal is for 4 \(whole.inc\): $anew" -n3 "$T/job"
refused "other nodes" "asks for 1 node, its seal is for 2 \(whole.inc\): $anew" -N1 "$T/job"
refused "other tasks on a node" "asks for 8 tasks, its seal is for 4" -n8 --ntasks-per-node=4 "$T/job"
sed 's/world=4/world=8/' "$T/job" >"$T/edited"
refused "an edited seal" "is refused, its seal was changed by hand" -n8 "$T/edited"
cp "$T/unsealed" "$T/again" && sed -i 's/ntasks=4/ntasks=8/' "$T/again"
cfg-finalize --world 8 --nodes 2 --seal "$T/again" test/data/whole.inc >"$T/out" 2>&1
submit "$T/again"
is "sealed anew it runs" $rc 0

# slurmctld itself: the cli filter cannot see a script that comes by a pipe
refused_piped() { # NAME SENTENCE SCRIPT ARGS...
	rm -f "$T/said"
	run timeout 60 sbatch --wait --output "$T/said" "${@:4}" <"$3"
	is "$1, slurmctld: exit code" "$((rc != 0))" 1
	like "$1, slurmctld: the sentence" "$err" "error: trisect: the job $2"
	like "$1, slurmctld: it is who refused" "$err" "Batch job submission failed"
}
refused_piped "other tasks" "asks for 3 tasks, its seal is for 4 \(whole.inc\): $anew" "$T/job" -n3
refused_piped "other nodes" "asks for 1 node, its seal is for 2" "$T/job" -N1
refused_piped "an edited seal" "is refused, its seal was changed by hand" "$T/edited" -n8
refused_piped "too little memory" "asks for 1 MiB of memory on a node" "$T/job" --mem=1M
run timeout 60 sbatch --wait --output "$T/said" <"$T/job"
is "as sealed it passes" $rc 0

# by the environment
export TRISECT_SEAL=$seal
run timeout 60 srun -N2 -n4 true
is "srun with a seal in the environment runs" $rc 0
run timeout 60 srun -N2 -n3 true
is "srun with another number of tasks is refused" "$((rc != 0))" 1
like "by a sentence" "$err" "asks for 3 tasks, its seal is for 4"
run timeout 60 sbatch --wait --output "$T/said" -n3 --wrap true
like "so is sbatch" "$err" "asks for 3 tasks, its seal is for 4"
submit "$T/again"
is "a script's own seal goes over it" $rc 0
run timeout 60 salloc -N2 -n4 srun -n1 true
is "steps of an allocation are not judged" $rc 0
unset TRISECT_SEAL
run timeout 60 srun -n3 true
is "without it all is as ever" $rc 0
is "slurmctld found nothing wrong with its plugin" \
	"$(grep -ciE 'lua.*error|error.*lua|trisect: (no|a) seal' "$T/c/log/slurmctld.log")" 0
done_testing
