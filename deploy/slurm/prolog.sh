#!/bin/bash
# Slurm Prolog: record which job has which GPU, for gpu-exporter --slurm.job-mapping-dir=/run/gpu-jobs.
# One file per GPU, named by its NVML index (0) or by index and GPU instance (0.3); each line is the ID of a job.
# Slurm drains the node if a Prolog fails, so this script always exits 0.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
dir=${GPU_JOBS_DIR:-/run/gpu-jobs}

[[ -n ${SLURM_JOB_ID:-} && -n ${SLURM_JOB_GPUS:-} ]] || exit 0
mkdir -p -m 755 "$dir" || exit 0
(
	# The epilog of another job on a shared GPU may write the same file.
	flock -w 10 9 || exit 0
	for gpu in ${SLURM_JOB_GPUS//,/ }; do
		grep -qsxF "$SLURM_JOB_ID" "$dir/$gpu" || echo "$SLURM_JOB_ID" >>"$dir/$gpu"
	done
) 9>"$dir/.lock"
exit 0
