#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuDNN's attention planned and compiled for a described H200, without a GPU.
# shellcheck source=test/lib.sh
. test/lib.sh

command -v nvcc >/dev/null || skip_all "no nvcc on this machine"
ldd "$BIN/train-worker" | grep -q libcudart || skip_all "built without CUDA"
run make -s gpu-plan
[[ $out =~ '# SKIP '(.*) ]] && skip_all "${BASH_REMATCH[1]}"
like "the engines compile" "$out" '1\.\.[1-9][0-9]*$'
is "and take the workspace that is planned" \
	"$(grep -E '^(not ok|Bail)' <<<"$out" || true)" ""
is "with success" "$rc" 0
done_testing
