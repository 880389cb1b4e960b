#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of every rank at a random moment of saving: the next start resumes
# from the newest complete checkpoint, never from nothing.  The run saves every
# step, so that most of its time is saves.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

run=$T/run
layout=(place.tensor_model_parallel_size=2 place.pipeline_model_parallel_size=2)
common=(run.train_iters=100000 run.lr_decay_iters=1000 run.save_interval=1
	run.save_retain=3 "${layout[@]}")

newest() { # the newest step folder's number, 0 without one
	local d
	d=$(find "$T" -maxdepth 2 -regextype posix-egrep -regex '.*/run/step_[0-9]{8}' | sort | tail -n 1)
	echo $((10#0${d##*/step_}))
}

newer_than() { [ "$(newest)" -gt "$1" ]; }
ranks() { pgrep -f "^train-worker .*run.dir=\"$run\"" || :; }

# Start four ranks, let them take at least one step, kill them all at once.
life() { # life DELAY_MS
	local before

	before=$(newest)
	worker "$run" llama 4 "${common[@]}" &
	wait_for 60 newer_than "$before" || return 1
	sleep "$(printf '0.%03d' "$1")"
	# shellcheck disable=SC2046
	kill -9 $(ranks) 2>/dev/null
	wait
}

lives=${TRISECT_LONG:+20}
RANDOM=${TRISECT_SEED:-$$}
echo "# seed ${TRISECT_SEED:-$$}"
: >"$T/froms"
for ((n = 1; n <= ${lives:-5}; n++)); do
	ms=$((RANDOM % 400))
	before=$(newest)
	ok "life $n: runs until it is killed after $ms ms" life $ms
	if [ "$n" -gt 1 ]; then
		ok "life $n: resumes from step $before" \
			grep -qE "resumed from .*, step $before\$" "$run.log"
	fi
	ok "life $n: the newest checkpoint verifies" ckpt-merge verify "$run"
done
ok "the last start finishes" worker "$run" llama 4 "${common[@]}" \
	"run.train_iters=$(($(newest) + 1))" "run.lr_decay_iters=100000"
is "nothing of the killed saves is left" \
	"$(find "$run" -maxdepth 1 -name '.tmp-*' | wc -l)" 0
done_testing
