#!/bin/sh
# Appends ten lines about a GPU job to its own output while it ends: GPUs, utilization, GPU-hours, cost, one finding.
# Slurm runs it as TaskEpilog (slurm.conf), as the user; what a TaskEpilog prints goes nowhere, so the file of the output is opened.

[ -n "${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-${CUDA_VISIBLE_DEVICES:-}}}" ] || exit 0
# once a job, with its batch script, not once a step
[ -z "${SLURM_STEP_ID:-}" ] || exit 0

job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
out=$(scontrol show job "$job" 2>/dev/null | sed -n 's/^ *StdOut=//p' | head -n 1)
[ -f "$out" ] && [ -w "$out" ] || exit 0
timeout 10 "${SEFF_COMMAND:-loadfactor}" seff "$job" --notice --server "${SEFF_SERVER:-http://loadfactor:9417}" \
  ${SEFF_TOKEN_FILE:+--token-file "$SEFF_TOKEN_FILE"} >>"$out" 2>/dev/null
exit 0
