#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Make the tiny models of test/data/hf anew.
#
#   PEER_PYTHON  a python with torch and transformers (default: a private
#                environment in build/bench, made from the package index)
set -eu
bench=$PWD/build/bench
python=${PEER_PYTHON:-$bench/venv/bin/python}
if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
	echo "making $bench/venv with torch and transformers"
	python3 -m venv "$bench/venv"
	"$bench/venv/bin/pip" install -q torch numpy safetensors transformers
fi
exec "$python" test/hf-golden.py make "${1:-test/data/hf}"
