#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The units, and one run of each program, built with the address and
# undefined-behaviour sanitizers.
# shellcheck source=test/lib.sh
. test/lib.sh

[ -n "${TRISECT_LONG:-}" ] || skip_all "sanitizer variant: check-long only"
build=build/cpu-address-undefined
# Open MPI, PMIx and libconfig keep what they once allocated.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
unset TRISECT_LONG MAKEFLAGS
ok "builds" make --no-print-directory SAN=address,undefined -j2 test-programs
for unit in test/u-*.c; do
	name=$(basename "$unit" .c)
	ok "$name" env TRISECT_BUILD="$TOP/$build" "$build/test/$name"
done

PATH=$TOP/$build/bin:$PATH
set1=place.tensor_model_parallel_size=2 set2=place.sequence_parallel=true
ok "cfg-finalize" cfg-finalize --world 4 etc
for file in test/data/hf/llama-3-8b.json etc/demo.cfg; do
	ok "cfg-finalize --classify $file" cfg-finalize --classify "$file"
done
ok "cfg-finalize diff" cfg-finalize diff etc/gpt2-124M.cfg test/data/hf/gpt2.json
printf '#!/bin/sh\n' >"$T/job"
ok "cfg-finalize --seal" cfg-finalize --world 4 --seal "$T/job" etc/demo.cfg
ok "cfg-finalize --suggest" cfg-finalize --suggest --world 512 --from hf \
	--set run.global_batch_size=512 test/data/hf/deepseek-v3.json
ok "cfg-finalize --gpu-memory" cfg-finalize --world 4 --gpus-per-node 2 \
	--gpu-memory 80G etc/llama3-8B.cfg
ok "cfg-finalize --junit" cfg-finalize --junit "$T/report.xml" etc
ok "stage-build" stage-build --world 4 --svg "$T/map.svg" --json etc/demo.cfg
for model in llama gpt2 mla own; do
	ok "train-worker, $model" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		mpirun --oversubscribe -n 4 train-worker test/data/layouts/$model.cfg \
		--set "run.dir=\"$T/$model\"" --set $set1 --set $set2 \
		--set run.hidden_dropout=0.1 --set run.attention_dropout=0.1 \
		--set place.pipeline_model_parallel_size=2 --set run.save_interval=5
	ok "ckpt-merge reshard, $model" ckpt-merge reshard "$T/$model" "$T/$model-1" \
		--world 1 --set place.tensor_model_parallel_size=1 \
		--set place.sequence_parallel=false --set place.pipeline_model_parallel_size=1
	ok "ckpt-merge diff, $model" ckpt-merge diff "$T/$model" "$T/$model-1"
	ok "train-worker resumes, $model" train-worker test/data/layouts/$model.cfg \
		--set "run.dir=\"$T/$model-1\"" --set run.train_iters=7
done
for model in gpt2 mistral qwen3_moe deepseek_v3_fp8; do
	ok "ckpt-merge import-hf, $model" ckpt-merge import-hf test/data/hf/$model "$T/in-$model"
	ok "ckpt-merge export-hf, $model" ckpt-merge export-hf "$T/in-$model" "$T/out-$model"
done
done_testing
