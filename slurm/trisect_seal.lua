-- SPDX-License-Identifier: Apache-2.0
-- Whether a job asks for what its seal says: string work only.
--
-- "cfg-finalize --seal SCRIPT ... CONFIG" writes one line into a batch script
-- (or prints one for the environment, TRISECT_SEAL):
--
--   #TRISECT seal=1 shape=HASH world=64 nodes=8 per-node=8 gpus-per-node=8
--            memory=118G step=1.23s steps=1000 file=my.cfg sum=0123abcd
--
-- job_submit.lua (inside slurmctld, so nothing here opens a file, waits or
-- runs a program) and cli_filter.lua (in the user's sbatch) call it.  It must
-- lie beside them; both start with its plain dofile.  After a change of this
-- file, touch job_submit.lua: slurmctld looks at that one's time.
--
-- A job without a seal is nobody's business here, and so is what a request
-- leaves open, but for GPUs (see GPUS_ARE_ASKED_FOR).
local M = {}

-- Where Slurm has GPUs as a resource (GresTypes=gpu), a job that asks for none
-- gets none. Set this to false where nodes are handed out with all they have.
M.GPUS_ARE_ASKED_FOR = true

local PREFIX = "#TRISECT "
local HEADER_MAX = 65536 -- bytes of a script that are looked at
local ANEW = "seal it anew: " ..
	"cfg-finalize --seal SCRIPT --world N --nodes N CONFIG"

-- A polynomial over the bytes, modulo a prime below 2^32; exact in doubles.
function M.sum(text)
	local h = 0

	for i = 1, #text do
		h = (h * 1000003 + text:byte(i)) % 4294967291
	end
	return string.format("%04x%04x", math.floor(h / 65536), h % 65536)
end

-- The fields of "seal=1 ... sum=X"; or nil and what is wrong with it.
function M.parse(text)
	local body, sum = text:match("^(seal=.-) sum=(%x+)%s*$")
	local seal = {}

	if not body then
		return nil, "its seal is cut short"
	end
	for key, value in body:gmatch("(%S-)=(%S*)") do
		seal[key] = value
	end
	if seal.seal ~= "1" then
		return nil -- of a later version: not ours to judge
	end
	if M.sum(body) ~= sum:lower() then
		return nil, "its seal was changed by hand (sum " .. sum ..
			", computed " .. M.sum(body) .. ")"
	end
	for _, key in ipairs({"world", "nodes", "per-node", "gpus-per-node",
			"steps"}) do
		seal[key] = tonumber(seal[key] or "")
	end
	seal.step = tonumber((seal.step or ""):match("^([%d.]+)s$") or "")
	return seal
end

-- The seals in the comments that a script begins with, where #SBATCH counts,
-- too: what a here-document holds is none. Second: a heterogeneous job.
local function seals_of(script)
	local found, several = {}, false
	local head = script:sub(1, HEADER_MAX)

	for line in head:gmatch("([^\n]*)\n?") do
		line = line:gsub("\r$", "")
		if line:match("^%s*[^#%s]") then
			break
		elseif line:sub(1, #PREFIX) == PREFIX and
		    line:match("^seal=", #PREFIX + 1) then
			found[#found + 1] = line:sub(#PREFIX + 1)
		elseif line:match("^#SBATCH%s+hetjob") or
		    line:match("^#SBATCH%s+packjob") then
			several = true
		end
	end
	return found, several
end

-- The seal of a job: the script's own, else the environment's. Without one
-- nil, and if there is something wrong with it, what.
function M.find(script, environment)
	local found, several = {}, false

	if type(script) == "string" then
		found, several = seals_of(script)
	end
	if several then
		return nil
	end
	for i = 2, #found do
		if found[i] ~= found[1] then
			return nil, "it has " .. #found ..
				" different seals; keep one"
		end
	end
	if found[1] then
		return M.parse(found[1])
	end
	if type(environment) == "string" and environment:match("^seal=") then
		local seal, wrong = M.parse(environment)

		return seal, wrong and wrong .. " (TRISECT_SEAL in the environment)"
	end
	return nil
end

-- "118G" or "57M" in MiB.
local function mebibytes(text)
	local n, unit = (text or ""):match("^(%d+)([MG])$")

	return n and tonumber(n) * (unit == "G" and 1024 or 1)
end

local function text(n)
	return type(n) == "number" and string.format("%.0f", n) or n
end

local function wrong(what, asked, sealed)
	return string.format("asks for %s %s, its seal is for %s", text(asked),
		what, text(sealed))
end

-- A node's share of GPUs, however it was asked for; nil: not said.
local function gpus_per_node(seal, asked)
	local tasks = asked.tasks_per_node or seal["per-node"]

	if asked.gpus_per_node then
		return asked.gpus_per_node
	elseif asked.gpus_per_task and tasks then
		return asked.gpus_per_task * tasks
	elseif asked.gpus and seal.nodes then
		return asked.gpus / seal.nodes
	end
end

local function gpus_wrong(seal, asked)
	local sealed, got = seal["gpus-per-node"], gpus_per_node(seal, asked)

	if not sealed then
		return nil
	elseif got and got ~= sealed then
		return wrong("GPUs on a node", got, sealed)
	elseif not got and not asked.gpus and not asked.gpus_per_task and
	    M.GPUS_ARE_ASKED_FOR then
		return wrong("GPUs on a node", "no", sealed)
	end
end

-- Of the host's memory: what the ranks of a CPU run need.
local function memory_wrong(seal, asked)
	local rank = mebibytes(seal.memory)

	if not rank or seal["gpus-per-node"] then
		return nil
	end
	if asked.mem_per_node and seal["per-node"] and
	    asked.mem_per_node < rank * seal["per-node"] then
		return wrong("MiB of memory on a node", asked.mem_per_node,
			rank * seal["per-node"])
	end
	if asked.mem_per_cpu and asked.mem_per_cpu *
	    (asked.cpus_per_task or 1) < rank then
		return wrong("MiB of memory for a task", asked.mem_per_cpu *
			(asked.cpus_per_task or 1), rank)
	end
end

local function sizes_wrong(seal, asked)
	local most = asked.max_nodes or asked.nodes
	local tasks = asked.tasks

	if not tasks and asked.tasks_per_node and asked.nodes and
	    asked.nodes == most then
		tasks = asked.nodes * asked.tasks_per_node
	end
	if tasks and seal.world and tasks ~= seal.world then
		return wrong(tasks == 1 and "task" or "tasks", tasks, seal.world)
	end
	local least = asked.nodes
	if not least and not tasks and not asked.gpus then
		least, most = 1, 1 -- what Slurm gives
	end
	if least and seal.nodes and
	    (seal.nodes < least or seal.nodes > most) then
		return wrong(most == 1 and "node" or "nodes", most == least and
			most or text(least) .. " to " .. text(most), seal.nodes)
	end
	if asked.tasks_per_node and seal["per-node"] and
	    asked.tasks_per_node ~= seal["per-node"] then
		return wrong("tasks on a node", asked.tasks_per_node,
			seal["per-node"])
	end
end

-- Two steps: with less, nothing can come of it.
local function time_wrong(seal, asked)
	local seconds = asked.minutes and asked.minutes * 60

	if seconds and seal.step and seconds < 2 * seal.step then
		return string.format("has a time limit of %.0f s, two of its " ..
			"steps take %.0f s by its seal", seconds, 2 * seal.step)
	end
end

-- What is wrong with a request, as one sentence, or nil.
function M.judge(seal, asked)
	local what = sizes_wrong(seal, asked) or gpus_wrong(seal, asked) or
		memory_wrong(seal, asked) or time_wrong(seal, asked)

	return what and M.sentence(what, seal)
end

-- SEAL: the request might be changed as well.
function M.sentence(what, seal)
	return string.format("trisect: the job %s%s: %s%s", what,
		seal and seal.file and " (" .. seal.file .. ")" or "",
		seal and "change the request, or " or "", ANEW)
end

-- What is no reason to refuse it, or nil.
function M.advise(seal, asked)
	local seconds = asked.minutes and asked.minutes * 60

	if not seconds or not seal.step or not seal.steps or
	    seconds >= seal.step * seal.steps then
		return nil
	end
	return string.format("trisect: %.0f minutes hold about %.0f of %.0f " ..
		"steps; the rest needs the job again", asked.minutes,
		math.floor(seconds / seal.step), seal.steps)
end

-- GPUs of "gres:gpu:h100:4,gres:shard:2", "gpu:4", "gpu"; nil: none named.
function M.gpus(text)
	local all

	for item in (text or ""):gmatch("[^,]+") do
		local name, rest = item:match("^%s*([^:/=]+)(.*)$")

		if name == "gres" then
			name, rest = rest:match("^[:/]([^:/=]+)(.*)$")
		end
		if name == "gpu" then
			all = (all or 0) +
				(tonumber(rest:match("[:=](%d+)$") or "") or 1)
		end
	end
	return all
end

-- A number that was given: Slurm's marks for "not set" and "no limit" are the
-- largest ones of 16, 32 and 64 bits.
local function given(n, bits)
	n = tonumber(n)
	if not n or n < 1 or n >= 2 ^ bits - 16 or
	    (bits == 64 and n >= 18446744073709500000) then
		return nil
	end
	return n
end

-- The request of a job_desc of slurmctld, whose fields may be missing.
function M.of_job(job)
	local function field(name)
		local fine, value = pcall(function() return job[name] end)

		return fine and value or nil
	end
	local per_node = field("tres_per_node") or field("gres")

	return {
		tasks = given(field("num_tasks"), 32),
		nodes = given(field("min_nodes"), 32),
		max_nodes = given(field("max_nodes"), 32),
		tasks_per_node = given(field("ntasks_per_node"), 16),
		cpus_per_task = given(field("cpus_per_task"), 16),
		gpus_per_node = M.gpus(per_node),
		gpus_per_task = M.gpus(field("tres_per_task")),
		gpus = M.gpus(field("tres_per_job")),
		minutes = given(field("time_limit"), 32),
		mem_per_node = given(field("min_mem_per_node"), 64),
		mem_per_cpu = given(field("min_mem_per_cpu"), 64),
	}
end

-- "2:30:00", "1-12", "90" in minutes, as Slurm reads it.
function M.minutes(text)
	local days, rest = text:match("^(%d+)%-(.+)$")
	local n = {}

	for part in (rest or text):gmatch("%d+") do
		n[#n + 1] = tonumber(part)
	end
	if #n == 0 then
		return nil
	elseif days then
		return days * 1440 + n[1] * 60 + (n[2] or 0) + (n[3] or 0) / 60
	elseif #n == 3 then
		return n[1] * 60 + n[2] + n[3] / 60
	end
	return n[1] + (n[2] or 0) / 60
end

-- "4G", "500" (MiB), "200K" in MiB.
local function memory(text)
	local n, unit = (text or ""):match("^(%d+)([KMGT]?)")
	local scale = {K = 1 / 1024, M = 1, G = 1024, T = 1048576}

	return n and given(tonumber(n) * (scale[unit] or 1), 64)
end

-- The request of the options that were given to sbatch, salloc or srun.
function M.of_options(opt)
	local least, most = (opt.nodes or ""):match("^(%d+)%-?(%d*)$")

	return {
		tasks = given(opt.ntasks, 32),
		nodes = given(least, 32),
		max_nodes = given(most ~= "" and most or least, 32),
		tasks_per_node = given(opt["ntasks-per-node"], 16),
		cpus_per_task = given(opt["cpus-per-task"], 16),
		gpus_per_node = M.gpus(opt["gpus-per-node"] and
			"gpu:" .. opt["gpus-per-node"]) or M.gpus(opt.gres),
		gpus_per_task = M.gpus(opt["gpus-per-task"] and
			"gpu:" .. opt["gpus-per-task"]),
		gpus = M.gpus(opt.gpus and "gpu:" .. opt.gpus),
		minutes = opt.time and M.minutes(opt.time),
		mem_per_node = memory(opt.mem),
		mem_per_cpu = memory(opt["mem-per-cpu"]),
	}
end

return M
