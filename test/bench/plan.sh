#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How long the plan tools take and how much memory, beside what is wanted of
# them: thousands of configs, placements for 4096 ranks, and a plan of 16,384.
set -eu
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT

# timed WANT_S WANT_MIB TEXT COMMAND...: a WANT of 0 is none
timed() {
	python3 - "$@" <<-'END'
	import resource, subprocess, sys, time
	want_s, want_mib, text = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
	begin = time.monotonic()
	code = subprocess.run(sys.argv[4:], stdout=subprocess.DEVNULL).returncode
	s = time.monotonic() - begin
	mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
	good = code == 0 and s <= want_s and (not want_mib or mib <= want_mib)
	wanted = f"{want_s:.0f} s" + (f", {want_mib:.0f} MiB" if want_mib else "")
	print(f"{text:<52} {s:6.2f} s {mib:6.0f} MiB   wanted {wanted}: "
	      + ("ok" if good else f"NO, exit code {code}"), flush=True)
	END
}

mkdir "$t/many" "$t/final" "$t/hf"
cat >"$t/40.cfg" <<'END'
shape: { num_layers = 8; hidden_size = 96; ffn_hidden_size = 256; num_attention_heads = 8;
  num_query_groups = 4; kv_channels = 12; vocab_size = 256; seq_length = 64;
  max_position_embeddings = 64; position_embedding_type = "rope"; rotary_base = 10000.0;
  normalization = "RMSNorm"; layernorm_epsilon = 1e-5; gated_linear_unit = true;
  activation_func = "silu"; add_bias_linear = false; };
spec: { params_dtype = "fp32"; device = "cpu"; };
place: { tensor_model_parallel_size = 2; pipeline_model_parallel_size = 2;
  sequence_parallel = true; use_distributed_optimizer = true;
  make_vocab_size_divisible_by = 16; num_layers_in_first_pipeline_stage = 3; };
run: { micro_batch_size = 2; global_batch_size = 32; train_iters = 10; lr = 1e-3;
  min_lr = 1e-4; lr_decay_style = "cosine"; lr_warmup_iters = 2; weight_decay = 0.1;
  adam_beta1 = 0.9; adam_beta2 = 0.95; adam_eps = 1e-8; clip_grad = 1.0; hidden_dropout = 0.0;
  attention_dropout = 0.0; data_path = "x"; seed = 1; };
END
cfg-finalize -o "$t/final.cfg" "$t/40.cfg" >/dev/null
for ((i = 0; i < 10000; i++)); do
	sed "s/seed = 1/seed = $i/" "$t/40.cfg" >"$t/many/$i.cfg"
	cp "$t/final.cfg" "$t/final/$i.cfg"
done
i=0
while [ $i -lt 1000 ]; do
	for file in test/data/hf/*.json; do
		mkdir "$t/hf/$i"
		cp "$file" "$t/hf/$i/config.json"
		i=$((i + 1))
	done
done

timed 2 0 "cfg-finalize, 10,000 files of $(grep -o ' = ' "$t/40.cfg" | wc -l) settings, -j 2" \
	cfg-finalize --world 4 -j 2 "$t/many"
timed 5 0 "cfg-finalize, 10,000 finalised files, -j 2" \
	cfg-finalize --world 4 -j 2 "$t/final"
timed 1 0 "cfg-finalize, $i config.json, -j 2" \
	cfg-finalize --from hf -j 2 "$t/hf"
for model in llama-3-70b mixtral-8x7b deepseek-v3; do
	timed 2 0 "cfg-finalize --suggest, world 4096, $model" \
		cfg-finalize --suggest --world 4096 --gpu-memory 80G --from hf \
		--set run.global_batch_size=4096 "test/data/hf/$model.json"
done
timed 2 256 "stage-build, 16,384 ranks as tp8 pp16 vp2, JSON" \
	stage-build --world 16384 --json etc/llama3-8B.cfg \
	--set place.tensor_model_parallel_size=8 \
	--set place.pipeline_model_parallel_size=16 \
	--set place.virtual_pipeline_model_parallel_size=2 \
	--set run.micro_batch_size=1 --set run.global_batch_size=4096
