#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --seal, and what the Lua side makes of seals and requests, as
# far as that needs no Slurm.
# shellcheck disable=SC2016 # Lua's, not the shell's
# shellcheck source=test/lib.sh
. test/lib.sh

cfg=test/data/whole.inc
cp $cfg "$T/my run.cfg"
seal_of() { sed -n 's/^#TRISECT //p' "$1"; }

## the script
cat >"$T/job" <<'SH'
#!/bin/bash
# about
#SBATCH --nodes=2

#SBATCH --ntasks=4
# more
srun train-worker my.cfg
cat <<X
#TRISECT seal=0
#SBATCH --nodes=9
X
SH
cp "$T/job" "$T/before" && chmod 750 "$T/job"
run cfg-finalize --world 4 --nodes 2 --seal "$T/job" "$T/my run.cfg"
is "a valid config seals: exit 0" $rc 0
like "the findings are printed as ever" "$out" "my run.cfg: valid"
like "the seal has hash, world, nodes, memory, steps, file and sum" "$(sed -n 6p "$T/job")" \
	'^#TRISECT seal=1 shape=[0-9a-f]{32} world=4 nodes=2 per-node=2 memory=[0-9]+M steps=10 file=my_run.cfg sum=[0-9a-f]{8}$'
is "nothing else changes" "$(sed 6d "$T/job")" "$(<"$T/before")"
is "nor the mode" "$(stat -c %a "$T/job")" 750
cp "$T/job" "$T/sealed"
cfg-finalize --world 4 --nodes 2 --seal "$T/job" "$T/my run.cfg" >"$T/out" 2>&1
ok "to seal again changes nothing" cmp "$T/job" "$T/sealed"
cfg-finalize --world 8 --seal "$T/job" "$T/my run.cfg" >"$T/out" 2>&1
like "another seal replaces it" "$(seal_of "$T/job")" "^seal=1 .* world=8 memory=.*
seal=0$"
sed -i '2i #TRISECT seal=1 old' "$T/job"
cfg-finalize --world 4 --nodes 2 --seal "$T/job" "$T/my run.cfg" >"$T/out" 2>&1
ok "so it does with several" cmp "$T/job" "$T/sealed"
ln -s job "$T/link"
cfg-finalize --world 8 --seal "$T/link" "$T/my run.cfg" >"$T/out" 2>&1
ok "a link stays a link" test -L "$T/link"
like "what it names is sealed" "$(seal_of "$T/job")" "world=8"
printf '#!/bin/sh' >"$T/short"
cfg-finalize --world 4 --seal "$T/short" "$T/my run.cfg" >"$T/out" 2>&1
like "a script of one line" "$(tr '\n' '|' <"$T/short")" '^#!/bin/sh\|#TRISECT seal=1 .*\|$'
run cfg-finalize --nodes 2 --gpus-per-node 8 --gpu-memory 141G --seal - \
	--set spec.device=cuda --set spec.params_dtype=bf16 etc/gpt2-124M.cfg
like "for the environment, with GPUs and their times" "$out" \
	"^export TRISECT_SEAL='seal=1 .* world=16 nodes=2 per-node=8 gpus-per-node=8 memory=[0-9]+[MG] step=[0-9.]+s steps=18865 file=gpt2-124M.cfg sum=[0-9a-f]{8}'$"
like "the findings go to standard error" "$err" "gpt2-124M.cfg: valid"

## what is not sealed
cp "$T/sealed" "$T/job"
run cfg-finalize --world 3 --seal "$T/job" "$T/my run.cfg"
is "an invalid config seals nothing: exit 1" $rc 1
ok "and the script is as it was" cmp "$T/job" "$T/sealed"
run cfg-finalize --seal "$T/job" "$T/my run.cfg"
is "without a world: exit 2" $rc 2
like "which is said" "$err" "a seal is for a number of ranks: --world N"
cp "$T/before" "$T/script"
run cfg-finalize --from hf --seal "$T/script" test/data/hf/llama-3-8b.json
is "a world that is only assumed is none" "$rc $(cmp "$T/script" "$T/before")" "2 "
run cfg-finalize --world 4 --seal "$T/job" "$T/my run.cfg" "$T/my run.cfg"
is "two configs: exit 2" $rc 2
run cfg-finalize --world 4 --seal "$T/my run.cfg" "$T/my run.cfg"
is "no script: exit 2" $rc 2
like "which is said, too" "$err" "is no batch script"
run cfg-finalize --world 4 --seal "$T/none" "$T/my run.cfg"
is "a script that is not there: exit 2" $rc 2
printf '#!/bin/sh\n\0' >"$T/nul"
run cfg-finalize --world 4 --seal "$T/nul" "$T/my run.cfg"
is "a NUL byte: exit 2" $rc 2
run cfg-finalize --from megatron --world 4 --seal "$T/job" \
	test/data/megatron/gpt3_mcore_te_tp1_pp4_vp1_uneven_pipeline.yaml
