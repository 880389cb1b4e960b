#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other people's configs: Megatron's flags out of YAML, scripts and argument
# files, and Hugging Face's config.json.
# shellcheck source=test/lib.sh
# shellcheck disable=SC1003,SC2016 # scripts that are read, not run
. test/lib.sh

# cannot FORMAT FILE: which flags or keys of it have no setting here
cannot() {
	cfg-finalize --from "$1" "$2" | sed -nE \
		's/^[^:]*:[0-9]+: error: ([^ :]*):? .*\[import-flag\]$/\1/p' | sort -u
}

# listed FILE: those that test/data/import/cannot says
listed() { sed -nE "s#^$1 ##p" test/data/import/cannot | sort -u; }

# others FORMAT FILE: all its other errors
others() {
	cfg-finalize --from "$1" "$2" | grep ': error: ' | grep -v '\[import-flag\]$'
}

for file in test/data/megatron/* test/data/hf/*.json; do
	format=$(basename "$(dirname "$file")") name=$format/${file##*/}
	is "$name: what has no setting here" "$(cannot "$format" "$file")" \
		"$(listed "$name")"
	is "$name: all else is valid" "$(others "$format" "$file")" ''
	run cfg-finalize --from "$format" "$file"
	want=0 && [ -z "$(listed "$name")" ] || want=1
	is "$name: exit code" $rc $want
done
is "the list names only files that are there" "$(
	grep -v '^#' test/data/import/cannot | cut -d' ' -f1 | sort -u |
		while read -r name; do [ -f "test/data/$name" ] || echo "$name"; done
)" ''

# parameters FILE [ARG]...
parameters() { cfg-finalize --json --from hf "${@:2}" "test/data/hf/$1.json" | jq .parameters; }
while read -r name want; do
	is "$name has $want parameters" "$(parameters "$name")" "$want"
done <<-END
	gpt2 124439808
	gpt2-medium 354823168
	gpt2-large 774030080
	gpt2-xl 1557611200
	llama-2-7b 6738415616
	llama-2-13b 13015864320
	llama-2-70b 68976648192
	llama-3-8b 8030261248
	llama-3-70b 70553706496
	mistral-7b 7241732096
	mixtral-8x7b 46702792704
	qwen2-7b 7615616512
	qwen3-8b 8190735360
	qwen3-30b-a3b 30532122624
	deepseek-v2-lite 15706484224
	nemotron-nas-same 4668317696
END

# active NAME [ARG]...: of them those that one token visits
active() { cfg-finalize --json --from hf "${@:2}" "test/data/hf/$1.json" | jq .parameters_active; }
# all but 6 of 8 experts in 32 layers, 120 of 128 in 48, 248 of 256 in 58 of 61
is "mixtral-8x7b has 12.9e9 active" "$(active mixtral-8x7b)" \
	$((46702792704 - 32 * 6 * 3 * 4096 * 14336))
is "that is" "$(active mixtral-8x7b)" 12879925248
is "qwen3-30b-a3b has 3.3e9 active" "$(active qwen3-30b-a3b)" \
	$((30532122624 - 48 * 120 * 3 * 2048 * 768))
is "that is" "$(active qwen3-30b-a3b)" 3353032704
is "deepseek-v3 has 37.6e9 active without MTP" "$(active deepseek-v3 --set shape.mtp_num_layers=0)" \
	$((671026404352 - 58 * 248 * 3 * 7168 * 2048))
is "that is" "$(active deepseek-v3 --set shape.mtp_num_layers=0)" 37552282624
is "all of a dense model is active" "$(active llama-2-7b)" 6738415616
like "and it is said" "$(cfg-finalize --from hf test/data/hf/mixtral-8x7b.json)" \
	"46702792704 parameters \(12879925248 active\), vocabulary"
is "deepseek-v3 without MTP" "$(parameters deepseek-v3 --set shape.mtp_num_layers=0)" 671026404352

