#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-merge from the command line: what it prints, what it writes, how it
# ends.
# shellcheck source=test/lib.sh
. test/lib.sh

sim=${TRISECT_BUILD:-build/cpu}/test/x-ckpt
model=(shape.num_layers=4 shape.hidden_size=32 shape.num_attention_heads=4
	shape.num_query_groups=2 shape.vocab_size=61 shape.seq_length=16
	place.make_vocab_size_divisible_by=4)
tp2=(place.tensor_model_parallel_size=2)
pp2=(place.pipeline_model_parallel_size=2)
vp2=(place.virtual_pipeline_model_parallel_size=2)
zero=(place.use_distributed_optimizer=true)

save() { "$sim" save "$1" "$2" "$3" f32 "${model[@]}" "${@:4}"; }
load() { "$sim" load "$1" "$2" f32 "${model[@]}" "${@:3}"; }
digests() { ckpt-merge ls --digest "$1" | awk 'NR > 3 { print $1, $2, $NF }'; }
files() { (cd "$1" && find . -type f | sort | xargs sha256sum); }

config() { # config FILE SET... : a config file of those settings
	local file=$1 group

	shift
	for group in shape place; do
		echo "$group:"
		echo "{"
		printf '%s\n' "$@" | sed -n "s/^$group\\.\\(.*\\)/\\1;/p"
		echo "};"
	done >"$file"
}

save "$T/a" 10 8 "${tp2[@]}" "${pp2[@]}" "${zero[@]}" ||
	{ echo "Bail out! nothing to test with"; exit 1; }

## a run whose newest step is damaged
save "$T/run" 2 1 && save "$T/run" 4 1
truncate -s -10 "$T/run/step_00000004/manifest.h5"
run ckpt-merge ls "$T/run"
is "ls of a run: the newest complete step" "$rc $(grep -c 'step 2' <<<"$out")" "0 1"
like "ls of a run: says what it passed over" "$err" 'step_00000004'
rm -rf "$T/run"

## usage
run ckpt-merge
is "no command: usage" $rc 2
run ckpt-merge frobnicate x
is "unknown command: usage" $rc 2
like "unknown command: names it" "$err" "unknown command 'frobnicate'"
run ckpt-merge verify "$T/a" "$T/a"
is "too many operands: usage" $rc 2
run ckpt-merge verify --json "$T/a"
is "option of another command: usage" $rc 2
like "option of another command: names both" "$err" "json.*verify"
run ckpt-merge diff --tolerance -1 "$T/a" "$T/a"
is "negative tolerance: usage" $rc 2
step=$(ckpt-merge reshard "$T/a" "$T/once")
# Whatever is, or would be, inside of a step is no run's folder.
ln -s "$step/model" "$T/model"
ln -s "$T/once" "$T/twice"
before=$(find "$T/once" | sort)
for dst in "$step" "$step/" "$step/model" "$step/model/x/y" "$step/./new" \
	"$T/model" "$T/model/new" "$T/model/../new" "$T/twice/${step##*/}/new" \
	"$T/once/step_00000099" "$step/new/../../x"; do
	for dry in "" --dry-run; do
		run ckpt-merge reshard "$T/a" "$dst" $dry
		is "into a step, $dry ${dst#"$T/"}: usage" $rc 2
		like "into a step, $dry ${dst#"$T/"}: says so" "$err" \
			"$dst (is a step|is inside of a step|goes up from a folder)"
	done
done
run env -C "$step/optim" "$(command -v ckpt-merge)" reshard "$T/a" new
is "into a step, relative: usage" $rc 2
run env -C "$step/optim" "$(command -v ckpt-merge)" reshard "$T/a" ../../../once
is "out of a step, relative: a run's folder, where the step is complete" $rc 4
is "into a step: nothing written" "$(find "$T/once" | sort)" "$before"
mkdir "$T/perl" && touch "$T/perl/MANIFEST"
ok "below another kind of MANIFEST" ckpt-merge reshard "$T/a" "$T/perl/run"

# What a command would ignore cannot be set.
for set in run.lr=1 spec.device=cpu shape.num_layers=8 lr=1 places.x=1 x; do
	run ckpt-merge reshard "$T/a" "$T/x" --set "${tp2[0]}" --set $set
	is "reshard --set $set: usage" $rc 2
	like "reshard --set $set: names it and what may be set" "$err" \
		"'$set': reshard uses settings of group place .*place.NAME=VALUE"
done
for set in run.lr=1 spec.device=cpu "${tp2[0]}"; do
	run ckpt-merge check "$T/a" --config etc/demo.cfg --set "$set"
	is "check --set $set: usage" $rc 2
	like "check --set $set: names it and what may be set" "$err" \
		"'$set': check uses settings of group shape .*shape.NAME=VALUE"
