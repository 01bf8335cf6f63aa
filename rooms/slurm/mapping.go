package slurm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The limits of what is read of the directory.
const (
	maxFiles     = 4096
	maxFileBytes = 64 << 10
	maxJobs      = 1024 // of one file
	maxJobID     = 64
)

var (
	fileName = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,2}))?$`)
	// jobID is a job as Slurm writes it, up to maxJobID: 42, 42_7 of an array, 42+1 of a heterogeneous job.
	jobID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.+-]*$`)
)

// mapping is the content of the directory at one time. It is immutable.
type mapping struct {
	files []jobFile
	// incomplete means that some GPU may be allocated to a job that could not be read.
	incomplete bool
}

// jobFile is the jobs of one GPU or GPU instance.
type jobFile struct {
	index, gi int // gi is -1 for the GPU itself
	jobs      []string
	since     map[string]gpu.Opt[time.Time]
}

// setSince carries over the start of each allocation from the mapping before; new ones start now. What the first
// mapping has started at an unknown time.
func (m *mapping) setSince(before *mapping, now time.Time) {
	for i := range m.files {
		f := &m.files[i]
		f.since = map[string]gpu.Opt[time.Time]{}
		if before == nil {
			continue
		}
		at := slices.IndexFunc(before.files, func(g jobFile) bool { return g.index == f.index && g.gi == f.gi })
		for _, job := range f.jobs {
			f.since[job] = gpu.Some(now)
			if at >= 0 && slices.Contains(before.files[at].jobs, job) {
				f.since[job] = before.files[at].since[job]
			}
		}
	}
}

// readMapping reads all files of the directory. A problem only affects its file or line.
func readMapping(dir string) (m *mapping, problems []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(names) > maxFiles {
		return nil, nil, fmt.Errorf("%s has more than %d files", dir, maxFiles)
	}
	slices.Sort(names)
	m = &mapping{}
	for _, name := range names {
		parts := fileName.FindStringSubmatch(name)
		if parts == nil {
			continue // of another program
		}
		f := jobFile{gi: -1}
		f.index, _ = strconv.Atoi(parts[1])
		if parts[2] != "" {
			f.gi, _ = strconv.Atoi(parts[2])
		}
		jobs, invalid, err := readFile(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the job has just finished
		case err != nil:
			problems = append(problems, "cannot read "+dir+"/"+name+": "+err.Error())
			m.incomplete = true
			continue
		case invalid > 0:
			problems = append(problems, fmt.Sprintf("%s/%s has %d lines that are no job IDs", dir, name, invalid))
			m.incomplete = true
		}
		f.jobs = jobs
		m.files = append(m.files, f)
	}
	return m, problems, nil
}

// readFile reads the job IDs of one file, and counts the invalid lines.
func readFile(root *os.Root, name string) (jobs []string, invalid int, err error) {
	// A blocking open of a named pipe would wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, 0, err
	}
	if len(text) > maxFileBytes {
		return nil, 0, fmt.Errorf("larger than %d KiB", maxFileBytes>>10)
	}
	jobs, invalid = parseJobs(string(text))
	return jobs, invalid, nil
}

// parseJobs returns each job ID once, sorted.
func parseJobs(text string) (jobs []string, invalid int) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || seen[line]:
		case len(line) > maxJobID || !jobID.MatchString(line) || len(jobs) >= maxJobs:
			invalid++
		default:
			seen[line] = true
			jobs = append(jobs, line)
		}
	}
	slices.Sort(jobs)
	return jobs, invalid
}
