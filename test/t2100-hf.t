#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-merge import-hf and export-hf on tiny models that transformers has made
# (make hf-golden): names, bits, losses, bad input.
# shellcheck source=test/lib.sh
. test/lib.sh

hf=test/data/hf
list=${TRISECT_BUILD:-build/cpu}/test/x-hf
families=(gpt2 llama2 llama3 mistral qwen2 qwen3 mixtral qwen3_moe deepseek_v2 deepseek_v3 deepseek_v3_whole)

same_tensors() { # same_tensors DIR DIR
	"$list" "$1" >"$T/.a" && "$list" "$2" >"$T/.b" && diff "$T/.a" "$T/.b"
}
elements() { # of a checkpoint's parameters
	ckpt-merge ls --json "$1" |
		jq '[.weights[] | .shape | reduce .[] as $n (1; . * $n)] | add'
}
dims() { ckpt-merge ls "$1" | awk -v name="$2" '$1 == name { print $3, $4, $5, $6 }'; }

for f in "${families[@]}"; do
	run ckpt-merge import-hf "$hf/$f" "$T/$f"
	is "$f: import" "$rc $out $err" "0 $T/$f/step_00000000 "
	ok "$f: sound" ckpt-merge verify "$T/$f"
	is "$f: every element" "$(elements "$T/$f") elements" "$("$list" "$hf/$f" | tail -n 1)"
	run ckpt-merge export-hf "$T/$f" "$T/$f.out"
	is "$f: export" "$rc $out $err" "0 $T/$f.out "
	ok "$f: the same tensors" same_tensors "$hf/$f" "$T/$f.out"
	is "$f: config.json is of the same model" \
		"$(cfg-finalize --json --from hf "$T/$f.out/config.json" | jq .shape_hash)" \
		"$(cfg-finalize --json --from hf "$hf/$f/config.json" | jq .shape_hash)"
	is "$f: its class" "$(jq -c '[.model_type, .architectures]' "$T/$f.out/config.json")" \
		"$(jq -c '[.model_type, .architectures]' "$hf/$f/config.json")"
	run ckpt-merge reshard "$T/$f" "$T/$f.tp2pp2" --world 4 \
		--set place.tensor_model_parallel_size=2 \
		--set place.pipeline_model_parallel_size=2
	is "$f: other layout" $rc 0
	ok "$f: sound there, too" ckpt-merge verify "$T/$f.tp2pp2"
	run ckpt-merge export-hf "$T/$f.tp2pp2" "$T/$f.4" --max-shard-size 30KB
	is "$f: export of TP2 x PP2 in files of 30 KB" $rc 0
	ok "$f: more than one" test -f "$T/$f.4/model-00002-of-0000$(
		find "$T/$f.4" -name 'model-*' | wc -l).safetensors"
	ok "$f: none is larger" test -z "$(find "$T/$f.4" -name 'model-*' -size +34k)"
	ok "$f: the same tensors again" same_tensors "$hf/$f" "$T/$f.4"
	ok "$f: from shards to the same" ckpt-merge import-hf "$T/$f.4" "$T/$f.again"
	ok "$f: equal" ckpt-merge diff "$T/$f" "$T/$f.again"
done
is "gpt2: qkv is turned" "$(dims "$T/gpt2" layers/0001/attn/qkv/w)" "f32 96 x 32"
is "llama3: two groups of two heads" "$(dims "$T/llama3" layers/0000/attn/qkv/w)" "bf16 64 x 32"
is "qwen2: tied" "$(dims "$T/qwen2" head/out)" ""
is "qwen3: heads of 16" "$(dims "$T/qwen3" layers/0000/attn/q_norm/w)" "bf16 16 1 "
is "mixtral: experts are one matrix" "$(dims "$T/mixtral" layers/0000/moe/fc2/w)" "bf16 128 x 40"
is "qwen3_moe: a plain layer" "$(dims "$T/qwen3_moe" layers/0000/mlp/fc2/w)" "f32 32 x 80"
is "qwen3_moe: its experts" "$(dims "$T/qwen3_moe" layers/0001/moe/gate/w)" "f32 96 x 32"

is "deepseek_v3: the latent of k and v, and the shared positions" \
	"$(dims "$T/deepseek_v3" layers/0000/attn/kv_down/w)" "f32 24 x 32"
