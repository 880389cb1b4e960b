#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every bad input of train-worker: one clear line, the documented exit code,
# nothing lost.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

# fails NAME CODE PATTERN DIR MODEL WORLD [SET]...
fails() {
	worker "${@:4}"
	is "$1: exit code" $? "$2"
	like "$1: says so" "$(cat "$4.log")" "$3"
}

### configs
fails "no config" 2 "nosuch.cfg.*cannot read.*No such file" "$T/a" nosuch 1
head -c 300 $layouts/llama.cfg >"$T/cut.cfg"
run train-worker "$T/cut.cfg"
like "truncated config: exit code" $rc '^[23]$'
like "truncated config: says where" "$err" "cut.cfg:[0-9]+"
fails "world that does not fit" 3 "world.* 3 .*tensor.*2|3 ranks|world 3" "$T/a" llama 3 \
	place.tensor_model_parallel_size=2
fails "what is not served" 3 "context_parallel_size" "$T/a" llama 2 place.context_parallel_size=2
run train-worker
is "no operand: exit code" $rc 2
run train-worker --nosuch x.cfg
is "unknown option: exit code" $rc 2
like "unknown option: named" "$err" "nosuch"

run train-worker /dev/null
like "what no line says is of the file" "$err" "error: /dev/null: shape.num_layers: must be given"
fails "a setting that cannot be read" 3 "error: --set: 'run.lr=x'" "$T/a" llama 1 run.lr=x

### data
fails "missing data" 2 "nosuch.txt.*No such file" "$T/a" llama 1 'run.data_path="nosuch.txt"'
fails "token past the vocabulary" 2 "tokens.txt.* 105.*vocabulary of 100" "$T/a" llama 1 shape.vocab_size=100
: >"$T/empty.txt"
fails "empty data" 2 "empty.txt" "$T/a" llama 1 "run.data_path=\"$T/empty.txt\""
is "no failed start leaves a checkpoint" "$(find "$T/a" -name 'step_*' 2>/dev/null)" ""

### checkpoints
ok "a run to spoil" worker "$T/good" llama 2 place.tensor_model_parallel_size=2 \
	run.train_iters=4 run.save_interval=2 run.lr_decay_iters=10
fails "another shape" 4 "num_layers.*8.*6|num_layers.*6.*8" "$T/good" llama 1 \
	shape.num_layers=6 run.train_iters=6 run.lr_decay_iters=10
spoil() { # spoil NAME: a fresh copy to damage
	rm -rf "$T/bad"
	cp -r "$T/good" "$T/bad"
}
more=(run.train_iters=5 run.lr_decay_iters=10)
spoil
rm "$T/bad/step_00000004/model/pp00-tp01.h5"
ok "a missing file: an older step is taken" worker "$T/bad" llama 1 "${more[@]}"
like "a missing file: named" "$(cat "$T/bad.log")" "step_00000004.*pp00-tp01.h5"
like "a missing file: from the older step" "$(cat "$T/bad.log")" "resumed .*step 2"
spoil
truncate -s -100 "$T"/bad/step_*/optim/pp00-tp00-d000.h5
fails "all truncated: never from scratch" 4 "pp00-tp00-d000.h5" "$T/bad" llama 1 "${more[@]}"
is "all truncated: nothing is removed" "$(find "$T/bad" -name 'step_*' | wc -l)" 2
spoil
f=$T/bad/step_00000004/model/pp00-tp00.h5
size=$(stat -c %s "$f")
printf '\x55\xaa\x55' | dd of="$f" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
fails "flipped bytes" 4 "pp00-tp00.h5" "$T/bad" llama 1 "${more[@]}"
fails "run.load without a checkpoint" 4 "nosuch" "$T/a" llama 1 "run.load=\"$T/nosuch\""

### storage
(ulimit -f 10 && worker "$T/large" llama 1 run.train_iters=1 run.lr_decay_iters=10)
is "a file too large in a save: exit code" $? 9
like "a file too large in a save: says so" "$(<"$T/large.log")" "needs [0-9]+ bytes: File too large"
if [ "$(id -u)" -eq 0 ] && mkdir "$T/small" && mount -t tmpfs -o size=3m none "$T/small" 2>/dev/null; then
	at_exit "umount $T/small"
	ok "a small disk holds one step" worker "$T/small/run" llama 2 run.train_iters=1 \
		run.save_interval=1 run.lr_decay_iters=10
	fails "disk full in a save" 9 "No space left|bytes" "$T/small/run" llama 2 \
		run.train_iters=3 run.save_interval=1 run.lr_decay_iters=10
	ok "disk full: the old step still verifies" ckpt-merge verify "$T/small/run"
else
	skip "disk full in a save" "cannot mount a tmpfs here"
fi
fails "a folder that cannot be made" 9 "cannot make folder '/dev/null/x'" "$T/a" llama 1 'run.dir="/dev/null/x"'

### launch, peers, numbers, signals
run env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 \
	train-worker $layouts/llama.cfg