# one command line, three ways of writing it
flags='--num-layers 8
--hidden-size 96
--num-attention-heads 8
--group-query-attention
--num-query-groups 4
--swiglu
--disable-bias-linear
--position-embedding-type rope
--rotary-base 500000
--normalization RMSNorm
--untie-embeddings-and-output-weights
--seq-length 64
--max-position-embeddings 64
--vocab-size 1000
--no-rope-freq ([0]*3+[1])*2
--tensor-model-parallel-size 2
--pipeline-model-parallel-size 2
--sequence-parallel
--micro-batch-size 2
--global-batch-size 32
--train-iters 10
--lr 1e-3
--data-path /nowhere
--bf16'
echo "$flags" >"$T/flags.args"
{
	echo '#!/bin/bash' && echo '#SBATCH -N1'
	echo 'TP=2 MODEL="--num-layers 8' && sed -n 2,4p <<<"$flags" && echo '"'
	echo 'REST=(' && sed -n '5,$p' <<<"$flags" |
		sed -E "s/(--no-rope-freq) (.*)/\1 '\2'/; s/(tensor.*) 2/\1 \$TP/"
	echo ')' && echo 'srun torchrun --nproc_per_node 4 train.py $MODEL \'
	echo '	"${REST[@]}" 2>&1 | tee log'
} >"$T/flags.sh"
{ echo MODEL_ARGS: && sed -E 's/^(--[a-z0-9-]+)$/\1 true/; s/^(--[a-z0-9-]+) /  \1: /' <<<"$flags"; } >"$T/flags.yaml"
final() { cfg-finalize --from megatron -o - "$1" 2>"$T/talk" | sed 's/ *#.*//'; }
final "$T/flags.args" >"$T/args.cfg"
like "the flags are valid" "$(tail -1 "$T/talk")" "flags.args: valid"
like "and in the file that is written" "$(<"$T/args.cfg")" "num_query_groups = 4;"
final "$T/flags.sh" >"$T/sh.cfg"
ok "a script says the same" diff "$T/args.cfg" "$T/sh.cfg"
final "$T/flags.yaml" >"$T/yaml.cfg"
ok "YAML says the same" diff "$T/args.cfg" "$T/yaml.cfg"
cfg-finalize --from megatron - <"$T/flags.yaml" >"$T/talk"
like "standard input is recognised" "$(tail -1 "$T/talk")" "^-: valid"

# what is written
run cfg-finalize --from megatron -o "$T/out.cfg" "$T/flags.yaml"
is "-o writes our own file" $rc 0
like "given values with their line" "$(<"$T/out.cfg")" \
	"hidden_size = 96; # given: $T/flags.yaml:3"
like "defaults of Megatron's command line" \
	"$(cfg-finalize --from megatron -o - test/data/bad/import-run.cfg \
		--set shape.vocab_size=256 2>&1)" \
	"share_embeddings_and_output_weights = true; # derived: default of Megatron's command line"
like "of the optimizer on the host, all of it" \
	"$(cfg-finalize --from megatron -o - - 2>&1 <<<"$(<"$T/flags.args") --bf16
--use-precision-aware-optimizer --use-distributed-optimizer --optimizer-cpu-offload")" \
	"optimizer_offload_fraction = 1.0; # derived: default of Megatron's command line"
hash() { sed -nE 's/.*, shape ([0-9a-f]+)$/\1/p' <<<"$1"; }
first=$(hash "$out")
run cfg-finalize --world 4 "$T/out.cfg"
is "that file is valid by itself" $rc 0
is "and has the same shape" "$(hash "$out")" "${first:-none}"
mkdir "$T/in" "$T/hf"
cp "$T/flags.sh" "$T/flags.yaml" "$T/in" && echo no >"$T/in/readme.txt"
for name in gpt2 llama-3-8b; do
	mkdir "$T/hf/$name" && cp "test/data/hf/$name.json" "$T/hf/$name/config.json"
	echo '{}' >"$T/hf/$name/generation_config.json"
done
run cfg-finalize -j 2 --from megatron --output-dir "$T/d" "$T/in"
is "a folder gives YAML and scripts" "$(cd "$T/d" && echo *)" \
	"flags.sh.cfg flags.yaml.cfg"