is "deepseek_v3: its experts' bias" "$(dims "$T/deepseek_v3" layers/0001/moe/router/expert_bias)" "f32 8 1 "
is "deepseek_v3_whole: queries that are not compressed" \
	"$(dims "$T/deepseek_v3_whole" layers/0000/attn/q/w)" "f32 48 x 32"

## multi-token prediction, and matrices of 8 bits, which transformers does not have
for f in deepseek_v3_mtp deepseek_v3_fp8; do
	ok "$f: import" ckpt-merge import-hf "$hf/$f" "$T/$f"
	ok "$f: sound" ckpt-merge verify "$T/$f"
	ok "$f: export" ckpt-merge export-hf "$T/$f" "$T/$f.out"
done
ok "deepseek_v3_mtp: the same tensors" same_tensors "$hf/deepseek_v3_mtp" "$T/deepseek_v3_mtp.out"
is "deepseek_v3_mtp: one depth" "$(jq .num_nextn_predict_layers "$T/deepseek_v3_mtp.out/config.json")" 1
is "deepseek_v3_mtp: its projection" "$(dims "$T/deepseek_v3_mtp" mtp/00/eh_proj/w)" "f32 24 x 48"
ok "deepseek_v3_fp8: what its blocks stand for" ckpt-merge diff "$T/deepseek_v3_fp8" "$T/deepseek_v3_mtp"
ok "deepseek_v3_fp8: exported as that" same_tensors "$hf/deepseek_v3_mtp" "$T/deepseek_v3_fp8.out"

## mixed types
run ckpt-merge import-hf "$hf/mixed" "$T/mixed"
is "mixed: bf16 matrices and f32 vectors" $rc 0
is "mixed: the widest of all" \
	"$(ckpt-merge ls --json "$T/mixed" | jq -c '[.weights[].dtype] | unique')" '["f32"]'

## names of the bare model, and masks that are no weights
edit() { # edit NAME FAMILY FILE SED: a copy of a model with a change
	rm -rf "${T:?}/$1" && cp -R "$hf/$2" "$T/$1" && LC_ALL=C sed -i "$4" "$T/$1/$3"
}
edit bare gpt2 model.safetensors 's/"transformer\.\([^"]*\)"/            "\1"/g'
ok "gpt2 without its prefix" ckpt-merge import-hf "$T/bare" "$T/bare.in"
ok "gpt2 without its prefix: the same" ckpt-merge diff "$T/bare.in" "$T/gpt2"
h='{"h.1.attn.bias":{"dtype":"BOOL","shape":[1,1],"data_offsets":[0,1]}}'
printf '%b\0\0\0\0\0\0\0%s\1' "\\x$(printf %x ${#h})" "$h" >"$T/bare/masks"
mv "$T/bare/model.safetensors" "$T/bare/rest"
"$list" "$hf/gpt2" | sed '$d; s/ .*//; s/^transformer\.//' |
	jq -Rn '{weight_map: ([inputs | {(.): "rest"}] | add + {"h.1.attn.bias": "masks"})}' \
		>"$T/bare/model.safetensors.index.json"
ok "gpt2 with masks" ckpt-merge import-hf "$T/bare" "$T/masks.in"
ok "gpt2 with masks: the same" ckpt-merge diff "$T/masks.in" "$T/gpt2"

## losses, in whatever type the weights are
train() { # train NAME RUN [SET]... : the loss of the fixtures' ids
	local dir=$T/train-$1 args=() s

	ckpt-merge config "$2" >"$T/$1.cfg"
	for s in shape.seq_length=32 "run.load=\"$2\"" run.finetune=true run.lr=0.0 \
		run.train_iters=1 run.micro_batch_size=2 run.global_batch_size=4 \
		"run.data_path=\"$hf/tokens.bin\"" 'run.split="1,0,0"' "run.dir=\"$dir\"" \
		run.hidden_dropout=0.0 run.attention_dropout=0.0 "${@:3}"; do
		args+=(--set "$s")
	done
	timeout 60 train-worker -q "$T/$1.cfg" "${args[@]}" >"$dir.log" 2>&1 &&
		jq .loss "$dir/metrics.jsonl"
}
near() { # near LOSS NAME
	jq -e --argjson loss "${1:-0}" '(.loss - $loss) | fabs < 1e-5' "$hf/$2/expected.json"
}
# With learned positions their length is part of the model.
ckpt-merge config "$T/gpt2" | sed 's/\bseq_length = .*/seq_length = 32;/' >"$T/short.cfg"
ok "gpt2: import for another length" ckpt-merge import-hf "$hf/gpt2" "$T/short" --config "$T/short.cfg"
ok "gpt2: transformers' loss" near "$(train gpt2 "$T/short")" gpt2
for f in llama2 llama3 mistral mixed qwen2 qwen3 mixtral qwen3_moe deepseek_v2 deepseek_v3 deepseek_v3_whole; do
	ok "$f: transformers' loss" near "$(train "$f" "$T/$f")" "$f"
