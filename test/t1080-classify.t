#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --classify: whose question each setting answers, and where a
# place gets into the rest.
# shellcheck source=test/lib.sh
. test/lib.sh

# asks NAME: the question and what it becomes, by the JSON in $out
asks() {
	jq -r --arg name "$1" 'select(.given == $name) |
		[.question, .becomes // "-"] | join(" ")' <<<"$out"
}

# Megatron
cat >"$T/m.sh" <<'SH'
python pretrain_gpt.py --num-layers 8 --hidden-size 96 --swiglu \
  --num-attention-heads 8 --num-query-groups 4 --tensor-model-parallel-size 2 \
  --bf16 --lr 1e-3 --save /x --log-params-norm --no-such-flag 3 --rampup-batch-size 2 2 2 \
  --make-vocab-size-divisible-by 64 --group-query-attention --sequence-parallel
SH
run cfg-finalize --classify --from megatron --json "$T/m.sh"
is "--classify exits 0" $rc 0
is "a line a setting" "$(wc -l <<<"$out")" 15
is "a shape" "$(asks --num-layers)" "shape shape.num_layers = 8"
is "one that is two" "$(asks --swiglu)" \
	'shape shape.gated_linear_unit = true, shape.activation_func = "silu"'
is "a spec" "$(asks --bf16)" 'spec spec.params_dtype = "bf16"'
is "a place" "$(asks --tensor-model-parallel-size)" "place place.tensor_model_parallel_size = 2"
is "a run" "$(asks --lr)" "run run.lr = 0.001"
is "a run without a setting" "$(asks --rampup-batch-size)" "run -"
is "a path of the run" "$(asks --save)" "run run.dir"
is "none of them" "$(asks --log-params-norm)" "none -"
is "not known" "$(asks --no-such-flag)" "unknown -"
is "a flag that lets another count" "$(asks --group-query-attention)" "shape shape.num_query_groups"
is "what a place gets into" "$(jq -r 'select(.polluted) | .given' <<<"$out" | xargs)" \
	"--num-query-groups --make-vocab-size-divisible-by"
run cfg-finalize --classify --from megatron "$T/m.sh"
like "a table by question" "$out" "^shape
    1  --num-layers .* 8  .*shape.num_layers = 8
.*
spec
.*
place
.*
run
.*
none
.*
unknown
    3  --no-such-flag .*
where a place gets into the rest
  --num-query-groups: with fewer groups than tp Megatron cuts"
like "with a sum below" "$(tail -n1 <<<"$out")" \
	"m.sh: 15 settings given: 6 shape, 1 spec, 3 place, 3 run, 1 none, 1 unknown"
sed -i 's/--group-query-attention//; s/-size 2/-size 1/' "$T/m.sh"
run cfg-finalize --classify --from megatron "$T/m.sh"
like "what Megatron corrects keeps its question" "$out" \
	"^shape.*--num-query-groups .*\(Megatron ignores it without.*spec.*place.*--sequence-parallel .*\(Megatron turns it off.*run"
total=0
for file in test/data/megatron/*.yaml; do
	cfg-finalize --classify --json --from megatron "$file" >"$T/json" &&
		total=$((total + $(grep -c '"question":"unknown"' "$T/json")))
done
is "nothing in real configs is unknown" $total 0

# Hugging Face
sed 's/"vocab_size"/"device_map": "auto", "attn_implementation": "sdpa", "odd": 3, &/' \
	test/data/hf/deepseek-v3.json >"$T/config.json"
run cfg-finalize --classify --json "$T/config.json"
is "config.json is told by its ending" $rc 0
is "HF: a shape" "$(asks hidden_size)" "shape shape.hidden_size = 7168"
is "HF: one that the family reads" "$(asks norm_topk_prob)" "shape -"
is "HF: a key inside of another" "$(asks rope_scaling.factor)" "shape shape.rotary_scaling_factor = 40.0"
is "HF: a spec" "$(asks attn_implementation)" "spec spec.attention_backend"
is "HF: torch_dtype" "$(asks torch_dtype)" 'spec spec.params_dtype = "bf16"'
is "HF: a spec's details" "$(asks quantization_config.fmt)" "spec spec.fp8"
is "HF: a place" "$(asks device_map)" "place place.pipeline_model_parallel_layout"
is "HF: a place that is in every such file" "$(asks ep_size)" "place place.expert_model_parallel_size"
is "HF: none" "$(asks bos_token_id)" "none -"
is "HF: unknown" "$(asks odd)" "unknown -"
total=0
for file in test/data/hf/*.json; do
	cfg-finalize --classify --json "$file" >"$T/json" &&
		total=$((total + $(grep -c '"question":"unknown"' "$T/json")))
done
is "HF: nothing of the families is unknown" $total 0

# vLLM
cat >"$T/serve.sh" <<'SH'
#!/bin/sh
vllm serve meta-llama/Llama-3.1-8B -tp 8 --pipeline_parallel_size=2 \
  --enable-expert-parallel --dtype bfloat16 --kv-cache-dtype fp8 -O3 \
  --hf-overrides '{"a": 1}' --max-model-len 8192 --no-enable-prefix-caching \
  --compilation-config.mode 3 --port 80 --max-num-seqs 4 --nonsense 3 --seed -1
SH
run cfg-finalize --classify --from vllm --json "$T/serve.sh"
is "vLLM: exits 0" $rc 0
is "vLLM: the model" "$(jq -r 'select(.given == "model") | .value' <<<"$out")" "meta-llama/Llama-3.1-8B"
is "vLLM: a short option" "$(asks -tp)" "place place.tensor_model_parallel_size"
is "vLLM: underscores and =" "$(jq -r 'select(.given == "--pipeline_parallel_size") | .value' <<<"$out")" 2
is "vLLM: places" "$(jq -r 'select(.question == "place") | .given' <<<"$out" | xargs)" \
	"-tp --pipeline_parallel_size --enable-expert-parallel"
is "vLLM: specs" "$(jq -r 'select(.question == "spec") | .given' <<<"$out" | xargs)" \
	"--dtype --kv-cache-dtype -O3 --compilation-config.mode"
is "vLLM: shapes" "$(jq -r 'select(.question == "shape") | .given' <<<"$out" | xargs)" \
	"model --hf-overrides --max-model-len"
is "vLLM: runs" "$(jq -r 'select(.question == "run") | .given' <<<"$out" | xargs)" \
	"--no-enable-prefix-caching --max-num-seqs --seed"
is "vLLM: none and unknown" "$(jq -r 'select(.question | test("n(one|known)")) | .given' <<<"$out" | xargs)" \
	"--port --nonsense"
is "vLLM: a value below zero is no option" "$(jq -r 'select(.given == "--seed") | .value' <<<"$out")" "-1"
printf '%s\n' 'model: x' 'tensor_parallel_size: 8' 'hf_overrides: {a: [1, {b: c}]}' \
	'enforce-eager: true' 'served-model-name: [a, b]' >"$T/vllm.yaml"
run cfg-finalize --classify --from vllm --json "$T/vllm.yaml"
is "vLLM: YAML" "$(jq -r '.question' <<<"$out" | xargs)" "shape place shape spec none"
sed -n '/ vllm\[\]/,/^};/s/^\t{"\([^"]*\)".*/--\1/p' lib/plan/classify_table.c >"$T/all.args"
run cfg-finalize --classify --from vllm "$T/all.args"
like "vLLM: every row of the table is found" "$(tail -n1 <<<"$out")" \
	": 1[0-9][0-9] settings given: .*, 0 unknown"

# our own
run cfg-finalize --classify --json etc/demo.cfg
is "our own: included files, too" "$(asks shape.num_layers)" "shape shape.num_layers"
is "only what is given" "$(asks shape.qk_layernorm)" ""
printf 'shape: { num_layers = 4; seed = 3; what = 1; };' >"$T/own.cfg"
run cfg-finalize --classify --json "$T/own.cfg"
is "a setting in the wrong group has its own question" "$(asks run.seed)" "run run.seed"
is "one that is not known" "$(asks shape.what)" "unknown -"

# usage
run cfg-finalize --classify "$T/none.cfg" "$T/own.cfg"
is "an unreadable one exits 2" $rc 2
like "the others are sorted" "$out" "own.cfg: 3 settings"
run cfg-finalize --from vllm "$T/serve.sh"
is "engine arguments are no config" $rc 2
like "which is said" "$err" "--from vllm goes with --classify only"
: >"$T/empty.args"
run cfg-finalize --classify --from vllm "$T/empty.args"
is "an empty file exits 2" $rc 2
head -c 100000 /dev/zero | tr '\0' '[' >"$T/deep.yaml"
run timeout 10 cfg-finalize --classify --from vllm "$T/deep.yaml"
is "deep nesting exits 2" $rc 2
{ echo 'a:' && head -c 100000 /dev/zero | tr '\0' '['; } >"$T/deep.yaml"
run timeout 10 cfg-finalize --classify --from vllm "$T/deep.yaml"
is "so does it below a key" $rc 2
printf 'a: \377\n' >"$T/bytes.yaml"
run cfg-finalize --classify --from vllm "$T/bytes.yaml"
is "bytes that are no text exit 2" $rc 2
done_testing