run cfg-finalize --from hf --output-dir "$T/h" "$T/hf"
is "or every config.json" "$(cd "$T/h" && echo */*)" \
	"gpt2/config.json.cfg llama-3-8b/config.json.cfg"
run cfg-finalize --from hf test/data/megatron
is "a folder without one exits 2" $rc 2
like "and says so" "$err" "no config.json below"

# findings
import() { # import TEXT [OPTION]...: findings of flags in a file
	echo "$1" >"$T/x.args" && run cfg-finalize --from megatron "${@:2}" "$T/x.args"
}
base="$(grep -v vocab <<<"$flags")"
import "$base
--tensor-model-parallel-size 3"
like "a finding of a rule points at the flag" "$out" \
	"x.args:24: place.tensor_model_parallel_size: error: num_attention_heads 8"
like "a flag given twice: the last counts" "$out" \
	"x.args:24: warning: --tensor-model-parallel-size is given a second time, first on line 15"
import "$base"
is "without a vocabulary it is valid" $rc 0
like "which is said with the way out" "$out" "note: .* try --vocab-size N \[import-vocab\]"
is "and results that need it are null" "$(cfg-finalize --json --from megatron "$T/x.args" |
	jq -c '[.valid, .parameters, .padded_vocab_size, .shape_hash, .world]')" \
	'[true,null,null,null,4]'
import "$base" --world 4 --gpu-memory 1M
is "and no memory is made up" "$rc $(grep -c cluster-memory <<<"$out")" "0 0"
like "which is said, too" "$out" "no hash, no memory; try"
run cfg-finalize --suggest --from megatron --world 4 "$T/x.args"
is "nor are placements proposed" $rc 3
like "but the way out" "$err" "the vocabulary is not known.*: --vocab-size N"
import "$base" --vocab-size 1000
like "--vocab-size gives them" "$out" "parameters, vocabulary 1000 in 1024 rows"
like "the world is the smallest that fits" "$out" "note: world 4 is assumed"
import "$base" --world 8
ok "--world is taken as it is" test "${out/import-world/}" = "$out"
import "$base
--num-experts 4
--expert-model-parallel-size 4
--expert-tensor-parallel-size 1"
like "of both grids" "$out" "note: world 8 is assumed"
import "$base
--num-layerz 3"
like "an unknown flag" "$out" \
	"x.args:24: error: --num-layerz is no flag .*; try --num-layers \[import-unknown\]"
import "$base
--tensor_model_parallel_size 4"
like "names have hyphens" "$out" \
	"error: --tensor_model_.* is no flag .*; try --tensor-model-parallel-size"
import "$base
--num-moe-experts 4"
like "a setting that is no flag" "$out" \
	"error: --num-moe-experts is no flag .*; try --num-experts "
import "$base
--no-position-embedding
--checkpoint-activations"
ok "a type of positions makes up for it" test "${out/no-position/}" = "$out"
like "what Megatron itself refuses" "$out" \
	"error: Megatron refuses --checkpoint-activations; try --recompute-activations"
import "$base
--spec a b"
like "a flag of the model without a setting" "$out" \
	"x.args:24: error: --spec concerns the model and has no setting here.* \[import-flag\]"
import "$base
--cross-entropy-fusion-impl native
--num-distributed-optimizer-instances 1"
is "a flag at its default is none" $rc 0
import "$base
--num-layers \$N"
like "a value that only a shell would know" "$out" \
	"x.args:24: shape.num_layers: error: --num-layers wants an integer, not '\\\$N', which only"
ok "is not missing as well" test "${out/shape-required/}" = "$out"
import "$base
--save x --log-interval 5 --wandb-project y"
like "what is no business of ours is said once" "$out" \
	"note: 3 flags of logs.*: --data-path, --save, --wandb-project \[import-ignored\]"
cfg-finalize --from megatron -o - "$T/x.args" >"$T/x.cfg" 2>/dev/null
like "a setting of ours among them is read" "$(<"$T/x.cfg")" "log_interval = 5;"

run cfg-finalize --from megatron test/data/import/flags.args
is "every flag of Megatron's is known" "$(grep 'import-unknown' <<<"$out")" ''

