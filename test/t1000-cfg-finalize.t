#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize: inputs, outputs, exit codes, bad input.
# shellcheck source=test/lib.sh
. test/lib.sh

whole() { # whole [LAYERS]: a valid config
	cat <<-END
	shape: { num_layers = ${1:-4}; hidden_size = 48; vocab_size = 128;
	  num_attention_heads = 4; };
	run: { micro_batch_size = 2; global_batch_size = 16; train_iters = 5;
	  lr = 0.1; data_path = "x"; };
	END
}
summary() { echo "${1%%, shape *}"; }

mkdir -p "$T/in/sub/deep" "$T/out"
whole >"$T/a.cfg"
whole 6 >"$T/in/b.cfg"
whole 8 >"$T/in/sub/deep/c.cfg"
whole 3 >"$T/in/sub/not-a-config.txt"
{ whole && echo "place: { tensor_model_parallel_size = 3; };"; } >"$T/bad.cfg"

# one input
run cfg-finalize --world 4 "$T/a.cfg"
is "a valid config exits 0" $rc 0
is "its summary" "$(summary "$out")" \
	"$T/a.cfg: valid, 174624 parameters, vocabulary 128 in 128 rows, world 4, dp 4"
run cfg-finalize "$T/bad.cfg"
is "an invalid one exits 1" $rc 1
like "a finding has file, line, path, severity, message, way out and id" "$out" \
	"bad.cfg:5: place.tensor_model_parallel_size: error: num_attention_heads 4 is not a multiple of tensor_model_parallel_size 3; try tensor_model_parallel_size = 2 or tensor_model_parallel_size = 4 \[place-heads\]"
like "its summary counts errors" "$out" "bad.cfg: invalid, 1 error,"
run cfg-finalize test/data/bad/place-layout.cfg
like "a caret shows the wrong character" "$out" "\[place-layout\]
    Et\*4\|txt\*3L
          \^
"
run cfg-finalize --set place.tensor_model_parallel_size=2 "$T/bad.cfg"
is "--set goes over the file" $rc 0
run cfg-finalize - <"$T/a.cfg"
is "standard input" "$(summary "$out")" \
	"-: valid, 174624 parameters, vocabulary 128 in 128 rows"

# many inputs
run cfg-finalize "$T/in"
is "a folder gives every *.cfg below it" "$(cut -d: -f1 <<<"$out")" \
	"$T/in/b.cfg