done
ok "whatever was refused, nothing was written" [ ! -e "$T/x" ]
(ulimit -f 4 && ckpt-merge reshard "$T/a" "$T/large") 2>"$T/large.err"
is "a file too large: exit 9" $? 9
like "a file too large: says so" "$(<"$T/large.err")" "File too large"
ok "a file too large: nothing left" [ ! -e "$T/large" ]
run ckpt-merge --help
is "help" $rc 0
like "help names the commands" "$out" "reshard SRC DST"

## nothing there, or nothing sound
mkdir "$T/empty"
for command in verify ls config; do
	run ckpt-merge $command "$T/nowhere"
	is "$command of no folder" $rc 4
	like "$command of no folder: says so" "$err" "no checkpoint in $T/nowhere"
	run ckpt-merge $command "$T/empty"
	is "$command of an empty folder" $rc 4
done
run ckpt-merge verify "$T/a/step_00000099"
is "a step that is not there" $rc 4

## ls, config, check
run ckpt-merge verify "$T/a"
is "verify" "$rc $out" "0 $T/a/step_00000010: sound"
run ckpt-merge ls --json "$T/a"
is "ls --json: progress and layout" \
	"$(jq -r '"\(.step) \(.consumed_samples) \(.world) \(.place.tensor_model_parallel_size) \(.files)"' <<<"$out")" \
	"10 80 8 2 12"
is "ls --json: a weight" \
	"$(jq -c '.weights[] | select(.name == "layers/0001/attn/qkv/w" and .role == "m") | [.dtype, .shape]' <<<"$out")" \
	'["f32",[64,32]]'
is "ls: one line a weight and role" "$(ckpt-merge ls "$T/a" | tail -n +4 | wc -l)" \
	"$(jq '.weights | length' <<<"$out")"
