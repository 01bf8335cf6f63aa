#!/bin/bash
# Slurm Epilog: remove the job from the files that prolog.sh wrote.
# A job that started before the scripts were installed has no entry, and /run is empty after a reboot: neither is an error.
# Slurm drains the node if an Epilog fails, so this script always exits 0.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
dir=${GPU_JOBS_DIR:-/run/gpu-jobs}

[[ -n ${SLURM_JOB_ID:-} && -d $dir ]] || exit 0
(
	flock -w 10 9 || exit 0
	# Every file, not only those of SLURM_JOB_GPUS: the variable is not set in every epilog.
	for file in "$dir"/*; do
		[[ -f $file ]] && grep -qxF "$SLURM_JOB_ID" "$file" || continue
		# The exporter skips names that are not numbers, and a rename never shows it half a file.
		grep -vxF "$SLURM_JOB_ID" "$file" >"$dir/.rest"
		(($? < 2)) || continue # a full /run: keep the other jobs' lines
		chmod 644 "$dir/.rest" && mv -f "$dir/.rest" "$file"
	done
) 9>"$dir/.lock"
exit 0