$T/in/sub/deep/c.cfg
2 inputs"
printf '%s\n' "# no name" '' "$T/a.cfg" "$T/bad.cfg" >"$T/list"
run cfg-finalize "@$T/list"
is "a list: the worst exit code" $rc 1
like "a list: both are there" "$out" "a.cfg: valid.*bad.cfg: invalid.*2 inputs: 1 valid \(0 not served\), 1 invalid, 0 unreadable; most errors: place-heads 1"
echo "$T/in" >"$T/folders"
run cfg-finalize "@$T/folders"
like "a list may name folders" "$out" "in/b.cfg: .*deep/c.cfg: .*2 inputs"
run cfg-finalize @- <"$T/list"
is "a list from standard input" $rc 1
run cfg-finalize "$T/none.cfg" "$T/a.cfg" "$T/bad.cfg"
is "an unreadable one exits 2" $rc 2
like "and does not stop the others" "$out" "none.cfg: unreadable.*a.cfg: valid.*bad.cfg: invalid"
run cfg-finalize "$T/out" "$T/a.cfg"
is "an empty folder exits 2" $rc 2
like "an empty folder is named" "$err" "no \*.cfg below '$T/out'"
like "the other input is done" "$out" "a.cfg: valid"
ln -s "$T/in" "$T/in/sub/loop"
run cfg-finalize "$T/in"
is "a loop of links ends" "$(tail -n1 <<<"$out")" "2 inputs: 2 valid (0 not served), 0 invalid, 0 unreadable"
rm "$T/in/sub/loop"
for i in {1..150}; do whole $((i % 7 + 1)) >"$T/in/sub/$i.cfg"; done
cfg-finalize -j 1 "$T/in" >"$T/j1" 2>"$T/time"
cfg-finalize -j 7 "$T/in" >"$T/j7" 2>"$T/time"
ok "workers do not change the output" cmp "$T/j1" "$T/j7"
is "all were done" "$(tail -n1 "$T/j7")" "152 inputs: 152 valid (0 not served), 0 invalid, 0 unreadable"
rm "$T"/in/sub/*.cfg

# JSON
run cfg-finalize --json --world 4 "$T/a.cfg" "$T/bad.cfg" "$T/none.cfg"
is "one object a line" "$(wc -l <<<"$out")" 3
is "a valid one" "$(sed -n 1p <<<"$out" | sed -E 's/"[0-9a-f]{32}"/HASH/')" \
	'{"file":"'"$T"'/a.cfg","valid":true,"served":true,"findings":[],"shape_hash":HASH,"parameters":174624,"parameters_active":174624,"padded_vocab_size":128,"world":4,"data_parallel_size":4}'
is "an invalid one" "$(sed -n 2p <<<"$out" | sed -E 's/"[0-9a-f]{32}"/HASH/')" \
	'{"file":"'"$T"'/bad.cfg","valid":false,"served":false,"findings":[{"id":"place-heads","severity":"error","path":"place.tensor_model_parallel_size","line":5,"message":"num_attention_heads 4 is not a multiple of tensor_model_parallel_size 3","suggest":["tensor_model_parallel_size = 2","tensor_model_parallel_size = 4"]},{"id":"place-vocab-padding","severity":"note","path":"place.make_vocab_size_divisible_by","line":null,"message":"vocab_size 128 is padded to a multiple of 128 x tp 3: 384 rows, 128 a rank, 256 padding (66.67%)","suggest":[]},{"id":"place-vocab-empty","severity":"warning","path":"place.make_vocab_size_divisible_by","line":null,"message":"the last 2 of tp 3 ranks hold only padding: 128 rows a rank for vocab_size 128","suggest":["make_vocab_size_divisible_by = 1"]},{"id":"place-world","severity":"error","path":"place.tensor_model_parallel_size","line":5,"message":"world 4 is not a multiple of tp 3 x cp 1 x pp 1 = 3","suggest":["a world of 3","a world of 6"]}],"shape_hash":HASH,"parameters":174624,"parameters_active":174624,"padded_vocab_size":384,"world":4,"data_parallel_size":null}'
like "an unreadable one" "$(sed -n 3p <<<"$out")" \
	'"valid":false,"served":false,"findings":\[\{"id":"conf-unreadable".*"shape_hash":null,"parameters":null,"parameters_active":null,"padded_vocab_size":null,"world":4,"data_parallel_size":null'
printf 'shape: { "\377\376"; };' >"$T/bytes.cfg"
printf 'shape: { a\n = "\377"; normalization = "\377" };' >"$T/bytes2.cfg"
for f in "$T/bytes.cfg" "$T/bytes2.cfg"; do
	cfg-finalize --json "$f" >"$T/json"
	# shellcheck disable=SC2016 # Perl's, not the shell's
	ok "bytes that are no UTF-8 give JSON" perl -MEncode -ne \
		'decode("UTF-8", my $c = $_, Encode::FB_CROAK); /^\{.*\}$/ or die' "$T/json"
done
echo 'place: { tensor_model_parallel_size = 0; };' >"$T/part.inc"
{ whole && echo '@include "part.inc"'; } >"$T/includes.cfg"
run cfg-finalize --json "$T/includes.cfg"
like "a finding of an included file names it" "$out" \
	'"line":1,"message":"'"$T"'/part.inc:1: 0 is not between 1 and 65536"'
run cfg-finalize "$T/includes.cfg"
like "and its line" "$out" "^$T/part.inc:1: place.tensor_model_parallel_size: error:"

# the finalised file
run cfg-finalize -o "$T/final.cfg" "$T/a.cfg"
is "-o exits 0" $rc 0
hash=${out##*shape }
run cfg-finalize "$T/final.cfg"
is "read again it is the same" "${out##*: valid}" \
	", 174624 parameters, vocabulary 128 in 128 rows, shape $hash"
is "read again it has the same values" "$(cfg-finalize -o - "$T/final.cfg" 2>"$T/talk" | sed 's/#.*//')" \
	"$(sed 's/#.*//' "$T/final.cfg")"
