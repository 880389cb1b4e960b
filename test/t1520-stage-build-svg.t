#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stage-build --svg: well-formed, self-contained, complete.
. test/lib.sh

d=test/data/stage
unset SLURM_NTASKS

# Tags that close in order, quoted attributes, no bare & or <.
well_formed() {
	perl -0777 -e '
		$_ = <>; my @open;
		while (/\G(?:([^<>&]|&(?:amp|lt|gt);)+|<(\/?)(\w+)((?: [\w-]+="[^"<&]*")*)(\/?)>)/gc) {
			next unless defined $3;
			if ($2) { (pop(@open) // "") eq $3 or die "</$3> closes nothing\n" }
			elsif (!$5) { push @open, $3 }
		}
		die "wrong at ", pos() // 0, "\n" if (pos() // 0) != length;
		die "@open left open\n" if @open;
	' "$1"
}

draw() { # NAME WORLD ARG...
	local name=$1 world=$2

	shift 2
	run stage-build --world "$world" --svg "$T/x.svg" "$@"
	is "$name: exit 0" "$rc" 0
	ok "$name: well-formed" well_formed "$T/x.svg"
	if command -v xmllint >/dev/null; then
		ok "$name: XML" xmllint --noout --nonet "$T/x.svg"
	fi
	is "$name: nothing from elsewhere" \
		"$(grep -cE 'href|url\([^#]|<script|<image|<style' "$T/x.svg")" 0
	is "$name: nothing outside of the page" "$(awk '
		/^<svg/ { split($0, q, "\""); w = q[4]; h = q[6] }
		/^<(rect|text) x=/ { split($0, q, "\""); if (q[2] > w || q[4] > h) print }
		' "$T/x.svg")" ""
}

has() { # NAME ERE
	ok "$1" grep -qE "$2" "$T/x.svg"
}
pp=place.pipeline_model_parallel_size

draw "8 ranks" 8 --set place.tensor_model_parallel_size=2 --set $pp=4 $d/gpt2.cfg
like "the table is printed too" "$out" "pipeline bubble"
has "its title" "8 ranks = tp 2 × pp 4"
is "a row for each pipeline rank: layers, memory, time" "$(grep -c '>pp [0-3]<' "$T/x.svg")" 12
is "each slot has its micro-batch" "$(awk '/>One step</ { on = 1 } on' "$T/x.svg" |
	grep -cE 'anchor="middle" fill="#(ffffff|0f172a)">(0|1|2|3|4|5|6|7|8|9|10|11)<')" 96
is "each rank its place in tp" "$(awk '/>The grids/ { on = 1 } />One step</ { on = 0 } on' "$T/x.svg" |
	grep -c 'fill="#0f172a">[01]<')" 2
has "the bubble of the table" \
	"bubble $(sed -n 's/^pipeline bubble: \([0-9.]*\)%.*/\1/p' <<<"$out")%"

draw "64 ranks" 64 --set $pp=64 --set shape.num_layers=64 --set run.global_batch_size=96 $d/llama.cfg
is "64 rows, three times" "$(grep -cE '>pp [0-9]+<' "$T/x.svg")" 192
draw "virtual stages" 2 --set $pp=2 --set place.virtual_pipeline_model_parallel_size=4 $d/llama.cfg
is "a colour each" "$(grep -oE '>(forward v0|backward v0|v[123])<' "$T/x.svg" | wc -l)" 8
draw "many micro-batches" 4 --set $pp=4 --set run.global_batch_size=4000 $d/llama.cfg
has "are drawn together" "mixed, too narrow to draw"
ok "and stay small" test "$(stat -c %s "$T/x.svg")" -lt 200000
draw "not served" 2 --set $pp=2 --set shape.use_mup=true $d/llama.cfg
has "has an estimated timeline" "time as a share of the pipeline.s [0-9.e-]* s, of [0-9.e-]* s a step, estimated for h200"

draw "experts, mtp, cp" 64 --gpu-memory 9G $d/moe.cfg
has "the depth of multi-token prediction has a column" '>m0<'
has "and a block on the last stage" '>m<'
has "kinds of layers are told apart" '>dense<'
has "with their colours" '>experts<'
is "an axis a strip" "$(grep -oE '>(tp|cp|dp|etp|ep|edp)<' "$T/x.svg" | xargs)" \
	">tp< >cp< >dp< >ep< >edp<"
has "a line where the memory of a GPU ends" 'a GPU has 9.00G'
is "in red what does not fit" "$(grep -c 'fill="#dc2626">[89][.0-9]*G<' "$T/x.svg")" \
	"$(stage-build --world 64 --json $d/moe.cfg 2>/dev/null |
		jq '[.estimate.bytes[].total | select(. > 9 * 1073741824)] | length')"
draw "experts in few" 4 --set place.tensor_model_parallel_size=1 --set place.sequence_parallel=false \
	--set place.pipeline_model_parallel_size=1 --set place.context_parallel_size=1 \
	--set 'place.pipeline_model_parallel_layout="Et*27mL"' \
	--set place.expert_model_parallel_size=4 $d/moe.cfg
has "which experts are where" '>1: experts 16-31<'
draw "one rank" 1 $d/llama.cfg
is "has no grid" "$(grep -c '>The grids' "$T/x.svg")" 0

# whole or not at all
mkdir "$T/shut" && echo old >"$T/old" && cp "$T/old" "$T/shut/x.svg"
run stage-build --world 1 --svg "$T/none/x.svg" $d/llama.cfg
is "a folder that is not there: exit 9" "$rc" 9
(
	ulimit -f 1
	trap '' XFSZ
	stage-build --world 1 --svg "$T/shut/x.svg" $d/llama.cfg >"$T/out" 2>&1
)
is "a drawing that cannot be written leaves what was there" \
	"$(cat "$T/shut/x.svg" && ls "$T/shut")" "$(printf 'old\nx.svg')"

cp $d/llama.cfg "$T/a<b>&"$'\001\377'.cfg
draw "a strange file name" 1 "$T/a<b>&"$'\001\377'.cfg
done_testing
