#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Input that means harm, in all five formats: each is a finding with an id, exit
# 1 or 2, in less than 2 s and 256 MiB.
# shellcheck source=test/lib.sh
# shellcheck disable=SC2016 # scripts that are read, not run
. test/lib.sh

# from FILE: the option for its format, by the file's name
from() {
	case $1 in
	*.cfg) ;;
	*.json) echo --from=hf ;;
	*) echo --from=megatron ;;
	esac
}

# hostile WHAT RC ID FILE: how that ends; the time is that of the processor
TIMEFORMAT='%U %S'
hostile() {
	local option

	option=$(from "$4")
	{
		# shellcheck disable=SC2086 # one option or none
		time (ulimit -v 262144 && exec timeout 20 cfg-finalize -j 1 $option "$4") \
			>"$T/.said" 2>"$T/.err" </dev/null
		rc=$?
	} 2>"$T/.time"
	is "$1, ${4##*.}: exit code" $rc "$2"
	like "$1, ${4##*.}: a finding" "$(grep -ao '\[[a-z-]*\]$' "$T/.said" | xargs)" "\[$3\]"
	ok "$1, ${4##*.}: few words" test "$(wc -c <"$T/.said")" -lt 1000000
	ok "$1, ${4##*.}: in 2 s" awk '{ exit $1 + $2 > 2 }' "$T/.time"
}

formats='cfg args sh yaml json'
# all WHAT RC ID CONTENT: the same in every format
all() {
	for end in $formats; do
		cp "$4" "$T/f.$end"
		hostile "$1" "$2" "$3" "$T/f.$end"
	done
	rm -f "$T"/f.*
}

say() { printf '%s' "$2" >"$T/$1"; }

# a character over and over
much() { head -c "$1" /dev/zero | tr '\0' "$2"; }

## what is no text
much 100000000 x >"$T/in"
all "100 MB on one line" 2 'conf-unreadable' "$T/in"
printf 'a\0b' >"$T/in"
all "a NUL byte" 2 'conf-unreadable' "$T/in"
printf '\357\273\277a' >"$T/in"
all "a byte order mark" 2 'conf-unreadable' "$T/in"
printf '\377\376a\0' >"$T/in"
all "UTF-16" 2 'conf-unreadable' "$T/in"
for end in args sh yaml json; do
	printf -- '--num-layers \377\300\200 \355\240\200' >"$T/f.$end"
	hostile "no UTF-8" 2 conf-unreadable "$T/f.$end"
done
printf 'shape: { normalization = "\377"; };' >"$T/f.cfg"
hostile "no UTF-8" 1 conf-choice "$T/f.cfg"
: >"$T/in"
for end in $formats; do
	cp "$T/in" "$T/f.$end"
	case $end in
	cfg) hostile "nothing" 1 shape-required "$T/f.$end" ;;
	*) hostile "nothing" 2 import-format "$T/f.$end" ;;
	esac
done
rm "$T"/f.*

## what is no file
for end in $formats; do
	mkdir "$T/d.$end"
	ln -s "l.$end" "$T/l.$end"
	ln -s "$T" "$T/d.$end/up"
	mkfifo "$T/p.$end"
	ln -s /dev/zero "$T/z.$end"
	ln -s /dev/null "$T/n.$end"
	hostile "a link to itself" 2 conf-unreadable "$T/l.$end"
	hostile "a device without end" 2 conf-unreadable "$T/z.$end"
	case $end in
	cfg) hostile "a pipe that nobody writes" 1 shape-required "$T/p.$end" ;;
	*) hostile "a pipe that nobody writes" 2 import-format "$T/p.$end" ;;
	esac
	run timeout 10 cfg-finalize "$(from "f.$end")" "$T/d.$end/."
	is "a folder of links to itself, $end" $rc 2
done
rm -rf "$T"/[dlpzn].*
mkdir "$T/dir"
printf '@include "dir"' >"$T/f.cfg"
hostile "a folder that is included" 2 conf-unreadable "$T/f.cfg"
printf '@include "b.cfg"' >"$T/a.cfg" && printf '@include "a.cfg"' >"$T/b.cfg"
hostile "a circle of includes" 2 conf-unreadable "$T/a.cfg"
printf '@include "/dev/zero"' >"$T/f.cfg"
hostile "a device that is included" 2 conf-unreadable "$T/f.cfg"

