package proc

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// look is what one look at a process read of it.
type look struct {
	start, command string
	// cgroup is not read of a process that is known.
	cgroup string
	place  Place
	number string // of its Slurm job
	denied error  // of its environment
}

// errEnded is the error of a process that ended, or was replaced by another of its PID.
var errEnded = errors.New("process ended")

// readLook reads a process, without its cgroup if it started at a known time.
func readLook(ctx context.Context, r *host.Reader, procfs string, pid int, known string, numbers bool) (look, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	return host.Read(ctx, r, dir, func() (l look, err error) {
		var ok bool
		if l.start, l.command, ok = readStat(dir); !ok {
			return l, errEnded
		}
		if l.start == known {
			return l, nil
		}
		if l.cgroup, err = readBounded(filepath.Join(dir, "cgroup")); err != nil {
			return l, err
		}
		if l.place = ParseCgroup(l.cgroup); numbers && isSLUID(l.place.SlurmJob) {
			l.number, l.denied = jobNumber(dir)
		}
		// The start time again: the PID may have been reused between the reads.
		if again, ok := startTime(dir); !ok || again != l.start {
			return l, errEnded
		}
		return l, nil
	})
}
