#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stage-build --html: one page that needs nothing else; in a browser it shows
# any rank as the programs do.
# shellcheck source=test/lib.sh
. test/lib.sh

d=test/data/stage
unset SLURM_NTASKS
moe=(--world 64 "$d/moe.cfg")

page() { # NAME ARG... : $T/x.html
	local name=$1

	shift
	run stage-build --html "$T/x.html" --svg "$T/x.svg" "$@"
	is "$name: exit 0" "$rc" 0
	is "$name: loads nothing" \
		"$(grep -cE '(src|href)=|url\([^#]|@import|fetch\(|XMLHttp|import ' "$T/x.html")" 0
	is "$name: the numbers of --json" \
		"$(awk '/^<script type="application\/json"/ { on = 1; next } /^<\/script>/ { on = 0 } on' "$T/x.html")" \
		"$(stage-build --json "$@" 2>/dev/null)"
	ok "$name: the drawing of --svg" \
		cmp -s <(sed -n '/^<svg/,/^<\/svg>/p' "$T/x.html") "$T/x.svg"
}

page "dense" --world 8 --set place.pipeline_model_parallel_size=4 $d/gpt2.cfg
page "one rank" --world 1 $d/llama.cfg
page "experts, mtp, cp" "${moe[@]}"
run stage-build --html "$T/none/x.html" --world 1 $d/llama.cfg
is "a file that cannot be written: exit 9" "$rc" 9
like "by name" "$err" "cannot write '$T/none/x.html'"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
	skip "in a browser" "no chromium (slurm/deps --browser)"
	done_testing
	exit
}

see() { # FRAGMENT : the page as a browser has it, $seen
	timeout 60 "$browser" --headless --no-sandbox --disable-gpu \
		--user-data-dir="$T/profile" --enable-logging=stderr --dump-dom \
		"file://$T/x.html#$1" >"$T/seen" 2>"$T/log"
	seen=$(<"$T/seen")
}

cells() { # ID : its table, cells apart by a blank
	sed -n "s/.*<div id=\"$1\">\(.*\)/\1/p" "$T/seen" |
		sed 's/<\/div>.*//; s/<\/tr>/\n/g; s/<\/t[dh]>/ /g; s/<[^>]*>//g'
}

# The coordinates and groups that the browser shows are those of the programs.
same_rank() { # RANK
	local json row name size

	json=$(stage-build --json "${moe[@]}" 2>/dev/null)
	see "rank=$1&axis=ep&group=edp"
	like "rank $1: the page is ready" "$seen" 'data-ready="yes"'
	is "rank $1: without a fault" "$(grep -c 'CONSOLE.*[Ee]rror' "$T/log")" 0
	for name in tp cp dp pp ep etp edp; do
		row=$(jq -r ".ranks[$1].$name, .grid.$name" <<<"$json" | xargs | sed 's/ / of /')
		like "rank $1: $name" "$(cells where)" "(^|[^a-z])$name $row "
	done
	for name in tp ep edp dp_cp pp embedding; do
		size=$(jq ".groups.${name}[] | select(index($1)) | length" <<<"$json")
		like "rank $1: its group $name" "$(cells peers)" "(^|[^a-z_])$name ${size:--} "
	done
}
page "experts, mtp, cp again" --gpu-memory 9G "${moe[@]}"
same_rank 0
same_rank 21
same_rank 63
is "a row for each stage" "$(cells stages | grep -c '[0-9]')" 4
like "and group" "$(cells groups)" 'edp 32 2 0, 8 '
like "bytes as the table has them" "$(cells memory)" '1\.20G 2\.39G 2\.64G'
see "rank=4000"
like "a rank that is not there becomes the last" "$(cells where)" 'rank 63'
timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$T/profile" \
	--screenshot="$T/x.png" --window-size=1232,2600 "file://$T/x.html" >/dev/null 2>&1
ok "and it can be painted" test "$(stat -c %s "$T/x.png")" -gt 50000
page "a large world" --world 4096 --set place.tensor_model_parallel_size=8 \
	--set shape.num_attention_heads=8 --set run.global_batch_size=4096 $d/gpt2.cfg
see "rank=4095"
like "is shown too" "$(cells where)" 'rank 4095'
done_testing
