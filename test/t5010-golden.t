#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The goldens' gradients on every rank of layouts, within 1e-12: what is drawn
# at random is the same there, and what is cut has its part.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

helper=${TRISECT_BUILD:-build/cpu}/test/x-golden
tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
ep=place.expert_model_parallel_size sp=place.sequence_parallel=true
layout=place.pipeline_model_parallel_layout

while read -r -u 3 name variants world sets; do
	read -r -a words <<<"$sets"
	for variant in ${variants//,/ }; do
		run timeout -k 5 120 mpirun --oversubscribe -n "$world" "$helper" \
			"$variant" "${words[@]}"
		is "$variant, $name: the same gradients" "$rc" 0
		printf '# %s\n' "${out//$'\n'/$'\n# '}"
	done
done 3<<EOT
tp2 hsm-llama,hsm-two,hsm-docs,mtp-llama-tied,moe-jitter-mtp,moe-add-bias,moe-add-bias-mtp 2 $tp=2
tp2-sp hsm-llama,hsm-repeated,hsm-detached,hsm-docs,moe-jitter-mtp,moe-add-bias,moe-add-bias-mtp 2 $tp=2 $sp
tp4-sp hsm-two,hsm-docs,moe-add-bias,moe-jitter 4 $tp=4 $sp
dp2 hsm-llama,hsm-docs,moe-jitter-mtp 2
pp2 hsm-two,hsm-repeated,hsm-detached,moe-add-bias-mtp 2 $pp=2
alone hsm-llama,hsm-docs 3 $pp=3 $layout="Ett|mmm|L"
alone-tied hsm-repeated 3 $pp=3 $layout="Ett|mmm|L"
alone-sp hsm-llama,hsm-docs 6 $pp=3 $tp=2 $sp $layout="Ett|mmm|L"
small-last mtp-llama-tied 6 $pp=3 $tp=2 $layout="Ett|mm|L"
vp hsm-two 2 $pp=2 $layout="E|t|t|mmL"
ep2 moe-jitter,moe-add-bias 2 $ep=2
ep2-tp2 moe-jitter-mtp,moe-add-bias-mtp 4 $ep=2 $tp=2 $sp
EOT
done_testing