# what Megatron's command line corrects
import "$(grep -v 'tensor-model\|group-query' <<<"$base")"
like "sequence_parallel without tp" "$out" \
	"x.args:15: place.sequence_parallel: note: .* turns it off.*\[import-corrected\]"
like "groups without group-query-attention" "$out" \
	"x.args:4: shape.num_query_groups: note: .*ignores it without"
import "$base
--use-rope-scaling
--rope-scaling-factor 32"
like "a factor that is never used" "$out" "reads it and then uses 8.0"
import "$(grep -v 'swiglu\|bias-linear' <<<"$base")" -o -
like "gelu with a bias is the tanh form" "$out" 'activation_func = "gelu_tanh"; # derived'
import "$(grep -v swiglu <<<"$base")" -o -
like "without one it is exact" "$out" 'activation_func = "gelu"; # default'

# families and their keys
for name in gpt2 llama-3-8b; do
	cfg-finalize --from hf -o - "test/data/hf/$name.json" >"$T/$name.cfg" 2>/dev/null
done
like "gpt2: gelu_new is the tanh form" "$(<"$T/gpt2.cfg")" \
	'activation_func = "gelu_tanh"; # given: test/data/hf/gpt2.json:2'
like "gpt2: a tied head" "$(<"$T/gpt2.cfg")" \
	'share_embeddings_and_output_weights = true; # derived: model_type gpt2'
like "llama: dropout is none" "$(<"$T/llama-3-8b.cfg")" 'hidden_dropout = 0.0; # derived'
like "llama: theta" "$(<"$T/llama-3-8b.cfg")" \
	'rotary_base = 500000.0; # given: test/data/hf/llama-3-8b.json:'
run cfg-finalize --from hf test/data/import/family.json
is "an unknown family exits 2" $rc 2
like "and names those that are known" "$out" \
	"family.json:1: error: model_type 'bert' is none of gpt2, llama, .*\[import-family\]"
hf() { # hf FILTER: findings of Llama 3 with a change
	jq "$1" test/data/hf/llama-3-8b.json >"$T/x.json"
	run cfg-finalize --from hf "$T/x.json"
}
hf '.num_hidden_layers = "many"'
like "a value of another type" "$out" \
	"x.json:16: shape.num_layers: error: num_hidden_layers wants an integer, not 'many'"
hf '.rope_scaling = {rope_type: "dynamic", factor: 2}'
like "a rope that cannot be said" "$out" "error: rope_scaling: dynamic has no setting here"
hf '.hidden_act = "mish"'
like "nor an activation" "$out" "error: hidden_act: mish has no setting here"
hf 'del(.rope_theta) | .rope_parameters = {rope_type: "default", rope_theta: 7e4}'
like "a rope as newer files say it" "$(cfg-finalize --from hf -o - "$T/x.json" 2>&1)" \
	'rotary_base = 70000.0; # given: .*x.json:2[0-9]'
hf '.attention_bias = true'
like "nor biases in half of a layer" "$out" "error: attention_bias: a bias in all of attention"
hf '.attention_bias = true | .mlp_bias = true'
is "biases everywhere can be said" $rc 0