like "with -o - the findings go to standard error" "$(<"$T/talk")" "valid"
cp "$T/final.cfg" "$T/kept.cfg"
run cfg-finalize -o "$T/final.cfg" --set run.seed=7 "$T/a.cfg"
is "an existing file is refused" $rc 2
like "the way out is said" "$err" "final.cfg' exists; --force"
ok "and it is untouched" cmp "$T/final.cfg" "$T/kept.cfg"
ok "--force replaces it" cfg-finalize -o "$T/final.cfg" --force --set run.seed=7 "$T/a.cfg"
like "with the new value" "$(<"$T/final.cfg")" "seed = 7; # given: --set"
run cfg-finalize -o "$T/never.cfg" "$T/bad.cfg"
is "an invalid one with -o exits 1" $rc 1
ok "and nothing is written" test ! -e "$T/never.cfg"
run cfg-finalize --output-dir "$T/out/x" "$T/in" "$T/a.cfg"
is "--output-dir keeps the paths below a folder" \
	"$(cd "$T/out/x" && find . -type f | sort | xargs)" "./a.cfg ./b.cfg ./sub/deep/c.cfg"
mkdir "$T/other" && whole >"$T/other/a.cfg"
run cfg-finalize --output-dir "$T/out/y" "$T/a.cfg" "$T/other/a.cfg"
is "two inputs with one output are refused" $rc 2
like "both are named" "$err" "'$T/.*a.cfg' and '$T/.*a.cfg' would both write '$T/out/y/a.cfg'"
run cfg-finalize -o /dev/full "$T/a.cfg"
is "a full disk exits 9" $rc 9
run cfg-finalize -o /dev/null --force "$T/a.cfg"
ok "a device stays a device" test -c /dev/null
run cfg-finalize -o "$T/no/such/dir/f.cfg" "$T/a.cfg"
is "a missing folder exits 9" $rc 9
is "no temporary file is left" "$(find "$T" -name '*.tmp-*')" ""

# usage
run cfg-finalize
is "no input exits 2" $rc 2
run cfg-finalize --world 0 "$T/a.cfg"
is "a world of 0 exits 2" $rc 2
run cfg-finalize --no-such-option
is "an unknown option exits 2" $rc 2
run cfg-finalize -o x --output-dir y "$T/a.cfg"
is "-o and --output-dir exclude each other" $rc 2
run cfg-finalize --classify --seal x "$T/a.cfg"
is "--classify and --seal exclude each other" $rc 2
run cfg-finalize --seal x --junit y "$T/a.cfg"
is "--seal and --junit exclude each other" $rc 2
run cfg-finalize -o x "$T/in"
is "-o takes one input" $rc 2
run cfg-finalize --help
is "--help exits 0" $rc 0
man=$(sed 's/\\-/-/g' bin/cfg-finalize.1)
while read -r option; do
	like "the man page has $option" "$man" "$option"
done < <(grep -oE -- '--[a-z-]+' <<<"$out" | sort -u)
run cfg-finalize --list-settings
like "--list-settings has types, bounds, defaults" "$out" \
	"shape.num_layers
    integer, 1 to 16384; default: unset
    decoder layers"
(cfg-finalize --list-settings >/dev/full) 2>/dev/null
is "a full disk on standard output exits 9" $? 9
(cfg-finalize -o - "$T/a.cfg" >/dev/full) 2>/dev/null
is "a full disk before the last part exits 9" $? 9
for program in cfg-finalize stage-build train-worker ckpt-merge; do
	for option in --help --version; do
		($program $option >/dev/full) 2>/dev/null
		is "$program $option to a full disk exits 9" $? 9
	done