is "an unknown vocabulary: exit 2" $rc 2
like "has no hash" "$err" "wants the vocabulary: --vocab-size N"
ok "and the script is still as it was" cmp "$T/job" "$T/sealed"
is "no temporary file is left" "$(find "$T" -name '*.tmp-*')" ""

## the Lua side
lua=$(command -v lua5.1 || command -v lua5.3 || command -v lua5.4 || command -v lua)
if [ -z "$lua" ]; then
	skip "the Lua side" "no Lua interpreter"
	done_testing
	exit
fi
head='local M = dofile("slurm/trisect_seal.lua")
	local script = function() local f = io.open(arg[1]); local t = f:read("*a"); f:close(); return t end '

# judges NAME PATTERN SCRIPT LUA: what is said of a request, a table
judges() {
	run "$lua" - "$3" <<<"$head
		local seal, wrong = M.find(script())
		print(wrong or seal and (M.judge(seal, $4) or 'passes') or 'no seal')"
	like "$1" "$out$err" "$2"
}
job=$T/sealed
judges "the request that was sealed passes" "^passes$" "$job" \
	'{tasks = 4, nodes = 2, max_nodes = 2, tasks_per_node = 2}'
judges "tasks alone pass" "^passes$" "$job" '{tasks = 4}'
judges "nodes alone pass: steps may start more tasks" "^passes$" "$job" '{nodes = 2, max_nodes = 2}'
judges "a range of nodes passes" "^passes$" "$job" '{tasks = 4, nodes = 1, max_nodes = 4}'
judges "one that leaves it out does not" "asks for 3 to 4 nodes, its seal is for 2 " "$job" \
	'{tasks = 4, nodes = 3, max_nodes = 4}'
judges "other tasks" \
	"^trisect: the job asks for 8 tasks, its seal is for 4 \(my_run.cfg\): change the request, or seal it anew: cfg-finalize --seal" \
	"$job" '{tasks = 8}'
judges "tasks by the node" "asks for 8 tasks, its seal is for 4" "$job" \
	'{nodes = 2, max_nodes = 2, tasks_per_node = 4}'
judges "other nodes" "asks for 4 nodes, its seal is for 2" "$job" '{tasks = 4, nodes = 4, max_nodes = 4}'
judges "nothing said is one node" "asks for 1 node, its seal is for 2" "$job" '{}'
judges "too little memory" "asks for 1 MiB of memory on a node, its seal is for [0-9]+" "$job" \
	'{tasks = 4, mem_per_node = 1}'
judges "or for a task" "asks for 2 MiB of memory for a task, its seal is for [0-9]+" "$job" \
	'{tasks = 4, mem_per_cpu = 1, cpus_per_task = 2}'
