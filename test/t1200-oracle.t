#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Placement against brute force (test/oracle.h): 2,000 random configs, 200,000
# with TRISECT_LONG; the programs against what the oracle is asked of; and that
# it notices when any one rule of lib/plan is another.
# shellcheck source=test/lib.sh
. test/lib.sh

build=${TRISECT_BUILD:-$TOP/build/cpu}
oracle=$build/test/x-oracle place=$build/test/x-place
each=1000 seeds='1 2'
[ -z "${TRISECT_LONG:-}" ] || each=100000

for seed in $seeds; do
	"$oracle" "$place" $each "$seed" >"$T/seed$seed" &
	jobs+=($!)
done
for seed in $seeds; do
	wait "${jobs[$((seed - 1))]}"
	is "$each configs as by brute force, seed $seed" $? 0
	sed 's/^/# /' "$T/seed$seed"
done

# the programs say what x-place says
"$oracle" - 60 3 >"$T/in" && "$place" "$T/in" >"$T/place"
n=0
mkdir "$T/cfg"
while read -r world text; do
	echo "$text run: { micro_batch_size = 1; global_batch_size = 576; train_iters = 5;
		lr = 0.1; data_path = \"x\"; };" >"$T/cfg/$n.cfg"
	echo "$T/cfg/$n.cfg" >>"$T/world.$world"
	n=$((n + 1))
done <"$T/in"
for list in "$T"/world.*; do
	cfg-finalize --json --world "${list##*.}" "@$list"
done | jq -r '"\(.file | sub(".*/"; "") | sub("[.]cfg"; "")) ids " + ([.findings[] |
	select(.severity == "error") | .id | select(startswith("place-"))] |
	join(" "))' | sort -n | cut -d' ' -f2- | sed 's/ *$//' >"$T/said"
is "there is something to say" "$(grep -c ^ids "$T/place")" 60
is "cfg-finalize refuses the same" "$(<"$T/said")" "$(grep ^ids "$T/place")"

# table NUMBER: stages and ranks, as x-place prints them
table() {
	awk -v n="$1" '$0 == "." { i++ } i == n && /^(stage|rank)/' "$T/place"
}
shown=0 n=0
while read -r world text && [ $shown -lt 6 ]; do
	if stage-build --json --world "$world" "$T/cfg/$n.cfg" >"$T/json" 2>"$T/err"; then
		is "stage-build has the same stages and ranks, config $n" "$(jq -r '(
			.stages[] | "stage \(.pp) \(.vp) \(.first_layer) \(.num_layers)" +
			" \([.embedding, .final_norm] | map(if . then 1 else 0 end) | join(" "))" +
			" \(.mtp_layers)" +
			" \([.output_head, .loss] | map(if . then 1 else 0 end) | join(" "))"),
			(.ranks[] | "rank \(.tp) \(.cp) \(.dp) \(.pp) \(.ep) \(.etp) \(.edp)")
			' "$T/json")" "$(table $n)"
		shown=$((shown + 1))
	fi
	n=$((n + 1))
done <"$T/in"
is "stage-build was asked" $shown 6

# What follows builds without sanitizers.
[[ $build != *-address* ]] || { done_testing && exit; }

# A rule that is another: FILE and the sed that changes it.
mutants=(
	"stage s/c->counts\[0\] -= e;/c->counts[0] -= 0;/"
	"grid s/world % expert)/world % dense)/"
	"place_check s/groups % tp \&\& tp % groups/groups % tp/"
	"stage s/rest < 0 ||//"
	"stage s/.final_norm = c->mtp ? end : last/.final_norm = last/"
	"stage s/(c->pp > 1 && i % c->pp == 0)/false/"
	"stage s#i / c->pp != c->vp - 1#false#"
	"stage s/f % c->vp ||//"
	"stage s/seen \&\& \*t == 't'/false/"
	"stage s/(tied \&\& st/(st/"
	"grid s/g->pp_before_dp \&\& g->pp > 1/false/"
	"grid s/\[4\] = AXIS_PP/[4] = AXIS_DP/"
	"grid s/inner \* (g->pp_before_dp ? g->pp : 1)/inner/"
	"place_check s/(2 \* cp)) {/cp) {/"
	"place_check s/length \/ cp % tp/length % tp/"
	"place_check s/experts % ep)/0 \&\& experts % ep)/"
	"place_check s/apart == p->mtp_standalone/apart/"
	"place_mem_check s/n <= most/n < most/"
	"place_mem_check s/ \&\& g.edp % n == 0//"
	"place s/vocab_size + unit - 1/vocab_size + unit/"
	"place s/slots \/ pp \/ per_chunk/slots \/ per_chunk/"
	"place s/i % pp != pp - 1/i % pp == pp - 1/"
	"layout s/if (!\*times)/if (0)/"
	"layout s/i = 1; i < times/i = 0; i < times/"
	"shape_count s/layer % freq->item\[0\] == 0/layer % freq->item[0] == 1/"
)
[ -n "${TRISECT_LONG:-}" ] || mutants=("${mutants[@]:0:3}")
for mutant in "${mutants[@]}"; do
	file=lib/plan/${mutant%% *}.c edit=${mutant#* }
	sed "$edit" "$file" >"$T/mutant.c"
	if cmp -s "$file" "$T/mutant.c"; then
		ok "$mutant: changes the rule" false
		continue
	fi
	ok "$mutant: builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -I. -O1 -o "$T/x-mutant" \
		"$build/test/x-place.o" "$T/mutant.c" "$build/libplan.a" \
		-lconfig -ljansson -lyaml -lxxhash -lm
	run "$oracle" "$T/x-mutant" 20000 1
	is "$mutant: is noticed" $rc 1
done
done_testing
