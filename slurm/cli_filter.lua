-- SPDX-License-Identifier: Apache-2.0
-- sbatch, salloc and srun refuse a job whose seal does not fit what it asks
-- for, before anything is sent to slurmctld.
--
-- To install: copy this file and trisect_seal.lua beside slurm.conf on the
-- nodes where users submit, and set CliFilterPlugins=lua there.  It runs as the
-- user and can be got round, so it saves time; job_submit.lua is what keeps
-- the queue.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local loaded, trisect = pcall(dofile, here .. "trisect_seal.lua")

-- The options that were given, from the JSON that Slurm makes of them.
local function options_of(options)
	local fine, json = pcall(slurm.json_cli_options, options)
	local out = {}

	for key, value in (fine and json or ""):gmatch('"([%w-]+)":"([^"]*)"') do
		out[key] = value:gsub("\\/", "/")
	end
	return out
end

-- The beginning of the script that sbatch is given by its name.
local function script_of(options)
	local fine, path = pcall(function()
		return options.argv[0] or options.argv[1]
	end)
	local f = fine and type(path) == "string" and io.open(path, "r")
	local text = f and f:read(65536)

	if f then
		f:close()
	end
	return text
end

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
	-- A step of a job that runs already is part of what was judged.
	if not loaded or os.getenv("SLURM_JOB_ID") or pack_offset > 0 then
		return slurm.SUCCESS
	end
	local script = options.type == "sbatch" and script_of(options) or nil
	local seal, wrong = trisect.find(script, os.getenv("TRISECT_SEAL"))
	local why = wrong and trisect.sentence("is refused, " .. wrong)

	if seal then
		why = trisect.judge(seal, trisect.of_options(options_of(options)))
	end
	if why then
		slurm.log_error("%s", why)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_cli_post_submit(pack_offset, job_id, step_id)
	return slurm.SUCCESS
end

return slurm.SUCCESS
