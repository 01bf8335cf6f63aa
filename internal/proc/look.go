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

func processDir(procfs string, pid int) string { return filepath.Join(procfs, strconv.Itoa(pid)) }

// readLook reads a process, see lookAt.
func readLook(ctx context.Context, r *host.Reader, procfs string, pid int, known look, numbers bool) (look, error) {
	dir := processDir(procfs, pid)
	return host.Read(ctx, r, dir, func() (look, error) { return lookAt(dir, known, numbers) })
}

// lookAt reads a process. Of one that started when the known one did only the start is read, unless known has its
// cgroup: then its place is not parsed again where the cgroup is the same.
func lookAt(dir string, known look, numbers bool) (l look, err error) {
	if l.start, l.command, err = readStat(dir); err != nil {
		return l, err
	}
	same := l.start == known.start
	if same && known.cgroup == "" {
		return l, nil
	}
	if l.cgroup, err = readBounded(filepath.Join(dir, "cgroup")); err != nil {
		return l, err
	}
	if l.place = known.place; !same || l.cgroup != known.cgroup {
		l.place = ParseCgroup(l.cgroup)
	}
	if numbers && isSLUID(l.place.SlurmJob) {
		l.number, l.denied = jobNumber(dir)
	}
	// The start time again: the PID may have been reused between the reads.
	if again, _, err := readStat(dir); err != nil || again != l.start {
		return l, errEnded
	}
	return l, nil
}