done
(ulimit -f 1 && stage-build --svg "$T/big.svg" --world 2 "$T/a.cfg") >/dev/null 2>&1
is "a file too large exits 9" $? 9

# bad input never crashes or hangs
hostile() { # hostile NAME PATTERN FILE
	run timeout 10 cfg-finalize "$3"
	is "$1 exits 2" $rc 2
	like "$1 is said" "$out" "$2"
}
printf 'shape: {\n num_layers = 1;\0\n};' >"$T/nul.cfg"
hostile "a NUL byte" "nul.cfg:2: error: a NUL byte" "$T/nul.cfg"
head -c 2000000 /dev/zero | tr '\0' 'x' >"$T/long.cfg"
hostile "a line of 2 MB" "longer than 1 MiB" "$T/long.cfg"
hostile "an endless device" "longer than 1 MiB" /dev/zero
head -c 1000000 /dev/zero | tr '\0' '(' >"$T/deep.cfg"
hostile "deep nesting" "more than 16 deep" "$T/deep.cfg"
for ((i = 0; i < 5000; i++)); do echo "a$i = 1;"; done >"$T/many.cfg"
hostile "too many settings" "more than 4096 settings" "$T/many.cfg"
echo '@include "self.cfg"' >"$T/self.cfg"
hostile "a file that includes itself" "self.cfg:1: error: '.*' includes itself" "$T/self.cfg"
for ((i = 0; i < 20; i++)); do echo "@include \"chain$((i + 1)).cfg\"" >"$T/chain$i.cfg"; done
hostile "a long chain of includes" "at most 10 deep" "$T/chain0.cfg"
for ((i = 0; i < 300; i++)); do echo '@include "/dev/null"'; done >"$T/wide.cfg"
hostile "many includes" "256 in all" "$T/wide.cfg"
whole | head -c 40 >"$T/cut.cfg"
hostile "a truncated file" "the text ends before" "$T/cut.cfg"
mkdir "$T/folder.cfg"
echo "@include \"folder.cfg\"" >"$T/dir.cfg"
hostile "a folder as a file" "Is a directory" "$T/dir.cfg"
mkfifo "$T/fifo"
run timeout 10 cfg-finalize "$T/fifo"
is "a pipe without a writer does not hang" $rc 1
run timeout 10 cfg-finalize <(whole)
is "a pipe with a writer is read" $rc 0
if [ "$(id -u)" != 0 ]; then
	whole >"$T/secret.cfg" && chmod 0 "$T/secret.cfg"
	hostile "no permission" "Permission denied" "$T/secret.cfg"
fi
run cfg-finalize --world 4 --gpu-memory 1G --json "$T/a.cfg"
is "--gpu-memory: how much of it is needed" \
	"$(jq -c '[.memory_bytes > 0, .memory_bytes < 1073741824, .memory_planned]' <<<"$out")" '[true,true,true]'
is "as stage-build plans it" "$(jq .memory_bytes <<<"$out")" \
	"$(stage-build --world 4 --json "$T/a.cfg" 2>/dev/null | jq '[.ranks[].bytes.total] | max')"
run cfg-finalize --world 4 --gpu-memory 1G "$T/a.cfg"
like "in words" "$out" 'dp 4, [0-9.]+[KM] of a GPU.s 1.00G \(planned\), shape'
# a switch that is off and a list that wants it on
run cfg-finalize test/data/layouts/llama.cfg --set shape.heterogeneous_block_specs=false \
	--set 'shape.heterogeneous_num_query_groups=[2,2,2,2,2,2,2,8]'
is "a false switch is not overruled" "$rc" 1
like "but told" "$err$out" "heterogeneous_block_specs.*false, yet layers have sizes of their own"
done_testing