done
ok "llama2: from TP2 x PP2, in fp64" \
	near "$(train llama2-4 "$T/llama2.tp2pp2" 'spec.params_dtype="fp64"')" llama2

ok "deepseek_v3: from TP2 x PP2, in fp64" \
	near "$(train deepseek-4 "$T/deepseek_v3.tp2pp2" 'spec.params_dtype="fp64"')" deepseek_v3

run train whole "$T/llama2" run.finetune=false
like "without run.finetune: says what is missing" "$(<"$T/train-whole.log")" \
	'it has no m; run.load with run.finetune'

## pairs of channels that lie together
{ ckpt-merge config "$T/llama2" | sed '/^}/d'; echo 'rotary_interleaved = true; };'; } >"$T/pairs.cfg"
ok "pairs: import" ckpt-merge import-hf "$hf/llama2" "$T/pairs" --config "$T/pairs.cfg"
ok "pairs: other weights" test "$(ckpt-merge ls --digest "$T/pairs" | grep qkv)" != \
	"$(ckpt-merge ls --digest "$T/llama2" | grep qkv)"
ok "pairs: the same loss" near "$(train pairs "$T/pairs")" llama2
ok "pairs: export" ckpt-merge export-hf "$T/pairs" "$T/pairs.out"
ok "pairs: the same tensors" same_tensors "$hf/llama2" "$T/pairs.out"
sed 's/num_layers = 2/num_layers = 1/' "$T/pairs.cfg" >"$T/other.cfg"
run ckpt-merge import-hf "$hf/llama2" "$T/none" --config "$T/other.cfg"
is "a config of another model" $rc 4
like "a config of another model: says how" "$err" 'num_layers 2 / 1'

## texts beside the weights
cp -R "$hf/gpt2" "$T/texts"
echo '{"a": 1}' >"$T/texts/tokenizer.json"
echo 'a b' >"$T/texts/merges.txt"
echo 'x' >"$T/texts/notes.txt"
ckpt-merge import-hf "$T/texts" "$T/t1" >"$T/.out" &&
	ckpt-merge reshard "$T/t1" "$T/t2" --set place.tensor_model_parallel_size=2 >"$T/.out" &&
	ckpt-merge export-hf "$T/t2" "$T/t3" >"$T/.out"
for f in tokenizer.json merges.txt generation_config.json; do
	ok "$f goes along" cmp "$T/texts/$f" "$T/t3/$f"
done
ok "notes.txt does not" test ! -e "$T/t3/notes.txt"
is "ids go along" "$(jq .eos_token_id "$T/t3/config.json")" 2

