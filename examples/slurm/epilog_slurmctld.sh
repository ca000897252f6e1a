#!/bin/sh
# Appends ten lines about a GPU job to its output after its end, when its last samples are there.
# Slurm runs it as EpilogSlurmctld (slurm.conf), on the controller as SlurmUser, and gives it no environment but its own. It opens the
# output as the job's user, so SlurmUser must be root, and the output must lie on a file system that the controller shares.
# The job is COMPLETING until this ends, while others have its GPUs; what this left running would be killed.

[ -n "$SLURM_JOB_ID" ] || exit 0
# the last task of an array has the array's number as its own
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
shown=$(scontrol show job "$job") || exit 0
case "$shown" in *gres/gpu*) ;; *) exit 0 ;; esac
out=$(printf '%s\n' "$shown" | sed -n 's/^ *StdOut=//p' | head -n 1)
case "$out" in "" | /dev/*) exit 0 ;; esac

sleep "${SEFF_WAIT_S:-60}"
said=$(timeout 30 "${SEFF_COMMAND:-loadfactor}" seff "$job" --notice --server "${SEFF_SERVER:-http://loadfactor:9417}" \
  ${SEFF_TOKEN_FILE:+--token-file "$SEFF_TOKEN_FILE"})
[ -n "$said" ] || exit 0
printf '%s\n' "$said" | setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --clear-groups \
  sh -c '[ -f "$1" ] && exec cat >>"$1"' sh "$out"
exit 0
