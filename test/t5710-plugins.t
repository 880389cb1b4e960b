#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Plugins: their ops run in the layers that overrides name, under every layout,
# their hooks in order; others than this ABI's are refused, tools load none unasked.
# shellcheck source=test/lib.sh
. test/lib.sh
# shellcheck source=test/train.sh
. test/train.sh

tp=place.tensor_model_parallel_size pp=place.pipeline_model_parallel_size
objects=${TRISECT_BUILD:-build/cpu}/test
so=$objects/plugin-example.so
ex="spec.plugins=[\"ex=$so\"]"
over() { printf 'spec.overrides=["%s"]' "${1//,/\",\"}"; }
pre() { printf 'spec.pre_wrap_hooks=["%s"]' "${1//,/\",\"}"; }
post() { printf 'spec.post_wrap_hooks=["%s"]' "${1//,/\",\"}"; }
# calls DIR: of the example, "FORWARD BACKWARD" for each rank
calls() { sed -n 's/^example: \([0-9]*\) forward, \([0-9]*\) backward/\1 \2/p' "$1.log" | xargs; }

# 12 micro-batches, 5 steps: 60 calls in each of 8 layers
worker "$T/llama" llama 1
worker "$T/one" llama 1 "$ex"
ok "a plugin that no override names computes all layers: the same losses" \
	same_losses "$T/llama" "$T/one" 1e-12 5
is "it is called for each" "$(calls "$T/one")" "480 480"
worker "$T/tp2" llama 2 "$ex" $tp=2
ok "with tensor parallelism" same_losses "$T/llama" "$T/tp2" 1e-12 5
is "on both ranks" "$(calls "$T/tp2")" "480 480 480 480"
worker "$T/pp2" llama 2 "$ex" $pp=2 "$(over 3-4:act=ex)"
ok "over two stages" same_losses "$T/llama" "$T/pp2" 1e-12 5
is "in the layer that each has" "$(calls "$T/pp2")" "60 60 60 60"
worker "$T/dp2" llama 2 "$ex" place.use_distributed_optimizer=true
ok "with ZeRO-1" same_losses "$T/llama" "$T/dp2" 1e-12 5
worker "$T/f32" llama 1 "$ex" spec.params_dtype=fp32
ok "in fp32" same_losses "$T/llama" "$T/f32" 1e-4 5

worker "$T/some" llama 1 "$ex" "$(over '2-5:act=ex,3:*=local,7:*=ex')"
is "the last override that fits decides" "$(calls "$T/some")" "240 240"
worker "$T/mtp" llama 1 "$ex" "$(over mtp:act=ex)" shape.mtp_num_layers=2
worker "$T/mtp0" llama 1 shape.mtp_num_layers=2
ok "overrides reach multi-token prediction" same_losses "$T/mtp0" "$T/mtp" 1e-12 5
is "and nothing else then" "$(calls "$T/mtp")" "120 120"
worker "$T/moe" moe 1 "$ex" "$(over moe:act=ex)"
worker "$T/moe0" moe 1
ok "and mixtures of experts" same_losses "$T/moe0" "$T/moe" 1e-12 5
is "every second layer" "$(calls "$T/moe")" "240 240"
echo "7 11 3" >"$T/prompt"
said() {
	train-worker -q "$layouts/llama.cfg" --set "run.dir=\"$T/llama\"" --generate \
		--prompt-ids "$T/prompt" --max-new-tokens 4 "$@" 2>"$T/said.log"
}
is "a generation has it, too" "$(said --set "$ex")" "$(said)"
said --set "$ex" >"$T/said"
like "and calls it" "$(calls "$T/said")" "^[1-9][0-9]* 0$"

worker "$T/scaled" llama 1 "$ex" "$(pre ex.scale:2)"
ok "what it computes counts: a scale changes the losses" \
	jq -se '.[0].loss - .[1].loss | . > 1e-6 or . < -1e-6' \
	<(tail -1 "$T/scaled/metrics.jsonl") <(tail -1 "$T/llama/metrics.jsonl")
worker "$T/scaled2" llama 2 "$ex" "$(pre ex.scale:2)" $tp=2
ok "the same under every layout" same_losses "$T/scaled" "$T/scaled2" 1e-12 5

worker "$T/hooks" llama 1 "$ex" run.train_iters=2 "$(pre 'ex.fill:0.5,log_parameters:final_norm/w,ex.fill:0.25,ex.show:a')" \
	"$(post 'ex.show:b,log_parameters:final_norm/w,ex.show:c')" spec.params_dtype=bf16