## bad input: a clear error, and nothing is there afterwards
bad() { # bad NAME CODE MESSAGE DIR [OPTION]...
	local before

	before=$(find "$T" -path "$T/.*" -prune -o -print | sort)
	run ckpt-merge import-hf "$4" "$T/none" "${@:5}"
	is "$1: exit code" $rc "$2"
	like "$1: message" "$err" "$3"
	is "$1: nothing is left" "$(find "$T" -path "$T/.*" -prune -o -print | sort)" "$before"
}
model=model.safetensors
bad "no folder" 2 'cannot read it' "$T/nowhere"
edit alone llama2 config.json '' && rm "$T/alone/$model"
bad "no safetensors" 2 'has neither model.safetensors' "$T/alone"
edit cut llama2 config.json '' && truncate -s -4 "$T/cut/$model"
bad "truncated" 4 "offsets are" "$T/cut"
edit miss llama2 $model 's/"lm_head.weight"/"lm_haed.weight"/'
bad "no tensor for a place" 4 "no tensor 'lm_head.weight' for our weight 'head/out'" "$T/miss"
edit layers llama2 config.json 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
bad "no place for a tensor" 4 "tensor 'model.layers.1.[^']*' has no place" "$T/layers"
edit tied llama2 config.json 's/"tie_word_embeddings": false/"tie_word_embeddings": true/'
bad "a tied head that differs" 4 "lm_head.weight' is not the embedding" "$T/tied"
edit vocab llama2 config.json 's/"vocab_size": 97/"vocab_size": 96/'
bad "another shape" 4 "is \(97, 32\), config.json makes it \(96, 32\)" "$T/vocab"
edit type llama2 $model 's/"F32"/"I32"/'
bad "another type" 4 "of type I32; F64, F32, F16 and BF16" "$T/type"
edit twice llama2 $model 's/"model.layers.0.mlp.up_proj.weight"/"model.layers.1.mlp.up_proj.weight"/'
bad "a name twice" 4 'duplicate' "$T/twice"
edit index mistral $model.index.json 's/00001-of/00002-of/'
bad "an index that lies" 4 "is not in model-00002" "$T/index"
edit way mistral $model.index.json 's#model-00001#../model-00001#'
bad "an index that points elsewhere" 4 "the name of a file in the same folder" "$T/way"
edit json llama2 config.json 's/"vocab_size"/vocab_size/'
bad "config.json is no JSON" 2 'not JSON' "$T/json"
mkdir "$T/blocks" && cp "$hf/nemotron-nas.json" "$T/blocks/config.json"
bad "nemotron-nas" 4 "model_type 'nemotron-nas' are not known here, those of gpt2, llama" "$T/blocks"
edit groups deepseek_v2 config.json \
	's/"n_group": 1/"n_group": 4/; s/"topk_group": 1/"topk_group": 2/; s/"greedy"/"group_limited_greedy"/'
bad "groups by their best expert" 3 'topk_group.* has no setting' "$T/groups"
edit depths deepseek_v3 config.json 's/"num_nextn_predict_layers": 0/"num_nextn_predict_layers": 1/'
bad "layers that transformers leaves out" 4 'no tensor of a layer 2, but .* num_nextn_predict_layers 1; 0 there' "$T/depths"
edit copy deepseek_v3_mtp $model 's/layers.2.embed_tokens.weight/layers.2.embed_tokenz.weight/'
bad "no copy of the embedding" 4 "no tensor 'model.layers.2.embed_tokens.weight' for our weight 'embed/tok'" "$T/copy"
edit swapped deepseek_v3_mtp $model \
	's/layers.2.embed_tokens/layers.2.@/; s/layers.2.shared_head.head/layers.2.embed_tokens/; s/layers.2.@/layers.2.shared_head.head/'
bad "a copy that differs" 4 "'model.layers.2.embed_tokens.weight' is not the same as 'model.embed_tokens.weight'" "$T/swapped"
edit scale deepseek_v3_fp8 $model 's/q_a_proj.weight_scale_inv/q_a_proj.weight_scale_lnv/'
bad "no scales" 4 "no tensor 'model.layers.0.self_attn.q_a_proj.weight_scale_inv', the scales of" "$T/scale"
cp -r "$T/llama2.4" "$T/gone" && rm "$T/gone"/model-00002-of-*
bad "a shard that is missing" 4 'cannot open .*/model-00002-of-' "$T/gone"
edit blocks deepseek_v3_fp8 config.json 's/"weight_block_size": \[/"weight_block_size": [0, /'
bad "blocks that are none" 4 "weight_block_size is not two numbers from 1 on" "$T/blocks"
edit method deepseek_v3_fp8 config.json 's/"quant_method": "fp8"/"quant_method": "gptq"/'
bad "another way of 8 bits" 4 "quant_method 'gptq' is not known here, only fp8 is" "$T/method"
edit block deepseek_v3_fp8 config.json 's/ 16/ 8/'
bad "scales of other blocks" 4 'blocks of [0-9]* x [0-9]* make it' "$T/block"
edit halves deepseek_v3 config.json 's/"rope_interleave": true/"rope_interleave": false/'
bad "channels that turn as halves" 3 'rope_interleave' "$T/halves"

