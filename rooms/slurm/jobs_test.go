package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const (
	GPUA, GPUB   = "GPU-aaaaaaaa-0000-4000-8000-000000000001", "GPU-bbbbbbbb-0000-4000-8000-000000000002"
	GPUC, GPUD   = "GPU-cccccccc-0000-4000-8000-000000000003", "GPU-dddddddd-0000-4000-8000-000000000004"
	migD3, migD7 = "MIG-d3d3d3d3-0000-4000-8000-000000000013", "MIG-d7d7d7d7-0000-4000-8000-000000000017"
)

func node() *gpu.Inventory {
	return &gpu.Inventory{GPUs: []gpu.InventoryGPU{{UUID: GPUA, Index: 0}, {UUID: GPUB, Index: 1}, {UUID: GPUC, Index: 2},
		{UUID: GPUD, Index: 3, MIG: true, Instances: []gpu.Instance{{UUID: migD3, GI: 3}, {UUID: migD7, GI: 7}}}}}
}

// jobDir is a job mapping in a temporary directory.
type jobDir struct {
	t    *testing.T
	dir  string
	now  time.Time
	jobs *Jobs
}

func newJobDir(t *testing.T) *jobDir {
	f := &jobDir{t: t, dir: t.TempDir(), now: time.Unix(1e9, 0)}
	f.jobs = Open(Options{Dir: f.dir, Clock: func() time.Time { return f.now }})
	return f
}

func (f *jobDir) write(name, text string) {
	f.t.Helper()
	must.OK(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644))
}

func (f *jobDir) poll() gpu.Allocations {
	f.jobs.Poll(context.Background())
	return f.jobs.Allocations(node())
}

func (f *jobDir) source() gpu.Source { return f.jobs.Allocations(nil).Sources[0] }

func TestParseJobs(t *testing.T) {
	for text, c := range map[string]struct {
		want    []string
		refused int
	}{
		"":                               {nil, 0},
		"42":                             {[]string{"42"}, 0},
		"42\n":                           {[]string{"42"}, 0},
		"43\r\n\n 42 \n43\n":             {[]string{"42", "43"}, 0},
		"42_7\n43+1\n44.batch\n":         {[]string{"42_7", "43+1", "44.batch"}, 0},
		"42 43\n":                        {nil, 1},
		"../../etc/passwd\n":             {nil, 1},
		"<script>alert(1)</script>\n5\n": {[]string{"5"}, 1},
		"\x1b[31m\n":                     {nil, 1},
		"ml/train-0\n":                   {nil, 1},
		strings.Repeat("9", 64) + "\n":   {[]string{strings.Repeat("9", 64)}, 0},
		strings.Repeat("9", 65) + "\n":   {nil, 1},
		"-1\n":                           {nil, 1},
		"\x00\n":                         {nil, 1},
	} {
		if got, refused := parseJobs(text); !slices.Equal(got, c.want) || refused != c.refused {
			t.Errorf("%q: %q and %d refused", text, got, refused)
		}
	}
	var many strings.Builder
	for i := range maxJobs + 5 {
		fmt.Fprintln(&many, i)
	}
	if got, refused := parseJobs(many.String()); len(got) != maxJobs || refused != 5 {
		t.Errorf("%d jobs and %d refused", len(got), refused)
	}
}

func FuzzParseJobs(f *testing.F) {
	f.Add("42\n43_1\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, _ := parseJobs(text)
		if len(jobs) > maxJobs || !slices.IsSorted(jobs) {
			t.Errorf("%d jobs", len(jobs))
		}
		for i, j := range jobs {
			if !jobID.MatchString(j) || !strings.Contains(text, j) || i > 0 && jobs[i-1] == j {
				t.Errorf("%q", j)
			}
		}
	})
}

// A file that cannot be understood costs itself alone; its GPU is then not known to be free.
func TestJobFilesThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*jobDir)
		want  string
	}{
		"hostile line": {func(f *jobDir) { f.write("1", "\x1b[31m<b>\n") }, "no job IDs"},
		"too large":    {func(f *jobDir) { f.write("1", strings.Repeat("1\n", maxFileBytes)) }, "larger than 64 KiB"},
		"directory":    {func(f *jobDir) { os.Mkdir(filepath.Join(f.dir, "1"), 0o755) }, "not a regular file"},
		"pipe":         {func(f *jobDir) { syscall.Mkfifo(filepath.Join(f.dir, "1"), 0o644) }, "not a regular file"},
		"link that leads away": {func(f *jobDir) {
			os.WriteFile(f.dir+"-secret", []byte("7\n"), 0o644)
			os.Symlink(f.dir+"-secret", filepath.Join(f.dir, "1"))
		}, "escapes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newJobDir(t)
			f.write("0", "42\n")
			c.spoil(f)
			h := f.poll()
			if len(h.List) != 1 || h.List[0].GPU != GPUA || !h.Known || !h.Uncertain {
				t.Errorf("%+v", h)
			}
			if s := f.source(); s.Up || s.Errors != 1 || !strings.Contains(s.Message, c.want) || strings.Contains(s.Message, "\x1b") {
				t.Errorf("%+v, want %q", s, c.want)
			}
			os.RemoveAll(filepath.Join(f.dir, "1"))
			if h := f.poll(); h.Uncertain || !h.Sources[0].Up {
				t.Errorf("after it was put right: %+v", h)
			}
		})
	}
}

func TestDefaultClock(t *testing.T) {
	j := Open(Options{Dir: t.TempDir()})
	j.Poll(t.Context())
	if h := j.Allocations(node()); !h.Known || !h.Sources[0].LastSuccess.Present() {
		t.Errorf("%+v", h)
	}
}
