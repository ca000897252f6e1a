#!/bin/sh
# Appends ten lines about a GPU job to its output after its end, when its last samples are there.
# Slurm runs it as EpilogSlurmctld (slurm.conf), on the controller as SlurmUser, so the output must lie on a shared file system.
# Slurm gives it no environment but its own. The output is opened as the user: SlurmUser may be allowed to write more.

[ -n "$SLURM_JOB_ID" ] || exit 0
shown=$(scontrol show job -o "$SLURM_JOB_ID") || exit 0
case "$shown" in *gres/gpu*) ;; *) exit 0 ;; esac
out=$(printf '%s\n' "$shown" | sed -n 's/.* StdOut=\([^ ]*\).*/\1/p')
case "$out" in "" | /dev/null) exit 0 ;; esac

sleep "${SEFF_WAIT_S:-60}"
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
said=$(timeout 30 "${SEFF_COMMAND:-loadfactor}" seff "${job:-$SLURM_JOB_ID}" --notice --server "${SEFF_SERVER:-http://loadfactor:9417}" \
  ${SEFF_TOKEN_FILE:+--token-file "$SEFF_TOKEN_FILE"} 2>/dev/null)
[ -n "$said" ] || exit 0
printf '%s\n' "$said" | setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --clear-groups tee -a "$out" >/dev/null 2>&1
exit 0
