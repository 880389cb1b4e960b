#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rooms: who may include whom, and what the login-node programs link.
# shellcheck source=test/lib.sh
. test/lib.sh


# includes DIR... : the rooms that files of these folders include
includes() {
	grep -hoE '^#include "[a-z0-9/_.-]+"' "$@" | sed -E 's/.*"(.*)"/\1/' | sort -u
}

none() { # none NAME PATTERN FILES... : no include matches
	local name=$1 pattern=$2
	shift 2
	is "$name" "$(includes "$@" | grep -E "$pattern" || true)" ""
}

none "base includes only base" '^(lib/(plan|train)|kernels|ckpt)/' lib/base/*.[ch]
none "kernels include only kernels and base" '^(lib/(plan|train)|ckpt)/' kernels/*.[ch]
none "plan knows nothing of train, ckpt or the CPU's kernels" \
	'^(lib/train|ckpt)/|^kernels/(kern_cpu|vmath|drop|gemm)' lib/plan/*.[ch]
none "ckpt knows nothing of train" '^(lib/train|kernels)/' ckpt/*.[ch]
for a in shape spec place; do
	none "$a.h includes neither of the other two" \
		'^lib/plan/(shape|spec|place)\.h' lib/plan/$a.h
done
is "only h5.c includes hdf5.h" "$(grep -lE '^#include <hdf5' -r bin lib kernels ckpt)" "ckpt/h5.c"
is "mpi.h stays in one file" "$(grep -lE '^#include <mpi' -r bin lib kernels ckpt)" "lib/train/comm_mpi.c"

for p in cfg-finalize stage-build; do
	libs=$(ldd "$BIN/$p")
	is "$p links no CUDA, MPI, PMIx or HDF5" \
		"$(grep -E 'cuda|cublas|nccl|mpi|pmix|hdf5' <<<"$libs" || true)" ""
done
done_testing
