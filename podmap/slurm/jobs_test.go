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
	f.jobs = New(Options{Dir: f.dir, Clock: func() time.Time { return f.now }})
	return f
}

func (f *jobDir) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
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

func TestJobsComeAndGo(t *testing.T) {
	f := newJobDir(t)
	if h := f.jobs.Allocations(node()); h.Known || !h.Configured || h.Sources[0].Up || h.Sources[0].Message == "" {
		t.Errorf("before the first reading: %+v", h)
	}
	h := f.poll()
	if !h.Known || h.Uncertain || len(h.List) != 0 || !h.Sources[0].Up {
		t.Errorf("an empty directory: %+v", h)
	}
	f.now = f.now.Add(time.Minute)
	f.write("0", "42\n")
	f.write("README", "another's\n")
	f.write("00", "7\n")
	f.write(".0.swp", "7\n")
	start := gpu.Some(f.now)
	f.poll()
	f.now = f.now.Add(time.Minute)
	f.write("0", "42\n43\n")
	h = f.poll()
	if len(h.List) != 2 || h.List[0].Since != start || h.List[1].Since != gpu.Some(f.now) || h.List[0].Share != gpu.Some(gpu.Ratio(0.5)) ||
		!h.List[0].Shared || h.List[0].Resource != "gres/gpu" {
		t.Errorf("%+v", h.List)
	}
	if len(h.Pods) != 2 || h.Pods[0] != (gpu.PodRef{Pod: "slurm/42"}) ||
		!slices.Equal(h.Resources, []gpu.ResourceCount{{Resource: "gres/gpu", Allocated: 1}}) {
		t.Errorf("%+v, %+v", h.Pods, h.Resources)
	}
	f.write("0", "")
	if h = f.poll(); len(h.List) != 0 || h.Uncertain {
		t.Errorf("after the epilog: %+v", h)
	}
}

// What started before the exporter has an unknown start.
func TestJobsOfTheFirstReadingHaveNoStart(t *testing.T) {
	f := newJobDir(t)
	f.write("1", "42\n")
	f.poll()
	f.now = f.now.Add(time.Minute)
	if h := f.poll(); len(h.List) != 1 || h.List[0].Since.Present() || h.List[0].GPU != GPUB {
		t.Errorf("%+v", h.List)
	}
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
	j := New(Options{Dir: t.TempDir()})
	j.Poll(t.Context())
	if h := j.Allocations(node()); !h.Known || !h.Sources[0].LastSuccess.Present() {
		t.Errorf("%+v", h)
	}
}

// A job on several GPUs that are not visible here has each of them counted.
func TestJobsOnUnknownGPUs(t *testing.T) {
	f := newJobDir(t)
	for _, name := range []string{"0", "8", "9"} {
		f.write(name, "42\n")
	}
	h := f.poll()
	want := []gpu.Unresolved{{Container: gpu.Container{Pod: "slurm/42"}, Resource: "gres/gpu", Devices: 2}}
	if !slices.Equal(h.Unresolved, want) || len(h.List) != 1 || !h.Uncertain {
		t.Errorf("%+v", h)
	}
}

func TestJobDirThatIsNotThere(t *testing.T) {
	f := newJobDir(t)
	f.write("0", "42\n")
	f.poll()
	os.RemoveAll(f.dir)
	f.now = f.now.Add(time.Minute)
	if h := f.poll(); !h.Known || len(h.List) != 1 || h.Sources[0].Up || h.Sources[0].Errors != 1 ||
		!strings.Contains(h.Sources[0].Message, "does not exist") {
		t.Errorf("within the limit the last good reading stands: %+v", h)
	}
	f.now = f.now.Add(5 * time.Minute)
	if h := f.poll(); h.Known || len(h.List) != 0 {
		t.Errorf("beyond it nothing is known: %+v", h)
	}
}

// Two sources of allocations: what is unknown to one of them must not appear unallocated. Nor is anything while a job is
// mapped to the whole of a MIG GPU of which a pod has an instance.
func TestJobsBesidePods(t *testing.T) {
	pod := gpu.Container{Namespace: "ml", Pod: "train", Name: "main"}
	known := gpu.Allocations{Known: true, Configured: true, Sources: []gpu.Source{{Name: gpu.SourcePodResources}},
		List: []gpu.Allocation{{Container: pod, GPU: GPUA, Share: gpu.Some(gpu.Ratio(0.5)), Shared: true},
			{Container: pod, GPU: GPUD, Instance: migD3, Share: gpu.Some(gpu.Ratio(1))}}}
	f := newJobDir(t)
	if h := f.jobs.Merge(known, node()); !h.Known || !h.Uncertain || len(h.List) != 2 || len(h.Sources) != 2 {
		t.Errorf("jobs that are not known: %+v", h)
	}
	for name, id := range map[string]string{"0": "1", "1": "2", "3": "3", "3.3": "4", "3.7": "5"} {
		f.write(name, id+"\n")
	}
	f.poll()
	if h := f.jobs.Merge(gpu.Allocations{Configured: true}, node()); h.Known || len(h.List) != 0 || len(h.Sources) != 1 {
		t.Errorf("pods that are not known: %+v", h)
	}
	var got []string
	h := f.jobs.Merge(known, node())
	for _, x := range h.List {
		got = append(got, strings.NewReplacer(GPUA, "A", GPUB, "B", GPUD, "D", migD3, "D3", migD7,
			"D7").Replace(fmt.Sprintf("%s %s %s", x.Container.Pod, x.GPU, x.Instance)))
	}
	if want := []string{"slurm/2 B ", "slurm/5 D D7", "train A ", "train D D3"}; !slices.Equal(got, want) || !h.Uncertain || !h.Known {
		t.Errorf("%q, want %q", got, want)
	}
	if len(known.List) != 2 {
		t.Error("the kubelet's allocations were changed")
	}
}