## too deep
for open in '(' '[' '{'; do
	much 100000 "$open" >"$T/brackets"
	{ echo 'shape: { a = ' && cat "$T/brackets"; } >"$T/f.cfg"
	hostile "100,000 $open" 2 conf-syntax "$T/f.cfg"
	{ echo '--num-layers 2 --moe-layer-freq ' && cat "$T/brackets"; } >"$T/f.args"
	hostile "100,000 $open" 1 import-value "$T/f.args"
	{ echo 'a: ' && cat "$T/brackets"; } >"$T/f.yaml"
	hostile "100,000 $open" 2 import-format "$T/f.yaml"
	{ echo '{"a": ' && cat "$T/brackets"; } >"$T/f.json"
	hostile "100,000 $open" 2 import-format "$T/f.json"
done
for open in '${X:-' '$(' '"$(' '$(('; do
	{ echo 'python pretrain_gpt.py --num-layers ' &&
		for ((i = 0; i < 20000; i++)); do printf '%s' "$open"; done; } >"$T/f.sh"
	hostile "20,000 $open" 2 import-format "$T/f.sh"
done
{ printf 'python pretrain_gpt.py --num-layers $((' && much 100000 '(' && echo 1 &&
	much 100000 ')' && echo '))'; } >"$T/f.sh"
hostile "100,000 brackets of arithmetic" 1 import-value "$T/f.sh"
{ for ((i = 0; i < 50000; i++)); do echo 'if true; then'; done
echo 'python pretrain_gpt.py --num-layers 2'; } >"$T/f.sh"
hostile "50,000 conditions" 1 import-commands "$T/f.sh"
{ printf 'shape: { num_layers = 2; }; place: { pipeline_model_parallel_layout = "'
much 200000 '(' && printf '"; };'; } >"$T/f.cfg"
hostile "200,000 ( in a layout" 1 place-layout "$T/f.cfg"

## too much
say f.cfg 'shape: { num_layers = 8; }; place: { pipeline_model_parallel_layout = "E(((t*4096)*4096)*4096)*4096|L"; };'
hostile "a layout without bound" 1 place-layout "$T/f.cfg"
{ printf 'shape: { num_layers = 8; }; place: { pipeline_model_parallel_layout = "'
for ((i = 0; i < 100000; i++)); do printf '()*4096'; done
printf '"; };'; } >"$T/f.cfg"
hostile "a layout of nothing, over and over" 1 place-layout-ends "$T/f.cfg"
{ printf 'run: { moe_aux_loss_coeff = [' && for ((i = 0; i < 200000; i++)); do printf '0.1,'; done
echo '0.1]; };'; } >"$T/f.cfg"
hostile "200,000 numbers" 1 shape-required "$T/f.cfg"
say f.args '--num-layers 4 --moe-layer-freq [1]*1000000000*9'
hostile "a list without bound" 1 import-value "$T/f.args"
{ printf -- '--moe-layer-freq ' && much 900000 1 && for ((i = 0; i < 1000; i++)); do printf ' 1'; done; } >"$T/f.args"
hostile "a list of a long number and a thousand others" 1 import-value "$T/f.args"
{ echo 'A=xxxxxxxx' && for ((i = 0; i < 60; i++)); do echo 'A=$A$A'; done
echo 'python pretrain_gpt.py --num-layers $A'; } >"$T/f.sh"
hostile "a variable that doubles" 2 import-format "$T/f.sh"
{ echo 'A=(x x x x)' && for ((i = 0; i < 60; i++)); do echo 'A=("${A[@]}" "${A[@]}")'; done
echo 'python pretrain_gpt.py --num-layers "${A[@]}"'; } >"$T/f.sh"
hostile "an array that doubles" 2 import-format "$T/f.sh"
{ echo 'a0: &a0 [x,x,x,x,x,x,x,x,x]'
for i in {1..12}; do
	b="*a$((i - 1))" && echo "a$i: &a$i [$b,$b,$b,$b,$b,$b,$b,$b,$b]"
done
printf 'MODEL_ARGS:\n  --num-layers: *a12\n'; } >"$T/f.yaml"
hostile "a billion laughs" 2 import-format "$T/f.yaml"
{ echo 'a0: &a0 {--bf16: true}'
for i in {1..12}; do b="<<: *a$((i - 1))" && echo "a$i: &a$i {$b, $b, $b, $b}"; done
printf 'MODEL_ARGS:\n  <<: *a12\n'; } >"$T/f.yaml"
hostile "and by merges" 2 import-format "$T/f.yaml"
printf 'MODEL_ARGS: &m\n  --num-layers: *m\n' >"$T/f.yaml"
hostile "an alias of what it is in" 2 import-format "$T/f.yaml"

