#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize diff: which questions two configs answer differently, and what
# a job of the second makes of the first one's checkpoints.
# shellcheck source=test/lib.sh
. test/lib.sh

base=test/data/whole.inc

# variant NAME SED: the base, changed
variant() { sed "$2" $base >"$T/$1.cfg"; }

# differs GROUP: how that group is summed up in $out
differs() { grep -m1 "^$1: " <<<"$out"; }

cp $base "$T/a.cfg"
run cfg-finalize diff "$T/a.cfg" "$T/a.cfg"
is "a config and itself: exit 0" $rc 0
is "nothing differs" "$(grep -c ': the same$' <<<"$out")" 4
like "and its own checkpoints load" "$out" "B goes on from A's checkpoints$"

variant explicit 's/num_layers = 8;/num_layers = 8; layernorm_epsilon = 1e-5; kv_channels = 12;/'
run cfg-finalize diff "$T/a.cfg" "$T/explicit.cfg"
is "an explicit default equals one that is absent: exit 0" $rc 0
is "nothing differs" "$(grep -c ': the same$' <<<"$out")" 4

variant place 's/tensor_model_parallel_size = 2/tensor_model_parallel_size = 1/'
run cfg-finalize diff --world 4 "$T/a.cfg" "$T/place.cfg"
is "another place: exit 0" $rc 0
is "the shape is the same" "$(differs shape)" "shape: the same"
like "the setting has both values and who said them" "$out" \
	"  tensor_model_parallel_size
      A  2  given: $T/a.cfg:17
      B  1  given: $T/place.cfg:17"
like "what follows from it is there, too" "$out" "expert_tensor_parallel_size
      A  2  derived: tensor_model_parallel_size"
like "checkpoints are resharded" "$out" \
	"B goes on from A's checkpoints.*place: any layout loads any other"

variant shape 's/hidden_size = 96/hidden_size = 192/'
run cfg-finalize diff "$T/a.cfg" "$T/shape.cfg"
is "another shape: exit 1" $rc 1
like "both hashes are said" "$out" "A  .* shape ([0-9a-f]{32}).*B  .* shape ([0-9a-f]{32})"
like "and no checkpoint loads" "$out" "B cannot load A's checkpoints"

variant length 's/seq_length = 64/seq_length = 128/'
run cfg-finalize diff "$T/a.cfg" "$T/length.cfg"
is "the length of samples under rope makes no other model" $rc 0
like "which is said" "$out" "seq_length \(makes no other model\)"
like "and what it does" "$out" "shape.seq_length: other samples come"
sed -i 's/"rope"/"learned_absolute"/' "$T/a.cfg" "$T/length.cfg"
run cfg-finalize diff "$T/a.cfg" "$T/length.cfg"
is "with learned positions it does" $rc 1
cp $base "$T/a.cfg"

variant half '$ a spec: { params_dtype = "bf16"; };'
run cfg-finalize diff "$T/a.cfg" "$T/half.cfg"
is "another precision is the same shape" $rc 0
like "without master weights only the weights load" "$out" \
	"B takes the weights of A's checkpoints, and no more
.*fp32\" have no master weights, a job in \"bf16\" wants some: run.load with run.finetune"
run cfg-finalize diff "$T/half.cfg" "$T/a.cfg"
like "nor the other way" "$out" "bf16\" have float32 master weights, a job in \"fp32\" wants none"
run cfg-finalize diff --set spec.params_dtype=bf16 "$T/half.cfg" "$T/a.cfg"
is "--set goes for both" "$(differs spec)" "spec: the same"
variant double '$ a spec: { params_dtype = "fp64"; };'
run cfg-finalize diff "$T/a.cfg" "$T/double.cfg"
like "fp32 is converted" "$out" "B goes on from.*converted from \"fp32\" to \"fp64\""

