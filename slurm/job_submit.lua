-- SPDX-License-Identifier: Apache-2.0
-- slurmctld refuses a job whose seal does not fit what it asks for.
--
-- To install: copy this file and trisect_seal.lua beside slurm.conf, set
-- JobSubmitPlugins=lua there and restart slurmctld.  If there is a
-- job_submit.lua already, take the lines between the marks into it.
-- It opens no file and runs no program when a job comes; jobs without a seal
-- pass untouched, and so do all if trisect_seal.lua is not there.

-- >>> trisect
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local loaded, trisect = pcall(dofile, here .. "trisect_seal.lua")
if not loaded then
	slurm.log_error("trisect: no seal is looked at: %s", tostring(trisect))
end

-- nil, or why the job is refused.
local function judge(job)
	local function field(name, key)
		local fine, value = pcall(function()
			return key and job[name][key] or not key and job[name]
		end)

		return fine and value or nil
	end
	local offset = tonumber(field("het_job_offset") or "")
	if offset and offset < slurm.NO_VAL then
		return nil -- its parts differ by design
	end
	local seal, wrong = trisect.find(field("script"),
		field("environment", "TRISECT_SEAL"))
	if not seal then
		return wrong and trisect.sentence("is refused, " .. wrong)
	end
	local asked = trisect.of_job(job)
	local advice = trisect.advise(seal, asked)
	if advice then
		slurm.log_user("%s", advice)
	end
	return trisect.judge(seal, asked)
end

local function trisect_refuses(job)
	local fine, why = loaded, nil

	if loaded then
		fine, why = pcall(judge, job)
	end
	if loaded and not fine then
		slurm.log_error("trisect: a seal was not looked at: %s",
			tostring(why))
	end
	return fine and why or nil
end
-- <<< trisect

function slurm_job_submit(job_desc, part_list, submit_uid)
	local why = trisect_refuses(job_desc)

	if why then
		slurm.log_user("%s", why)
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