sed 's/world=4/world=5/' "$job" >"$T/edited"
judges "a seal that was edited" "changed by hand \(sum [0-9a-f]{8}, computed [0-9a-f]{8}\)" "$T/edited" '{}'
sed 's/ sum=.*//' "$job" >"$T/cut"
judges "one that was cut" "cut short" "$T/cut" '{}'
sed 's/$/\r/' "$job" >"$T/crlf"
judges "lines of other systems" "^passes$" "$T/crlf" '{tasks = 4}'
judges "no seal" "no seal" "$T/before" '{tasks = 9}'
{ cat "$T/before" && seal_of "$job" | head -n1 | sed 's/^/#TRISECT /'; } >"$T/late"
judges "one behind the first command is none" "no seal" "$T/late" '{tasks = 9}'
sed '6p' "$job" >"$T/twice"
judges "the same seal twice" "^passes$" "$T/twice" '{tasks = 4}'
sed '2i #TRISECT seal=1 world=1 sum=0' "$job" >"$T/two"
judges "two different ones" "it has 2 different seals" "$T/two" '{tasks = 4}'
sed 's/seal=1/seal=2/' "$job" >"$T/later"
judges "a later version is not judged" "no seal" "$T/later" '{tasks = 9}'
sed '3i #SBATCH hetjob' "$job" >"$T/het"
judges "nor a heterogeneous job" "no seal" "$T/het" '{tasks = 9}'
{ cat "$T/sealed" && head -c 4000000 /dev/zero | tr '\0' '#'; } >"$T/huge"
judges "a huge script" "^passes$" "$T/huge" '{tasks = 4}'
{ echo '#!/bin/sh' && head -c 4000000 /dev/zero | tr '\0' '#'; } >"$T/huge"
judges "one long comment" "no seal" "$T/huge" '{tasks = 4}'
{ echo '#!/bin/sh' && yes '#' | head -n 100000; } >"$T/huge"
judges "many comments" "no seal" "$T/huge" '{tasks = 4}'

# GPUs
eval "$(cfg-finalize --nodes 2 --gpus-per-node 8 --gpu-memory 141G --seal - \
	--set spec.device=cuda --set spec.params_dtype=bf16 etc/gpt2-124M.cfg 2>"$T/err")"
printf '#!/bin/sh\n#TRISECT %s\n' "$TRISECT_SEAL" >"$T/gpu"
unset TRISECT_SEAL
judges "GPUs of a node" "^passes$" "$T/gpu" '{nodes = 2, max_nodes = 2, gpus_per_node = 8}'
judges "other GPUs" "asks for 4 GPUs on a node, its seal is for 8 \(gpt2" "$T/gpu" \
	'{nodes = 2, max_nodes = 2, gpus_per_node = 4}'
judges "GPUs of a task" "^passes$" "$T/gpu" '{tasks = 16, tasks_per_node = 8, gpus_per_task = 1}'
judges "GPUs of all" "asks for 4 GPUs on a node" "$T/gpu" '{tasks = 16, gpus = 8}'
judges "none" "asks for no GPUs on a node, its seal is for 8" "$T/gpu" '{tasks = 16}'
run "$lua" - "$T/gpu" <<<"$head M.GPUS_ARE_ASKED_FOR = false
	print(M.judge(M.find(script()), {tasks = 16}))"
is "which an admin may let pass" "$out$err" nil
run "$lua" - "$T/gpu" <<<"$head
	local seal = M.find(script())
	seal.step = 40
	print(M.judge(seal, {tasks = 16, gpus_per_node = 8, minutes = 1}))
	print(M.advise(seal, {minutes = 60}))
	print(M.advise(seal, {}))"
like "a time limit of less than two steps" "$out" "has a time limit of 60 s, two of its steps take 80 s"
like "one of less than all is only said" "$out" \
	"trisect: 60 minutes hold about 90 of 18865 steps; the rest needs the job again
nil$"

