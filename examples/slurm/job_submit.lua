-- Warns about GPU jobs that name no experiment where they are submitted, or refuses them: sbatch --comment=EXPERIMENT (or --wckey).
-- Put it beside slurm.conf of slurmctld and set JobSubmitPlugins=lua there. In loadfactor.toml: [[tag]] experiment = "{comment}".

local REFUSE = os.getenv("LOADFACTOR_REFUSE") == "1" -- true: refuse instead of warn
local HOW = "name its experiment: --comment=EXPERIMENT (letters, digits and . _ / -)"
local EXPERIMENT = "^%w[%w._/-]*$"

-- sbatch writes --gres, --gpus, --gpus-per-node, --gpus-per-socket and --gpus-per-task into these
local ASKS = { "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "gres" }

local function asks_for_gpus(job)
  for _, field in ipairs(ASKS) do
    local text = job[field]
    -- gres:gpu:2, gres/gpu:h100=2, gpu:2; also gpu_shard and shard, which are parts of GPUs
    if text and (("," .. text):find("[,:/]gpu") or ("," .. text):find("[,:/]shard")) then
      return true
    end
  end
  return false
end

local function names_experiment(job)
  for _, text in ipairs({ job.comment or "", job.wckey or "" }) do
    if text:find(EXPERIMENT) then -- a default wckey begins with *
      return true
    end
  end
  return false
end

local function check(job, user)
  if names_experiment(job) then
    return slurm.SUCCESS
  end
  slurm.log_info("job_submit: user %s asks for GPUs without an experiment", tostring(user))
  if REFUSE then
    slurm.log_user("This job asks for GPUs; %s", HOW)
    return slurm.ERROR
  end
  slurm.log_user("Nobody will know what these GPU-hours were for; %s", HOW)
  return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, user)
  if not asks_for_gpus(job) then
    return slurm.SUCCESS
  end
  return check(job, user)
end

-- scontrol update: a comment may be corrected, not emptied
function slurm_job_modify(job, before, partitions, user)
  if job.comment == nil or not asks_for_gpus(before) then
    return slurm.SUCCESS
  end
  return check({ comment = job.comment, wckey = job.wckey or before.wckey }, user)
end

return slurm.SUCCESS