run ckpt-merge config "$T/a"
is "config" $rc 0
echo "$out" >"$T/shape.cfg"
like "config: the true vocabulary" "$out" "vocab_size = 61;"
ok "check: its own config" ckpt-merge check "$T/a" --config "$T/shape.cfg"
(cat "$T/shape.cfg" && echo 'place: { tensor_model_parallel_size = 64; };
	spec: { device = "cpu"; }; run: { lr = 1; };') >"$T/groups.cfg"
ok "check: the other groups do not matter" ckpt-merge check "$T/a" --config "$T/groups.cfg"
run ckpt-merge check "$T/a" --config "$T/shape.cfg" --set shape.num_layers=6 \
	--set shape.vocab_size=62
is "check: another model" $rc 1
like "check: names the fields" "$err" "num_layers 4 / 6, vocab_size 61 / 62"
run ckpt-merge check "$T/a" --config "$T/nowhere.cfg"
is "check: no such config" $rc 2
run ckpt-merge check "$T/a"
is "check: no config at all" $rc 2

## reshard
before=$(files "$T/a")
run ckpt-merge reshard "$T/a" "$T/b" --dry-run --set "${pp2[0]/2/4}" --set "${tp2[0]/2/1}"
is "dry run" $rc 0
like "dry run: the layout" "$out" "8 ranks: tp 1, pp 4, vp 1, cp 1, dp 2"
ok "dry run: nothing written" [ ! -e "$T/b" ]
run ckpt-merge reshard "$T/a" "$T/b" --set "${pp2[0]/2/4}" --set "${tp2[0]/2/1}"
is "reshard" "$rc $out" "0 $T/b/step_00000010"
is "reshard: no bar off a terminal" "$err" ""
ok "reshard: every element in its place" load "$T/b" 4 "${pp2[0]/2/4}"
is "reshard: same digests" "$(digests "$T/b")" "$(digests "$T/a")"
is "reshard: its folder is a run's" "$(<"$T/b/LATEST")" step_00000010
is "reshard: files of the new layout" "$(cd "$T/b/step_00000010" && echo model/*)" \
	"model/pp00-tp00.h5 model/pp01-tp00.h5 model/pp02-tp00.h5 model/pp03-tp00.h5"
ok "reshard: no temporary folder left" [ -z "$(find "$T/b" -name '.*' -mindepth 1)" ]
ok "reshard: the other way" ckpt-merge reshard "$T/b" "$T/c" \
	--set "${tp2[0]}" --set "${pp2[0]}"
is "there and back: same digests" "$(digests "$T/c")" "$(digests "$T/a")"
ok "there and back: equal" ckpt-merge diff "$T/a" "$T/c"
is "the source is untouched" "$(files "$T/a")" "$before"
first=$(files "$T/b/step_00000010")
run ckpt-merge reshard "$T/a" "$T/b" --set "${pp2[0]/2/4}" --set "${tp2[0]/2/1}"
is "a complete step is not replaced" $rc 4
like "a complete step is not replaced: the way out" "$err" "--force replaces it"
ok "--force replaces it" ckpt-merge reshard "$T/a" "$T/b" --force \
	--set "${pp2[0]/2/4}" --set "${tp2[0]/2/1}"
is "a rerun gives the same bytes" "$(files "$T/b/step_00000010")" "$first"
ok "in place" ckpt-merge reshard "$T/b" "$T/b" --force --set "${pp2[0]}"
is "in place: same digests" "$(digests "$T/b")" "$(digests "$T/a")"

config "$T/new.cfg" "${model[@]}" "${pp2[@]}" "${vp2[@]}"
ok "reshard to a config's layout" ckpt-merge reshard "$T/a/step_00000010" "$T/d" \
	--config "$T/new.cfg" --world 6
ok "reshard to a config's layout: loads" load "$T/d" 6 "${pp2[@]}" "${vp2[@]}"
like "a set pipeline starts from even stages" "$(ckpt-merge reshard "$T/d" "$T/x" \
	-n --set "${pp2[0]/2/4}" --world 4)" "pp 4, vp 1"
(cat "$T/new.cfg" && echo 'spec: { device = "cpu"; }; run: { lr = 1; };') >"$T/four.cfg"
ok "reshard to a config of all four groups" ckpt-merge reshard "$T/a" "$T/four" \
	--config "$T/four.cfg" --world 2
sed 's/num_layers=4/num_layers=8/' "$T/new.cfg" >"$T/other.cfg"
run ckpt-merge reshard "$T/a" "$T/x" --config "$T/other.cfg"
is "reshard to another model: refused" $rc 4
like "reshard to another model: names the field" "$err" "num_layers 4 / 8"
run ckpt-merge reshard "$T/a" "$T/x" --set place.tensor_model_parallel_size=3
is "a layout that cannot be" $rc 3
like "a layout that cannot be: why" "$err" "tensor_model_parallel_size"
run ckpt-merge reshard "$T/a" "$T/x" --set place.tensor_model_parallel_sise=2
is "a setting that is none" $rc 3
like "a setting that is none: names it" "$err" "tensor_model_parallel_sise"
run ckpt-merge reshard "$T/a" '' --set place.tensor_model_parallel_size=1
is "an empty operand is bad usage" "$rc" 2
like "and said" "$err" "operand 2 is empty"
run ckpt-merge reshard "$T/a" "$T/x" --world 7
is "a world that does not fit" $rc 3
ok "whatever was refused, nothing was written" [ ! -e "$T/x" ]

## diff
"$sim" save "$T/e" 10 1 f64 "${model[@]}" || exit 1
run ckpt-merge diff "$T/a" "$T/e"
is "diff: another type is a difference" $rc 1
like "diff: another type is a difference: says so" "$out" "of different types"
ok "diff: equal as numbers" ckpt-merge diff --tolerance 0 "$T/a" "$T/e"
save "$T/f" 10 2 shape.ffn_hidden_size=64 "${tp2[@]}" || exit 1
run ckpt-merge diff "$T/a" "$T/f"
is "diff: two models" $rc 1
like "diff: two models: names the field" "$err" "ffn_hidden_size 128 / 64"

## damage
flip() { # flip FILE BYTE
	printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
at=$(h5dump -p -H "$T/b/step_00000010/model/pp00-tp00.h5" |
	awk '/DATASET "tok"/ { on = 1 } on && /OFFSET/ { print $2; exit }')
flip "$T/b/step_00000010/model/pp00-tp00.h5" "$at"
run ckpt-merge verify "$T/b"
is "verify: a flipped byte" $rc 4
like "verify: where" "$err" "model/pp00-tp00.h5: param of embed/tok is damaged"
like "verify: how many" "$err" "1 problem"
run ckpt-merge reshard "$T/b" "$T/x"
is "reshard: a flipped byte" $rc 4
ok "reshard: a flipped byte: nothing is left" [ ! -e "$T/x" ]
mkdir -p "$T/mine/old" "$T/full" && touch "$T/full/file"
for dst in x mine x/y/z mine/new/z mine/old full full/new/; do
	before=$(cd "$T" && find x mine full 2>/dev/null | sort)
	run ckpt-merge reshard "$T/b" "$T/$dst"
	is "a failed reshard to $dst: exit 4" $rc 4
	is "a failed reshard to $dst: folders are as they were" \
		"$(cd "$T" && find x mine full 2>/dev/null | sort)" "$before"
done
save "$T/b" 20 1 || exit 1
run ckpt-merge verify "$T/b"
is "verify: the newest step" "$rc $out" "0 $T/b/step_00000020: sound"
truncate -s -1 "$T/b/step_00000020/manifest.h5"
run ckpt-merge verify "$T/b"
is "verify: the newest step, broken or not" $rc 4

## interrupted
ckpt-merge reshard "$T/a" "$T/y" --world 8 2>/dev/null &
pid=$!
wait_for 5 [ -e "$T/y" ]
kill -TERM $pid 2>/dev/null
wait $pid
[ ! -e "$T/y/step_00000010" ] || ckpt-merge verify "$T/y" >/dev/null
is "interrupted: all or nothing" $? 0

## HDF5's own tools read it
like "h5dump: the index" "$(h5dump -d /index "$T/a/step_00000010/manifest.h5" | head -80)" \
	'embed/tok'
like "h5dump: the files" "$(h5dump -d /files "$T/a/step_00000010/manifest.h5")" \
	'model/pp00-tp00.h5'
done_testing
