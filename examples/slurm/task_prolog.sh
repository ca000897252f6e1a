#!/bin/sh
# Says in the output of a GPU job that it has no experiment, and gives the environment of one that has it in its comment.
# Slurm runs it as TaskProlog (slurm.conf), as the user: lines "print …" go to the job's output, lines "export …" to its environment.

[ -n "${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-${CUDA_VISIBLE_DEVICES:-}}}" ] || exit 0
[ -z "${LOADFACTOR_EXPERIMENT:-}" ] || exit 0

case "${SLURM_JOB_COMMENT:-}" in
  "" | *[!A-Za-z0-9._/-]*) ;;
  *)
    echo "export LOADFACTOR_EXPERIMENT=$SLURM_JOB_COMMENT"
    exit 0
    ;;
esac

# once a step, not once a task
[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
echo "print loadfactor: this job holds GPUs and names no experiment; submit it with --comment=EXPERIMENT"
echo "print or set LOADFACTOR_EXPERIMENT in its script"