is "srun without pmix: exit code" $rc 5
like "srun without pmix: the way out" "$err" 'srun --mpi=pmix'
fails "numbers that overflow" 8 "step [0-9]+: loss" "$T/nan" llama 1 run.lr=1e6 run.min_lr=1e6 \
	run.weight_decay=1.0 run.clip_grad=0.0 run.train_iters=20 run.lr_decay_iters=30 \
	'spec.params_dtype="fp32"'

long=(run.train_iters=1000000 run.lr_decay_iters=1000000 run.save_interval=1000000)
ranks() { pgrep -f "^train-worker .*run.dir=\"$1\"" || :; }
steps() { [ -s "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]; }
worker "$T/stop" llama 2 "${long[@]}" &
job=$!
wait_for 60 steps "$T/stop" 3
kill -USR1 "$(ranks "$T/stop" | head -n 1)"
wait $job
is "USR1 to one rank: all save and stop" $? 75
ok "USR1: what it saved verifies" ckpt-merge verify "$T/stop"
is "USR1: the last step is saved" "$(jq -r .step "$T/stop/metrics.jsonl" | tail -n 1)" \
	"$((10#$(find "$T/stop" -name 'step_*' -printf '%f\n' | sed 's/step_//')))"

worker "$T/busy" llama 1 "${long[@]}" &
job=$!
wait_for 30 steps "$T/busy" 2
run train-worker $layouts/llama.cfg --set "run.dir=\"$T/busy\""
is "a second job in the same run.dir: refused" $rc 5
like "a second job: says whose it is" "$err" "another job trains in .*/busy' \(host .*, pid [0-9]+\)"
kill -9 "$(ranks "$T/busy")"
wait $job 2>/dev/null
ok "a killed job leaves run.dir free" worker "$T/busy" llama 1 run.train_iters=5 run.lr_decay_iters=10
run train-worker $layouts/llama.cfg --set "run.dir=\"$T/busy\"" --set run.train_iters=6 \
	--set run.lr_decay_iters=10 --set run.seed=7
like "another seed on resume: a warning with both" "$err" "run.seed is 7, .*busy' was trained with 1234"

# Each setting that decides which samples come is told with both values.
cp $layouts/tokens.txt "$T/other.txt"
data=$layouts/tokens.txt
changed() { # changed NAME WARNING-OR-"" [SET]... : go on from step 6
	rm -rf "$T/go" && cp -r "$T/busy" "$T/go"
	worker "$T/go" llama 1 run.train_iters=7 run.lr_decay_iters=10 "${@:3}"
	is "$1 on resume: goes on" $? 0
	is "$1 on resume: warnings" "$(sed -n 's/.*warning: //p' "$T/go.log")" "$2"
}
was="'$T/go' was trained with"
so="other samples come from here on"
rm -r "$T/busy/step_00000006" # of another seed
worker "$T/busy" llama 1 run.train_iters=6 run.lr_decay_iters=10
changed "nothing changed" ""
changed "another split" "run.split is \"80,20\", $was \"90,10,0\": $so" run.split=80,20
changed "other data" "run.data_path is \"$T/other.txt\", $was \"$data\": $so" \
	"run.data_path=$T/other.txt"
blend="[\"1\", \"$data\", \"3\", \"$T/other.txt\"]"
changed "a blend" "run.data_path is $blend, $was \"$data\": $so" "run.data_path=$blend"
changed "all at once" "run.seed is 7, $was 1234: samples and dropout go on in another order
run.data_path is \"$T/other.txt\", $was \"$data\": $so
run.split is \"1\", $was \"90,10,0\": $so" run.seed=7 "run.data_path=$T/other.txt" run.split=1
ok "what is resharded tells it, too" ckpt-merge reshard "$T/busy" "$T/moved" \
	--set place.tensor_model_parallel_size=2
rm -rf "$T/busy" && mv "$T/moved" "$T/busy"
changed "another split, resharded" "run.split is \"80,20\", $was \"90,10,0\": $so" run.split=80,20
changed "weights alone" "" run.split=80,20 "run.load=\"$T/good\"" "run.dir=\"$T/fine\"" run.finetune=true

worker "$T/hang" llama 2 "${long[@]}" run.watchdog_seconds=3.0 &
job=$!
wait_for 60 steps "$T/hang" 3
victim=$(ranks "$T/hang" | tail -n 1)
kill -STOP "$victim"
wait_for 60 eval "! kill -0 $job 2>/dev/null"
kill -CONT "$victim" 2>/dev/null
wait $job
is "a stopped peer: the watchdog ends the job" $? 7
like "a stopped peer: says where" "$(cat "$T/hang.log")" "step.*(over|wait|send|receive|reduce)"

worker "$T/dead" llama 2 "${long[@]}" &
job=$!
wait_for 60 steps "$T/dead" 3
kill -9 "$(ranks "$T/dead" | tail -n 1)"
wait_for 60 eval "! kill -0 $job 2>/dev/null"
ok "a killed peer ends the job" test $? -eq 0
is "a killed peer: nobody goes on alone" "$(ranks "$T/dead")" ""
done_testing
