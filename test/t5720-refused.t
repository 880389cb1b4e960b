#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What no spec serves is refused by its name, with what it would need.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

# refused MODEL NAME NEEDS SET...
refused() {
	local model=$1 name=$2 needs=$3

	shift 3
	worker "$T/run" "$model" 1 "$@"
	is "$name exits 3" $? 3
	like "$name is named, with what it needs" "$(<"$T/run.log")" "$name.*$needs"
	ok "$name: nothing is written" test ! -e "$T/run"
}
variant=shape.experimental_attention_variant
delta=(shape.linear_attention_freq=4 shape.linear_num_key_heads=2 shape.linear_num_value_heads=4)
refused llama '"gdn" is not run yet' 'a scan of the gated delta rule' "$variant=\"gdn\"" "${delta[@]}"
refused llama '"gdn2" is not run yet' 'gates for each channel' "$variant=\"gdn2\"" "${delta[@]}"
refused mla '"dsa" is not run yet' 'an indexer beside latent attention' "$variant=\"dsa\"" \
	shape.dsa_indexer_n_heads=2 shape.dsa_indexer_head_dim=16 shape.dsa_indexer_topk=4
refused llama restore_modelopt_state 'ranges of its quantisers' spec.restore_modelopt_state=true
done_testing