is "hooks are called in their order, on precise weights and then on wrapped ones" \
	"$(grep -oE '(norm [0-9.]+$|example: [abc]: .*)' "$T/hooks.log" | xargs)" \
	"norm 2.82843 example: a: 59 pieces, 1 chunks, 4 bytes example: b: 59 pieces, 1 chunks, 2 bytes \
norm 1.41421 example: c: 59 pieces, 1 chunks, 2 bytes"

# refused CODE SAYS SET...
refused() {
	local code=$1 says=$2

	shift 2
	rm -rf "$T/bad"
	worker "$T/bad" llama 1 "$@"
	is "exit $code: $says" $? "$code"
	ok "with the reason" grep -qF "$says" "$T/bad.log"
	ok "before anything is written" test ! -e "$T/bad/metrics.jsonl"
}
refused 1 "pre-wrap hook 'ex.fail:x': it has failed" "$ex" "$(pre ex.fail:x)"
refused 1 "post-wrap hook 'ex.fail': it has failed" "$ex" "$(post ex.fail)"
for code in 0 1 75 256; do
	refused 1 "exit($code) was called before the job's end" "$ex" "$(pre ex.leave:$code)"
done
refused 3 "has no hook 'gone'" "$ex" "$(pre ex.gone)"
refused 3 "has no norm for cpu_f64, which spec.overrides wants of it in layer 2" "$ex" "$(over 2:norm=ex)"
refused 3 "has no act for cpu_bf16" "$ex" "$(over decoder:act=ex)" spec.params_dtype=bf16
refused 3 "is of plugin ABI 2, this program of 1" "spec.plugins=[\"ex=$objects/plugin-other.so\"]"
refused 3 "has no symbol trisect_plugin" "spec.plugins=[\"ex=$objects/plugin-none.so\"]"
refused 5 "cannot load: $T/gone.so: cannot open" "spec.plugins=[\"ex=$T/gone.so\"]"
echo "no object" >"$T/text.so"
refused 5 "plugin 'ex': cannot load: $T/text.so" "spec.plugins=[\"ex=$T/text.so\"]"
for bad in 2-8:act=ex 5-2:act=ex 8:act=ex mtp:act=ex moe:act=ex 2:cat=ex 2:act=gone x:act=ex 2:act 2; do
	refused 3 "'$bad'" "$ex" "$(over $bad)"
done
for bad in so.so =so Ex=so local=so a-name-of-17-byte=so; do
	refused 3 "'$bad'" "spec.plugins=[\"$bad\"]"
done
refused 3 "another plugin is called 'ex', too" "spec.plugins=[\"ex=a\",\"ex=b\"]"
refused 3 "spec.plugins has no 'why'" "$ex" "$(pre why.fill:1)"

# tools
cat >"$T/plug.cfg" <<END
@include "$TOP/$layouts/llama.cfg"
END
set -- --set "$ex" --set "$(over 2-5:act=ex)" --set "$(post ex.show)"
for tool in "cfg-finalize" "stage-build --explain"; do
	# shellcheck disable=SC2086 # a command and its option
	run $tool "$@" "$T/plug.cfg"
	is "$tool takes the config" $rc 0
	is "and loads nothing" "$(grep example: <<<"$err")" ""
done
like "stage-build says whose code computes what" "$out" \
	"'ex=$so' is not loaded.*"$'\n'"  layers 2-5       act by ex"
run stage-build --explain --allow-plugins "$@" "$T/plug.cfg"
like "with --allow-plugins what it is" "$out" "ex: '$so', ABI 1: SiLU.*; hooks scale, fill, show, fail, leave"
is "loaded and unloaded" "$err" "$(grep -v '^example' <<<"$err")"$'\n'"example: 0 forward, 0 backward"
run stage-build --allow-plugins --set "$ex" --set "$(post ex.gone)" "$T/plug.cfg"
is "a hook that it lacks is found" $rc 1
like "by name" "$err" "plugin 'ex' \('$so'\) has no hook 'gone'"
run stage-build --allow-plugins --set "spec.plugins=[\"ex=$objects/plugin-other.so\"]" "$T/plug.cfg"
is "another ABI is found" $rc 1
run stage-build --allow-plugins --set "spec.plugins=[\"ex=$T/gone.so\"]" "$T/plug.cfg"
is "and a file that is not there" $rc 1
done_testing
