package proc

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"time"
)

// jobVariable is the one variable of a Slurm process's environment that is read.
const jobVariable = "SLURM_JOB_ID"

// forgetAfter is when a process or job is forgotten that was not looked up.
const forgetAfter = 5 * time.Minute

// slurmJobs has the numbers of the jobs whose cgroup names them only by their SLUID.
type slurmJobs struct {
	bySLUID map[string]*slurmJob
	// denied is the error of the last environment that could not be read for lack of a permission.
	denied error
}

// slurmJob is the number that the processes of one SLUID have in their environments.
type slurmJob struct {
	number string
	// disputed means that two processes have different numbers: an environment is the user's to change, and then none
	// counts.
	disputed bool
	used     time.Time
}

// isSLUID reports whether a job is a SLUID, and no number.
func isSLUID(job string) bool { return slurmSLUID.MatchString(job) }

// jobNumber returns the job number in the environment of the process in dir; empty where there is none.
func jobNumber(dir string) (string, error) {
	number, _, err := variable(filepath.Join(dir, "environ"), jobVariable)
	if n, err := strconv.ParseUint(number, 10, 32); err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
		number = ""
	}
	return number, err
}

// note records the number that the environment of a process of a job has, or the error of reading it.
func (s *slurmJobs) note(sluid, number string, denied error, now time.Time) {
	if !isSLUID(sluid) {
		return
	}
	switch {
	case denied == nil:
		s.denied = nil
	case errors.Is(denied, fs.ErrPermission):
		s.denied = denied
	}
	if number == "" {
		return
	}
	job := s.bySLUID[sluid]
	if job == nil {
		job = &slurmJob{number: number}
		s.bySLUID[sluid] = job
	}
	job.used = now
	job.disputed = job.disputed || job.number != number
}

// name returns the number of a job, or its SLUID where that is unknown. A number that two SLUIDs have is neither's.
func (s *slurmJobs) name(job string, now time.Time) string {
	found := s.bySLUID[job]
	if found == nil {
		return job
	}
	found.used = now
	if found.disputed {
		return job
	}
	for sluid, other := range s.bySLUID {
		if sluid != job && other.number == found.number && now.Sub(other.used) <= forgetAfter {
			return job
		}
	}
	return found.number
}

func (s *slurmJobs) forget(now time.Time) {
	maps.DeleteFunc(s.bySLUID, func(_ string, job *slurmJob) bool { return now.Sub(job.used) > forgetAfter })
}
