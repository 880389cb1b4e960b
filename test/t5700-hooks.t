#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hooks around the model: what is frozen stays as it was under every layout and
# through a resume, first weights are what init_* says, and all are called in order.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
vp=place.virtual_pipeline_model_parallel_size zero=place.use_distributed_optimizer=true
digests() { ckpt-merge ls --digest "$1" | awk '$2 == "param" { print $1, $NF }'; }
# moved A B: names of weights that differ
moved() { diff <(digests "$1") <(digests "$2") | awk '/^</ { print $2 }' | sort; }
names() { digests "$1" | awk '{ print $1 }' | sort; }

# Weights that are one array with others (gate and up), copies, stacks of experts.
declare -A frozen=(
	[llama]='"freeze:layers/*/mlp/gate/w","freeze:embed/*"'
	[gpt2]='"freeze:layers/000[0-3]/*"'
	[mtp]='"freeze:embed/tok","freeze:mtp/00/layer/mlp/*"'
	[moe]='"freeze:layers/*/moe/gate/w","freeze:*/expert_bias"'
)
# stays MODEL NAME: whether one of the patterns has it
stays() {
	local p list=${frozen[$1]//\"/}

	for p in ${list//,/ }; do
		# shellcheck disable=SC2053
		[[ $2 == ${p#freeze:} ]] && return
	done
	return 1
}

for model in llama gpt2 mtp moe; do
	hooks="spec.pre_wrap_hooks=[${frozen[$model]}]" one=$T/$model
	worker "$T/first-$model" $model 1 "$hooks" run.train_iters=1 run.lr_decay_iters=5
	worker "$one" $model 1 "$hooks"
	moved "$T/first-$model" "$one" >"$T/moved"
	for name in $(names "$one"); do
		stays $model "$name" || echo "$name"
	done >"$T/wanted"
	is "$model: all but what is frozen moves" "$(<"$T/moved")" "$(<"$T/wanted")"
	ok "$model: and something is frozen" test "$(names "$one" | wc -l)" -gt "$(wc -l <"$T/wanted")"
	worker "$T/plain-$model" $model 1
	ok "$model: gradients of the frozen have no part in the norm" jq -se \
		'.[0].grad_norm > .[1].grad_norm and .[0].loss == .[1].loss' \
		<(head -1 "$T/plain-$model/metrics.jsonl") <(head -1 "$one/metrics.jsonl")
	for layout in "2 $tp=2" "2 $pp=2" "2 $pp=2 $vp=2" "2 $zero" "4 $tp=2 $zero"; do
		read -ra args <<<"$layout"
		worker "$T/other" $model "${args[0]}" "$hooks" "${args[@]:1}"
		ok "$model: the same losses with ${args[*]:1}" same_losses "$one" "$T/other" 1e-12 5
		moved "$T/first-$model" "$T/other" >"$T/moved"
		is "$model: and the same weights stay" "$(<"$T/moved")" "$(<"$T/wanted")"
		rm -rf "$T/other"
	done
done

hooks="spec.pre_wrap_hooks=[${frozen[llama]}]"
worker "$T/part" llama 2 "$hooks" $zero run.train_iters=2 run.lr_decay_iters=5
worker "$T/part" llama 2 "$hooks" $tp=2
ok "a resume under another layout goes on" same_losses "$T/llama" "$T/part" 1e-12 5
is "and leaves the same weights alone" "$(moved "$T/first-llama" "$T/part")" \
	"$(moved "$T/first-llama" "$T/llama")"

init='"init_std:0.5:layers/*/attn/proj/w","init_constant:0.25:*_norm/w","init_constant:2:layers/0003/*/fc2/w"'
hooks="spec.pre_wrap_hooks=[$init,\"freeze:*\",\"log_parameters\"]"
logs='spec.post_wrap_hooks=["log_parameters:head/*","log_parameters:embed/*"]'
worker "$T/init" llama 1 "$hooks" "$logs"
is "all frozen: nothing moves, no gradient counts" \
	"$(jq -s '[.[].grad_norm] | unique | .[]' "$T/init/metrics.jsonl")" 0
norm() { awk -v name="$2" '$2 == "pre-wrap" && $3 == name { sub(/.*norm /, ""); print $1 }' "$1.log"; }
is "a constant is a constant" "$(norm "$T/init" layers/0001/attn_norm/w) $(norm "$T/init" final_norm/w)" \
	"1.41421 1.41421"
is "the last hook that names a weight decides" "$(norm "$T/init" layers/0003/mlp/fc2/w)" 78.3837
ok "a deviation is one" awk -v n="$(norm "$T/init" layers/0005/attn/proj/w)" \
	'BEGIN { exit !(n > 15 && n < 17) }'
is "post-wrap hooks come last, in their order" \
	"$(awk '/(pre|post)-wrap/ { print $2, $3 }' "$T/init.log" | tail -3 | xargs)" \
	"pre-wrap head/out post-wrap head/out post-wrap embed/tok"
is "every weight is told once" \
	"$(awk '$2 == "pre-wrap" { print $3 }' "$T/init.log" | sort)" "$(names "$T/init")"
for layout in "2 $tp=2" "2 $pp=2" "2 $zero" "2"; do
	read -ra args <<<"$layout"
	worker "$T/other" llama "${args[0]}" "$hooks" "$logs" "${args[@]:1}"
	is "the same weights under world ${args[*]}" "$(digests "$T/other")" "$(digests "$T/init")"
	is "the same log" "$(grep -o '[a-z]*-wrap .*' "$T/other.log")" "$(grep -o '[a-z]*-wrap .*' "$T/init.log")"
	rm -rf "$T/other"
done
worker "$T/half" llama 1 "$hooks" "$logs" spec.params_dtype=bf16
ok "pre-wrap hooks see precise weights, post-wrap hooks rounded ones" test \
	"$(grep -o 'pre-wrap  embed/tok.*norm .*' "$T/half.log" | awk '{ print $7 }')" != \
	"$(grep -o 'post-wrap  embed/tok.*norm .*' "$T/half.log" | awk '{ print $7 }')"
worker "$T/init" llama 1 "$hooks" "$logs" run.train_iters=6
is "what a resume starts from is told" "$(grep -c 'post-wrap  embed/tok' "$T/init.log")" 1

for bad in 'freeze' 'freze:*' 'init_std:x:*' 'init_std:-1:*' 'init_constant:1' 'freeze:layer/*'; do
	worker "$T/bad" llama 1 "spec.pre_wrap_hooks=[\"$bad\"]"
	is "'$bad' is refused" $? 3
	ok "by name" grep -qF "spec.pre_wrap_hooks: '$bad'" "$T/bad.log"
done

run stage-build --explain --set $pp=2 --set "$hooks" --set "$logs" $layouts/llama.cfg
is "stage-build lists the onion of each chunk, from the inside out" \
	"$(grep -A60 'around each chunk' <<<"$out" | grep -oE '^  stage [^=]*$|^    [a-z-]+ [a-z]+|^    slices' | xargs)" \
	"stage 0 (pp 0, vp 0) slices pre-wrap hooks mixed precision data parallel post-wrap hooks \
stage 1 (pp 1, vp 0) slices pre-wrap hooks mixed precision data parallel post-wrap hooks"
like "with what each hook is about" "$out" "log_parameters:head/\*, 1 weight of this chunk"
done_testing
