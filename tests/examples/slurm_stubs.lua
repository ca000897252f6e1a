-- Runs a function of job_submit.lua under stubs of slurm: lua slurm_stubs.lua PLUGIN FUNCTION, with a job as lines NAME=TEXT on standard
-- input; those of the job as it was before begin with "before.". Prints what the user is told, then the code.
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm.log_user(text, ...) print("user: " .. string.format(text, ...)) end
function slurm.log_info(text, ...) io.stderr:write(string.format(text, ...), "\n") end

local job, before = {}, {}
for line in io.lines() do
  local name, text = line:match("^([%w_.]+)=(.*)$")
  if name:find("^before%.") then
    before[name:sub(#"before." + 1)] = text
  else
    job[name] = text
  end
end
dofile(arg[1])
if arg[2] == "slurm_job_submit" then
  print(slurm_job_submit(job, {}, 1001))
else
  print(slurm_job_modify(job, before, {}, 1001))
end