run ckpt-merge import-hf "$hf/llama2" "$T/llama2"
is "a complete step in the way: refused" $rc 4
ok "a complete step in the way: --force" ckpt-merge import-hf "$hf/llama2" "$T/llama2" --force
run ckpt-merge import-hf "$hf/llama2" "$T/llama2/step_00000000"
is "into a step: usage" $rc 2
run bash -c 'ulimit -f 40; exec ckpt-merge import-hf "$@"' - "$hf/llama2" "$T/none"
is "a file too large, import: storage" $rc 9
ok "a file too large, import: nothing is left" test ! -e "$T/none"
run bash -c 'ulimit -f 40; exec ckpt-merge export-hf "$@"' - "$T/llama2" "$T/new/none"
is "a file too large, export: storage" $rc 9
ok "a file too large, export: nothing is left" test ! -e "$T/new"
run ckpt-merge export-hf "$T/llama2" "$T/llama2.out"
is "export to a folder with files: refused" $rc 4
like "export to a folder with files: says so" "$err" 'not empty'
mkdir "$T/empty"
ok "export to an empty folder" ckpt-merge export-hf "$T/llama2/step_00000000" "$T/empty/"
cp -R "$T/llama2" "$T/hurt" && printf x |
	dd of="$T/hurt/step_00000000/model/pp00-tp00.h5" bs=1 seek=60000 conv=notrunc 2>"$T/.dd"
run ckpt-merge export-hf "$T/hurt" "$T/hurt.out"
is "export of a damaged step: refused" $rc 4
ok "export of a damaged step: nothing is left" test -z "$(find "$T" -name 'hurt.out*')"
"${TRISECT_BUILD:-build/cpu}/test/x-ckpt" save "$T/mtp" 1 1 f32 shape.num_layers=2 shape.hidden_size=32 \
	shape.num_attention_heads=4 shape.vocab_size=61 shape.seq_length=16 shape.mtp_num_layers=1 \
	shape.position_embedding_type=rope >"$T/.out"
run ckpt-merge export-hf "$T/mtp" "$T/mtp.out"
is "a model of no family: refused" $rc 4
like "a model of no family: says how it differs" "$err" 'no family of gpt2.*differs in.*mtp_num_layers'
"${TRISECT_BUILD:-build/cpu}/test/x-ckpt" save "$T/own" 5 1 f32 shape.num_layers=2 shape.hidden_size=32 \
	shape.num_attention_heads=4 shape.vocab_size=61 shape.seq_length=16 >"$T/.out"
run ckpt-merge export-hf "$T/own" "$T/own.out"
is "a trained model of ours" "$rc $(jq -r .model_type "$T/own.out/config.json")" "0 gpt2"

## matrices that are turned a part at a time
params() { ckpt-merge ls --digest "$1" | awk '$2 == "param" { print $1, $NF }'; }
if [ -z "${TRISECT_LONG:-}" ]; then
	skip "matrices of 82 MB" "make check-long does"
else
	"${TRISECT_BUILD:-build/cpu}/test/x-ckpt" save "$T/big" 1 2 f32 shape.num_layers=2 shape.hidden_size=512 \
		shape.num_attention_heads=4 shape.ffn_hidden_size=40000 shape.vocab_size=61 shape.seq_length=16 \
		place.tensor_model_parallel_size=2 >"$T/.out"
	ckpt-merge export-hf "$T/big" "$T/big.out" >"$T/.out"
	ckpt-merge import-hf "$T/big.out" "$T/big.in" >"$T/.out"
	is "matrices of 82 MB" "$(params "$T/big.in")" "$(params "$T/big")"
	rm -rf "$T"/big*
fi

## transformers itself
python=${PEER_PYTHON:-build/bench/venv/bin/python}
for f in "${families[@]}"; do
	if [ -z "${TRISECT_LONG:-}" ]; then
		skip "$f: transformers loads the export" "make check-long does"
	elif ! "$python" -c 'import torch, transformers' 2>"$T/.out"; then
		skip "$f: transformers loads the export" "no transformers: make hf-golden"
	else
		ok "$f: transformers loads the export" \
			"$python" test/hf-golden.py check "$hf/$f" "$T/$f.4"
	fi
done

done_testing