## too large
nines=$(much 10000 9)
say f.cfg "shape: { num_layers = $nines; rotary_base = 1e999; };"
hostile "a number of 10,000 digits" 1 conf-int-literal "$T/f.cfg"
say f.args "--num-layers $nines --lr 1e999"
hostile "a number of 10,000 digits" 1 import-value "$T/f.args"
say f.sh "python pretrain_gpt.py --num-layers \$(($nines * $nines)) --lr 1e999"
hostile "a number of 10,000 digits" 1 import-value "$T/f.sh"
say f.yaml "MODEL_ARGS:
  --num-layers: $nines"
hostile "a number of 10,000 digits" 1 import-value "$T/f.yaml"
say f.json "{\"model_type\": \"llama\", \"num_hidden_layers\": $nines}"
hostile "a number of 10,000 digits" 2 import-format "$T/f.json"
say f.json '{"model_type": "llama", "rms_norm_eps": 1e400}'
hostile "1e400" 2 import-format "$T/f.json"
say f.cfg 'shape: { rotary_base = 1e999; layernorm_epsilon = -1e999; };'
hostile "1e999" 1 conf-range "$T/f.cfg"
say f.args '--num-layers 2 --lr 1e999 --weight-decay nan'
hostile "1e999" 1 '(conf-range|import-value)' "$T/f.args"

## twice, or in vain
say f.cfg 'shape: { num_layers = 2; num_layers = 3; }; shape: { };'
hostile "a key twice" 1 conf-duplicate "$T/f.cfg"
say f.args '--num-layers 2 --num-layers 3'
hostile "a key twice" 1 import-duplicate "$T/f.args"
say f.sh 'python pretrain_gpt.py --num-layers 2 --num-layers 3'
hostile "a key twice" 1 import-duplicate "$T/f.sh"
say f.yaml 'MODEL_ARGS: {--num-layers: 2, --num-layers: 3}'
hostile "a key twice" 1 import-duplicate "$T/f.yaml"
say f.json '{"model_type": "llama", "hidden_size": 2, "hidden_size": 3}'
hostile "a key twice" 2 import-format "$T/f.json"
{ echo 'shape: {' && for ((i = 0; i < 4000; i++)); do echo "num_layerz$i = 1;"; done && echo '};'; } >"$T/f.cfg"
hostile "4,000 names with a slip" 1 conf-unknown "$T/f.cfg"
for ((i = 0; i < 4000; i++)); do echo "--num-layerz$i 1"; done >"$T/f.args"
hostile "4,000 names with a slip" 1 import-unknown "$T/f.args"
{ printf 'shape: { ' && much 1000000 x && echo ' = 3; };'; } >"$T/f.cfg"
hostile "a name of 1 MB" 1 conf-unknown "$T/f.cfg"
for end in args sh; do
	{ printf 'python a.py --num-layers 2 --' && much 500000 x; } >"$T/f.$end"
	hostile "a flag of 500 kB" 1 import-unknown "$T/f.$end"
done

## and what is harmless
printf 'shape: {\r\n  num_layers = 2;\r\n};\r\n' >"$T/f.cfg"
is "lines that end as on Windows, cfg" "$(cfg-finalize "$T/f.cfg" | grep -c 'conf-')" 0
printf -- '--num-layers 2\r\n--hidden-size 64\r\n' >"$T/f.args"
is "lines that end as on Windows, args" "$(cfg-finalize --from megatron "$T/f.args" | grep -c 'import-\(value\|format\)')" 0
printf 'MODEL_ARGS:\r\n  --num-layers: 2\r\n' >"$T/f.yaml"
is "lines that end as on Windows, yaml" "$(cfg-finalize --from megatron "$T/f.yaml" | grep -c 'import-\(value\|format\)')" 0
printf '#!/bin/bash\r\npython a.py --num-layers 2 \\\r\n  --hidden-size 64\r\n' >"$T/f.sh"
is "lines that end as on Windows, sh" "$(cfg-finalize --from megatron "$T/f.sh" | grep -c 'import-\(value\|format\)')" 0
done_testing
