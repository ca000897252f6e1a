#!/bin/sh
# Appends ten lines about a GPU job to its own output when a step of it ends: GPUs, utilization, GPU-hours, cost, one finding.
# Slurm runs it as TaskEpilog (slurm.conf), as the user; what a TaskEpilog prints goes nowhere, so the file of the output is opened.

[ -n "${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-${CUDA_VISIBLE_DEVICES:-}}}" ] || exit 0
# once a step, not once a task
[ "${SLURM_PROCID:-0}" = 0 ] || exit 0

out=$(scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null | sed -n 's/.* StdOut=\([^ ]*\).*/\1/p')
[ -f "$out" ] && [ -w "$out" ] || exit 0
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
timeout 10 "${SEFF_COMMAND:-loadfactor}" seff "${job:-$SLURM_JOB_ID}" --notice --server "${SEFF_SERVER:-http://loadfactor:9417}" \
  ${SEFF_TOKEN_FILE:+--token-file "$SEFF_TOKEN_FILE"} >>"$out" 2>/dev/null
exit 0