variant sgd 's/lr = 1e-3/lr = 1e-3; optimizer = "sgd"/'
run cfg-finalize diff "$T/a.cfg" "$T/sgd.cfg"
like "another optimizer has other state" "$out" \
	"and no more.*run.optimizer: the state of \"adam\" is none of \"sgd\""
variant run 's/lr = 1e-3/lr = 2e-3; seed = 7/; s/text.txt/other.txt/; s/batch_size = 32/batch_size = 64/'
run cfg-finalize diff "$T/a.cfg" "$T/run.cfg"
like "what a change of run means" "$out" \
	"run.data_path: other samples.*run.seed: .*another order.*run.global_batch_size: .*run.lr: the learning rate"

variant bad 's/num_query_groups = 4/num_query_groups = 3/'
run cfg-finalize diff "$T/a.cfg" "$T/bad.cfg"
is "an invalid one is compared all the same" $rc 1
like "and said to be" "$err" "bad.cfg is invalid"
run cfg-finalize diff --set shape.num_query_groups=3 "$T/a.cfg" "$T/bad.cfg"
like "no job starts with it" "$out" "no job starts with it"

# other people's files
cat >"$T/m.sh" <<'SH'
python pretrain_gpt.py --num-layers 8 --hidden-size 96 --ffn-hidden-size 256 \
  --num-attention-heads 8 --group-query-attention --num-query-groups 4 \
  --seq-length 64 --max-position-embeddings 64 --position-embedding-type rope \
  --normalization RMSNorm --swiglu --disable-bias-linear \
  --untie-embeddings-and-output-weights --micro-batch-size 2 --bf16
SH
sed 's/add_bias_linear = false;/& share_embeddings_and_output_weights = false;/' $base >"$T/untied.cfg"
run cfg-finalize diff "$T/m.sh" "$T/untied.cfg"
is "a script is told by its ending; an unknown vocabulary is taken to be the other's" $rc 0
like "which is said" "$out" "if A's vocabulary is 256, too \(--vocab-size\)"
run cfg-finalize diff "$T/m.sh" "$T/m.sh"
like "if neither is known" "$out" "if their vocabularies are the same"
run cfg-finalize diff --vocab-size 300 "$T/m.sh" "$T/m.sh"
like "--vocab-size says it" "$out" "shape [0-9a-f]{32}.*B goes on from A's checkpoints$"
cp "$T/m.sh" "$T/noending" && sed -i '1i #!/bin/sh' "$T/noending"
run cfg-finalize diff "$T/noending" "$T/m.sh"
is "or by its first line" $rc 0
run cfg-finalize diff test/data/hf/gpt2.json etc/gpt2-124M.cfg
is "GPT-2 and GPT-2 are one shape" $rc 0
cp test/data/hf/gpt2.json "$T/config"
run cfg-finalize diff "$T/config" etc/gpt2-124M.cfg
is "JSON is told by its first character" $rc 0
run cfg-finalize diff --from hf etc/gpt2-124M.cfg test/data/hf/gpt2.json
is "--from is for both" $rc 2

# JSON
run cfg-finalize diff --json --world 4 "$T/a.cfg" "$T/place.cfg"
is "one JSON object" "$(jq -r '[.same_shape, .loads, .a.world, .b.valid] | @csv' <<<"$out")" \
	"true,true,4,true"
is "its rows" "$(jq -r '.differences[] | select(.setting == "tensor_model_parallel_size") |
	[.question, .a, .b, .other_model] | @csv' <<<"$out")" '"place","2","1",false'

# usage
run cfg-finalize diff "$T/a.cfg"
is "one config exits 2" $rc 2
run cfg-finalize diff "$T/a.cfg" "$T/none.cfg"
is "one that cannot be read exits 2" $rc 2
like "and is named" "$err" "none.cfg: cannot read it"
run cfg-finalize diff --help
like "diff has a help of its own" "$out" "cfg-finalize diff \[OPTION\]... A B"
done_testing
