package proc

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"
)

// jobVariable is the one variable of a Slurm process's environment that is read.
const jobVariable = "SLURM_JOB_ID"

// sluidClaim is what the processes below one SLUID say of their job's number.
type sluidClaim struct {
	job string
	// torn is set when two processes told different numbers: an environment is the user's to change, and then
	// nobody is believed.
	torn bool
	used time.Time
}

// isSLUID tells a SLUID from the number of a job.
func isSLUID(job string) bool { return slurmSLUID.MatchString(job) }

// askNumber returns what a process was told of its job's number, empty where it is none.
func (f *Finder) askNumber(dir string) string {
	job, _, err := variable(filepath.Join(dir, "environ"), jobVariable)
	switch {
	case err == nil:
		f.closed = nil
	case errors.Is(err, fs.ErrPermission):
		f.closed = err
	}
	if n, err := strconv.ParseUint(job, 10, 32); err != nil || n == 0 || strconv.FormatUint(n, 10) != job {
		return ""
	}
	return job
}

// claim notes what a process that was just met says of its job's number.
func (f *Finder) claim(sluid, job string) {
	c := f.sluids[sluid]
	if c == nil {
		c = &sluidClaim{job: job}
		f.sluids[sluid] = c
	}
	c.used = f.o.Clock()
	c.torn = c.torn || c.job != job
}

// jobOf returns by what a Slurm job goes: its number, and where that cannot be told its SLUID. A number that two
// SLUIDs claim is neither's.
func (f *Finder) jobOf(job string) string {
	c := f.sluids[job]
	if c == nil {
		return job
	}
	c.used = f.o.Clock()
	if c.torn {
		return job
	}
	for other, d := range f.sluids {
		if other != job && d.job == c.job && c.used.Sub(d.used) <= forgetAfter {
			return job
		}
	}
	return c.job
}

// JobNumbers returns nil unless an environment that should tell the number of a Slurm job was closed to this
// process; then the reason. It belongs to the goroutine of Find.
func (f *Finder) JobNumbers() error { return f.closed }
