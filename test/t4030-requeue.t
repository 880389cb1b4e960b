#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/train.sbatch with the real worker: a job that is told to stop saves,
# is requeued, resumes where it was and ends well.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

cluster() { "$TOP/slurm/local-cluster" "$1" --dir "$T/c" "${@:2}"; }
stop() { cluster down >/dev/null 2>&1; }
at_exit stop
ok "a private cluster" cluster up --nodes 2
eval "$(cluster env)"
export TRISECT_BIN=$BIN

run=$T/run
steps=200
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --output="$T/job.out" \
	slurm/train.sbatch "$TOP/$layouts/llama.cfg" --set "run.dir=\"$run\"" \
	--set "run.data_path=\"$TOP/$layouts/tokens.txt\"" \
	--set run.train_iters=$steps --set run.lr_decay_iters=$steps \
	--set run.save_interval=1000 \
	--set place.tensor_model_parallel_size=2 --set place.pipeline_model_parallel_size=2)
lines() { [ -s "$run/metrics.jsonl" ] && [ "$(wc -l <"$run/metrics.jsonl")" -ge "$1" ]; }
state() { scontrol show job "$job" | grep -oE 'JobState=[A-Z]+' | cut -d= -f2; }
ended() { case $(state) in COMPLETED | FAILED | CANCELLED | NODE_FAIL) ;; *) false ;; esac; }

ok "takes some steps" wait_for 60 lines 10
scancel --signal=USR1 "$job.0"
ok "ends" wait_for 120 ended
is "as completed" "$(state)" COMPLETED
like "was requeued" "$(cat "$T/job.out")" 'exit code 75: requeueing, restart 1'
like "resumed where it had saved" "$(cat "$T/job.out")" 'resumed from .*step [1-9]'
is "every step once" "$(jq -r .step "$run/metrics.jsonl" | sort -n | uniq -c | awk '$1 != 1' | wc -l)" 0
is "all steps" "$(wc -l <"$run/metrics.jsonl")" $steps
done_testing