# bad input: a finding each
hostile() { # hostile NAME PATTERN FORMAT FILE
	run timeout 10 cfg-finalize --from "$3" "$4"
	is "$1 exits 2" $rc 2
	like "$1 is said" "$out" "$2"
}
printf -- '--lr 1\n\0' >"$T/nul.args"
hostile "a NUL byte" "nul.args:2: error: a NUL byte" megatron "$T/nul.args"
printf -- '--lr: 1\n--x: \xff\n' >"$T/latin.yaml"
hostile "invalid UTF-8" "latin.yaml:2: error: a byte that is no UTF-8" megatron "$T/latin.yaml"
printf '\xef\xbb\xbf{}' >"$T/mark.json"
hostile "a byte order mark" "mark.json:1: error: begins with a UTF-8 byte" hf "$T/mark.json"
head -c 100000000 /dev/zero | tr '\0' x >"$T/long.sh"
hostile "a line of 100 MB" "longer than 1 MiB" megatron "$T/long.sh"
rm "$T/long.sh"
hostile "an endless device" "longer than 1 MiB" hf /dev/zero
ln -s loop.sh "$T/loop.sh"
hostile "a loop of links" "Too many levels of symbolic links" megatron "$T/loop.sh"
echo 'A="$A"; source me.sh' >"$T/me.sh"
hostile "a script without a command" "no command of this script" megatron "$T/me.sh"
head -c 100000 /dev/zero | tr '\0' '[' >"$T/deep.json"
hostile "deep JSON" "depth" hf "$T/deep.json"
{ echo 'MODEL_ARGS:' && printf '  x: ' && cat "$T/deep.json"; } >"$T/deep.yaml"
hostile "deep YAML" "import-format" megatron "$T/deep.yaml"
printf '%s\n' 'torchrun p.py --num-layers $(touch '"$T/ran"')`touch '"$T/ran"'`' >"$T/run.sh"
cfg-finalize --from megatron "$T/run.sh" >/dev/null
ok "nothing is ever run" test ! -e "$T/ran"
mkfifo "$T/fifo.yaml"
run timeout 10 cfg-finalize --from megatron "$T/fifo.yaml"
is "a pipe without a writer does not hang" $rc 2
run cfg-finalize --from yaml "$T/flags.yaml"
is "an unknown format exits 2" $rc 2
like "and the formats are named" "$err" "'yaml' is none of own, megatron and hf"
echo '--num-layers 4 --moe-layer-freq ([0]*1+[1]*x)' >"$T/list.args"
like "a caret shows where a list ends to be one" "$(cfg-finalize --from megatron "$T/list.args")" \
	"\[import-value\]
    \(\[0\]\*1\+\[1\]\*x\)
               \^
"
# every line that is not followed is named
cat >"$T/maybe.sh" <<'SH'
ARGS="--num-layers 4"
[ "$1" = moe ] && ARGS="$ARGS --num-experts 8"
for x in $2; do ARGS="$ARGS --bf16"; done
python x.py $ARGS
SH
is "each condition that is not known" \
	"$(cfg-finalize --from megatron "$T/maybe.sh" | grep import-condition | cut -d: -f2 | xargs)" "2 3"

# layers with sizes of their own, as JSON on the command line
good=test/data/good/import-blocks.cfg
blocks() { # blocks SED: what is said of the changed file
	sed "$1" $good >"$T/blocks.args"
	cfg-finalize --from megatron --vocab-size 256 "$T/blocks.args"
}
is "every block has its sizes" "$(cfg-finalize --from megatron --vocab-size 256 -o - $good 2>"$T/err" |
	grep heterogeneous_ | sed 's/ *#.*//' | xargs)" \
	"heterogeneous_block_specs = true; heterogeneous_num_query_groups = [2, 0, 4, 2]; heterogeneous_ffn_hidden_size = [256, 256, -1, 256];"
like "another model in the JSON is an error" "$(blocks 's/"hidden_size": 64/"hidden_size": 65/')" \
	"hidden_size is 64, but layers with sizes of their own want 65 \[import-blocks\]"
like "and another kind of model" "$(blocks 's/ --swiglu//')" \
	"gated_linear_unit is false, but .* want true \[import-blocks\].*activation_func is .*want silu"
like "no JSON" "$(blocks "s/{.*}/{\"a\": }/")" "wants an object .* of JSON: .*\[import-value\]"
like "no object" "$(blocks "s/{.*}/[1]/")" "wants an object .* of JSON \[import-value\]"
like "fewer blocks than layers" "$(blocks 's/--num-layers 4/--num-layers 5/; s/_layers": 4/_layers": 5/')" \
	"block_configs: 4 blocks for 5 layers has no setting here"
like "a block of less than nothing" "$(blocks 's/"ffn_mult": 5.25/"ffn_hidden_size": -1/')" \
	"block_configs: what block 1 says has no setting here"
like "a block that is none" "$(blocks 's/"ffn_mult": 5.25/"ffn_mult": -1/')" \
	"block_configs: what block 1 says has no setting here"
done_testing