# how requests are read
run "$lua" - <<<"$head"'
	local g = {}
	for _, t in ipairs({"gpu", "gpu:4", "gres:gpu:8", "gres:gpu:h100:4,gres:shard:9",
			"gres/gpu:2", "gres/gpu=2", "gpu:a:1,gpu:b:2", "license:gpu:3", ""}) do
		g[#g + 1] = tostring(M.gpus(t))
	end
	print(table.concat(g, " "))
	for _, t in ipairs({"90", "2:30", "2:30:00", "1-12", "1-12:30", "1-0:0:60", "UNLIMITED"}) do
		g[#g + 1] = tostring(M.minutes(t)):gsub("%.0$", "")
	end
	print(table.concat(g, " ", 10))'
is "how GPUs are written" "$(sed -n 1p <<<"$out")" "1 4 8 4 2 2 3 nil nil"
is "how time limits are written" "$(sed -n 2p <<<"$out")" "90 2.5 150 2160 2190 1441 nil"
cat >"$T/fake.lua" <<'LUA'
local said = {}
slurm = {SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294,
	log_user = function(f, ...) said[#said + 1] = f:format(...) end,
	log_error = function(f, ...) said[#said + 1] = "error: " .. f:format(...) end}
assert(dofile(arg[1] .. "/job_submit.lua") == slurm.SUCCESS)
local function submit(job)
	said = {}
	local rc = slurm_job_submit(job, {}, 0)
	return rc .. " " .. table.concat(said, "; ")
end
local f = io.open(arg[2]); local script = f:read("*a"); f:close()
local line = script:match("#TRISECT (seal=1[^\n]*)")
local NO = {16, 4294967294, 65534, 18446744073709551614}
local full = {script = script, num_tasks = 4, min_nodes = 2, max_nodes = 2,
	ntasks_per_node = NO[3], cpus_per_task = NO[3], time_limit = NO[2],
	min_mem_per_node = NO[4], environment = {}}
print(submit(full))
full.num_tasks = 3
print(submit(full))
print(submit({script = script}))
print(submit({}))
print(submit({environment = {TRISECT_SEAL = line}, num_tasks = 3, min_nodes = 2, max_nodes = 2}))
print(submit({environment = {TRISECT_SEAL = line .. "0"}}))
print(submit({script = script, het_job_offset = 1, num_tasks = 3}))
print(submit(setmetatable({}, {__index = function() error("no such field") end})))
print(submit({script = 7, num_tasks = "x", environment = 3}))
print(slurm_job_modify({}, {}, {}, 0))
LUA
run "$lua" "$T/fake.lua" slurm "$T/sealed"
is "slurmctld: fits, misfits, one node, no fields, environment, edited, het job, errors, nonsense" \
	"$(sed -E 's/ \(my_run.*//; s/ \(sum.*//' <<<"$out")$err" "0 
-1 trisect: the job asks for 3 tasks, its seal is for 4
-1 trisect: the job asks for 1 node, its seal is for 2
0 
-1 trisect: the job asks for 3 tasks, its seal is for 4
-1 trisect: the job is refused, its seal was changed by hand
0 
0 
0 
0"
mkdir "$T/alone" && cp slurm/job_submit.lua "$T/alone"
run "$lua" "$T/fake.lua" "$T/alone" "$T/sealed"
is "without trisect_seal.lua all jobs pass" "$(grep -c '^0' <<<"$out")" 10
cat >"$T/cli.lua" <<'LUA'
slurm = {SUCCESS = 0, ERROR = -1,
	json_cli_options = function(o) return o.json end,
	log_error = function(f, ...) print(f:format(...)) end}
assert(dofile("slurm/cli_filter.lua") == slurm.SUCCESS)
for _, o in ipairs({
	{type = "sbatch", argv = {[0] = arg[1]}, json = '{"nodes":"2","ntasks":"4"}'},
	{type = "sbatch", argv = {[0] = arg[1]}, json = '{"nodes":"1-3","ntasks-per-node":"4"}'},
	{type = "sbatch", argv = {[0] = arg[1]}, json = '{"ntasks":"4","mem":"1M","argv":["\\/a"]}'},
	{type = "sbatch", argv = {[0] = "/no/such/file"}, json = '{}'},
	{type = "sbatch", argv = {}, json = '{}'},
	{type = "srun", argv = {[0] = arg[1]}, json = '{"ntasks":"9"}'},
	{type = "salloc", json = nil},
}) do
	print(slurm_cli_pre_submit(o, 0))
end
print(slurm_cli_setup_defaults({}, true), slurm_cli_post_submit(0, 1, 2))
LUA
run env -u SLURM_JOB_ID "$lua" "$T/cli.lua" "$T/sealed"
is "sbatch: fits, misfits, memory, no file, no script, srun, salloc" \
	"$(sed -E 's/ \(my_run.*//; s/is for [0-9]+$/is for N/' <<<"$out")$err" "0
trisect: the job asks for 4 tasks on a node, its seal is for N
-1
trisect: the job asks for 1 MiB of memory on a node, its seal is for N
-1
0
0
0
0
0	0"
run env SLURM_JOB_ID=1 TRISECT_SEAL="$(seal_of "$T/sealed" | head -n1)" "$lua" "$T/cli.lua" "$T/sealed"
is "inside of a job nothing is judged" "$(grep -c '^0' <<<"$out")" 8
run env -u SLURM_JOB_ID TRISECT_SEAL="$(seal_of "$T/sealed" | head -n1)" "$lua" "$T/cli.lua" "$T/sealed"
like "the environment's seal is judged for srun and salloc" "$out" \
	"asks for 9 tasks, its seal is for 4.*asks for 1 node, its seal is for 2"
done_testing
