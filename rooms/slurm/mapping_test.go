package slurm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// shown renders allocations: "job GPU [instance] share [shared]", unresolved ones as "job ?devices".
func shown(a gpu.Allocations) []string {
	short := strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7", "slurm/", "")
	var out []string
	for _, x := range a.List {
		line := x.Container.Pod + " " + string(x.GPU)
		if x.Instance != "" {
			line += " " + string(x.Instance)
		}
		if line += fmt.Sprintf(" %.4g", x.Share.Or(-1)); x.Shared {
			line += " shared"
		}
		out = append(out, short.Replace(line))
	}
	for _, u := range a.Unresolved {
		out = append(out, short.Replace(fmt.Sprintf("%s ?%d", u.Container.Pod, u.Devices)))
	}
	return out
}

// Files are named by the GPU's index, and that of a GPU instance; others are another program's.
func TestNamesOfTheFiles(t *testing.T) {
	inv := node()
	inv.GPUs[3].Instances = append(inv.GPUs[3].Instances, gpu.Instance{UUID: "MIG-0", GI: 0}, gpu.Instance{GI: 9})
	for name, want := range map[string]string{
		"0": "7 A 1", "2": "7 C 1", "3.3": "7 D D3 1", "3.7": "7 D D7 1", "3.0": "7 D MIG-0 1", "3": "7 D 1",
		// GPUs and instances that are not here, or not known yet.
		"4": "7 ?1", "9999": "7 ?1", "3.4": "7 ?1", "3.9": "7 ?1", "0.0": "7 ?1", "3.999": "7 ?1",
		"00": "", "03": "", "3.03": "", "10000": "", "3.1000": "", "-1": "", "+1": "", "3.": "", ".3": "", "3.3.0": "", "1x": "", "GPU": "",
	} {
		f := newJobDir(t)
		f.write(name, "7\n")
		f.jobs.Poll(t.Context())
		a := f.jobs.Allocations(inv)
		if got := strings.Join(shown(a), ", "); got != want || !a.Known || a.Uncertain != strings.Contains(want, "?") || !a.Sources[0].Up {
			t.Errorf("%s: %q, uncertain %v, want %q", name, got, a.Uncertain, want)
		}
		if f.jobs.Poll(t.Context()); len(f.jobs.Allocations(nil).List) > 0 {
			t.Errorf("%s: a GPU of no inventory", name)
		}
	}
	// Two GPUs that claim one index: neither is the job's for certain.
	f := newJobDir(t)
	f.write("1", "7\n")
	f.jobs.Poll(t.Context())
	inv.GPUs[0].Index = 1
	if a := f.jobs.Allocations(inv); !slices.Equal(shown(a), []string{"7 ?1"}) || !a.Uncertain {
		t.Errorf("%q", shown(a))
	}
}

// Jobs of one GPU have equal parts, and each GPU with jobs is one allocated device.
func TestSharesOfJobs(t *testing.T) {
	f := newJobDir(t)
	f.write("0", "1\n2\n3\n")
	f.write("1", "2\n")
	f.write("2", "\n")
	f.write("3.3", "1\n4\n")
	f.write("8", "5\n1\n")
	f.write("9", "5\n") // each GPU that is not here counts
	a := f.poll()
	want := []string{"1 A 0.3333 shared", "1 D D3 0.5 shared", "2 A 0.3333 shared", "2 B 1", "3 A 0.3333 shared", "4 D D3 0.5 shared",
		"1 ?1", "5 ?2"}
	if !slices.Equal(shown(a), want) {
		t.Errorf("%q, want %q", shown(a), want)
	}
	if len(a.Resources) != 1 || a.Resources[0].Resource != "gres/gpu" || a.Resources[0].Allocated != 5 || len(a.Pods) != 5 {
		t.Errorf("%+v, %+v", a.Resources, a.Pods)
	}
	for _, x := range a.List {
		if x.Source != gpu.SourceJobs || x.Resource != "gres/gpu" || x.Container.Namespace != "" || x.Container.Name != "" {
			t.Errorf("%+v", x)
		}
	}
	f = newJobDir(t)
	f.write("0", "")
	if a := f.poll(); len(a.Resources)+len(a.Pods) != 0 {
		t.Errorf("no jobs: %+v", a)
	}
}

// The start of an allocation is when its job was first in the file of its GPU.
func TestStartOfJobs(t *testing.T) {
	f := newJobDir(t)
	start := f.now
	at := func(minutes int) gpu.Opt[time.Time] { return gpu.Some(start.Add(time.Duration(minutes) * time.Minute)) }
	none := gpu.None[time.Time]()
	for i, c := range []struct {
		files map[string]string
		want  map[string]gpu.Opt[time.Time] // by job and GPU
	}{
		{map[string]string{"0": "1", "3": "2"}, map[string]gpu.Opt[time.Time]{"1 " + GPUA: none, "2 " + GPUD: none}},
		{map[string]string{"0": "1\n3", "1": "1", "3.3": "2"}, map[string]gpu.Opt[time.Time]{"1 " + GPUA: none, "3 " + GPUA: at(1),
			"1 " + GPUB: at(1), "2 " + GPUD: none, "2 " + migD3: at(1)}},
		{map[string]string{"0": "3", "1": "1", "3.7": "2"}, map[string]gpu.Opt[time.Time]{"3 " + GPUA: at(1), "1 " + GPUB: at(1),
			"2 " + GPUD: none, "2 " + migD3: at(1), "2 " + migD7: at(2)}},
		{map[string]string{"0": "1\n3"}, map[string]gpu.Opt[time.Time]{"1 " + GPUA: at(3), "3 " + GPUA: at(1), "1 " + GPUB: at(1),
			"2 " + GPUD: none, "2 " + migD3: at(1), "2 " + migD7: at(2)}},
	} {
		for name, text := range c.files {
			f.write(name, text)
		}
		a := f.poll()
		for _, x := range a.List {
			place := x.GPU
			if x.Instance != "" {
				place = x.Instance
			}
			key := strings.TrimPrefix(x.Container.Pod, "slurm/") + " " + string(place)
			if want, ok := c.want[key]; !ok || x.Since != want {
				t.Errorf("poll %d: %s since %v, want %v", i, key, x.Since, want)
			}
		}
		if len(a.List) != len(c.want) {
			t.Errorf("poll %d: %d allocations, want %d", i, len(a.List), len(c.want))
		}
		f.now = f.now.Add(time.Minute)
	}
}

// As much as may be is read; a directory of more files is refused as a whole, for one of those that are not read may have a
// job.
func TestBoundsOfTheMapping(t *testing.T) {
	f := newJobDir(t)
	f.write("0", strings.Repeat("7\n", maxFileBytes/2))
	f.write("another", "")
	for i := range maxFiles - 2 {
		must.OK(t, os.Link(filepath.Join(f.dir, "another"), filepath.Join(f.dir, fmt.Sprint("another", i))))
	}
	if a := f.poll(); !a.Known || a.Uncertain || !a.Sources[0].Up || !slices.Equal(shown(a), []string{"7 A 1"}) {
		t.Errorf("%q, %+v", shown(a), a.Sources)
	}
	f.write("0", "42\n")
	f.write("1", "8\n")
	if a := f.poll(); a.Sources[0].Up || !slices.Equal(shown(a), []string{"7 A 1"}) ||
		a.Sources[0].Message != f.dir+" has more than 4096 files; using the response from 0s ago" {
		t.Errorf("one more file: %q, %+v", shown(a), a.Sources)
	}
	f.now = f.now.Add(5*time.Minute + 1)
	if a := f.poll(); a.Known {
		t.Errorf("%q are known", shown(a))
	}
	f = newJobDir(t)
	f.write("0", strings.Repeat("7\n", maxFileBytes/2)+"\n")
	if a := f.poll(); !a.Known || !a.Uncertain || a.Sources[0].Message != "cannot read "+f.dir+"/0: larger than 64 KiB" {
		t.Errorf("one more byte: %+v", a)
	}
}

// The health of the source: its name, age, errors and message, and when it is logged.
func TestHealthOfTheMapping(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	now := time.Unix(1e9, 0)
	tick := time.Duration(0)
	j := Open(Options{Dir: dir, MaxAge: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Clock: func() time.Time { now = now.Add(tick); return now }})
	source := func() gpu.Source { return j.Allocations(node()).Sources[0] }
	write := func(name, text string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if s := source(); s.Name != gpu.SourceJobs || s.Message != "Slurm job mapping not read yet" || s.Up || s.Duration.Present() {
		t.Errorf("%+v", s)
	}
	if a := j.Allocations(node()); a.Known || !a.Configured {
		t.Errorf("%+v", a)
	}
	tick = time.Second
	j.Poll(t.Context())
	tick = 0
	if s := source(); !s.Up || s.Duration != gpu.Some(2*time.Second) || s.LastSuccess != gpu.Some(now) {
		t.Errorf("%+v", s)
	}
	write("0", "a b\nc d\n")
	write("1", "x y\n")
	write("2", "1\n")
	for range 2 {
		j.Poll(t.Context())
	}
	if s := source(); s.Up || s.Errors != 4 || s.Message != dir+"/0 has 2 lines that are no job IDs; and 1 more errors" {
		t.Errorf("%+v", s)
	}
	write("0", "5\n")
	j.Poll(t.Context())
	if s := source(); s.Errors != 5 || s.Message != dir+"/1 has 1 lines that are no job IDs" {
		t.Errorf("%+v", s)
	}
	must.OK(t, os.RemoveAll(dir))
	for range 2 {
		j.Poll(t.Context())
	}
	now = now.Add(time.Minute)
	if a := j.Allocations(node()); !a.Known || a.Sources[0].Errors != 7 || a.Sources[0].Message !=
		dir+" does not exist: mount it read-only, or set its path; using the response from 1m0s ago" {
		t.Errorf("%+v", a)
	}
	now = now.Add(1)
	if a := j.Allocations(node()); a.Known || !strings.HasSuffix(a.Sources[0].Message, "no longer used") || len(a.List) > 0 {
		t.Errorf("%+v", a)
	}
	must.OK(t, os.WriteFile(dir, nil, 0o600))
	if j.Poll(t.Context()); !strings.HasPrefix(source().Message, "open "+dir+": not a directory") {
		t.Errorf("%+v", source())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := fmt.Sprint(source())
	if j.Poll(ended); fmt.Sprint(source()) != before {
		t.Errorf("the end of the program: %+v", source())
	}
	if got := j.explain(&os.PathError{Op: "open", Path: dir, Err: syscall.EACCES}).Error(); got != dir+
		": permission denied: run as user 0" {
		t.Error(got)
	}
	if n := strings.Count(log.String(), `level=WARN msg="cannot read the Slurm job mapping" err=`); n != 4 || strings.Count(log.String(),
		"\n") != 4 {
		t.Errorf("%s", log.String())
	}
}

// A directory that hangs is given up, and read again when it responds.
func TestAMappingThatHangs(t *testing.T) {
	f := newJobDir(t)
	f.write("0", "1\n")
	f.poll()
	f.jobs.reader = host.NewReader(20 * time.Millisecond)
	hangs := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = host.Read(t.Context(), f.jobs.reader, f.dir, func() (int, error) { <-hangs; return 0, nil })
	}()
	<-done
	if a := f.poll(); a.Sources[0].Up || !a.Known || len(a.List) != 1 ||
		a.Sources[0].Message != f.dir+": no response within 20ms: a hung file system, or not a file; using the response from 0s ago" {
		t.Errorf("%+v", a.Sources)
	}
	close(hangs)
	f.jobs.reader.Over = func(string) <-chan time.Time { return nil } // what was given up is refused until it has returned
	testkit.Until(func() bool { return f.poll().Sources[0].Up })
}

// What pods have is not the jobs', and where one of both is unknown nothing is unallocated for certain.
func TestMergedAllocations(t *testing.T) {
	on := func(pod string, dev, instance gpu.UUID) gpu.Allocation {
		return gpu.Allocation{Container: gpu.Container{Pod: pod}, GPU: dev, Instance: instance, Share: gpu.Some(gpu.Ratio(1))}
	}
	for _, c := range []struct {
		name  string
		pods  []gpu.Allocation
		files map[string]string
		want  []string
	}{ // of a name with "may be", no GPU is known to be unallocated
		{"different GPUs", []gpu.Allocation{on("p", GPUA, "")}, map[string]string{"1": "1"}, []string{"p A 1", "1 B 1"}},
		{"the same GPU", []gpu.Allocation{on("p", GPUA, "")}, map[string]string{"0": "1"}, []string{"p A 1"}},
		{"an instance of the pod's GPU", []gpu.Allocation{on("p", GPUD, "")}, map[string]string{"3.3": "1"}, []string{"p D 1"}},
		{"the other instance may be the job's", []gpu.Allocation{on("p", GPUD, migD3)}, map[string]string{"3": "1"}, []string{"p D D3 1"}},
		{"the same instance", []gpu.Allocation{on("p", GPUD, migD3)}, map[string]string{"3.3": "1"}, []string{"p D D3 1"}},
		{"another instance", []gpu.Allocation{on("p", GPUD, migD3)}, map[string]string{"3.7": "1"}, []string{"p D D3 1", "1 D D7 1"}},
		{"no pods", nil, map[string]string{"3.7": "1", "0": "2"}, []string{"1 D D7 1", "2 A 1"}},
		{"unresolved jobs, which may be anywhere", []gpu.Allocation{on("p", GPUA, "")}, map[string]string{"8": "1"}, []string{"p A 1",
			"1 ?1"}},
	} {
		f := newJobDir(t)
		for name, text := range c.files {
			f.write(name, text)
		}
		f.poll()
		pods := gpu.Allocations{Known: true, Configured: true, List: c.pods, Sources: []gpu.Source{{Name: "x"}},
			Pods:      []gpu.PodRef{{Pod: "p"}},
			Resources: []gpu.ResourceCount{{Resource: "nvidia.com/gpu"}}, Unresolved: nil}
		a := f.jobs.Merge(pods, node())
		if !slices.Equal(shown(a), c.want) || !a.Known || a.Uncertain != strings.Contains(c.name, "may be") {
			t.Errorf("%s: %q, uncertain %v, want %q", c.name, shown(a), a.Uncertain, c.want)
		}
		if len(a.Sources) != 2 || len(a.Resources) != 2 || !slices.Contains(a.Pods, gpu.PodRef{Pod: "p"}) ||
			!slices.Contains(a.Pods, gpu.PodRef{Pod: "slurm/1"}) {
			t.Errorf("%s: %+v", c.name, a)
		}
		pods.Uncertain, pods.Unresolved = true, []gpu.Unresolved{{Container: gpu.Container{Pod: "q"}, Devices: 3}}
		if a := f.jobs.Merge(pods, node()); !a.Uncertain || !slices.Contains(shown(a), "q ?3") {
			t.Errorf("%s: what is unknown of pods is lost: %q", c.name, shown(a))
		}
	}
	// Without the pods' allocations nothing is known, without those of jobs no GPU is known to be unallocated.
	f := newJobDir(t)
	pods := gpu.Allocations{Known: true, List: []gpu.Allocation{on("p", GPUA, "")}, Sources: []gpu.Source{{Name: "x"}}}
	if a := f.jobs.Merge(pods, node()); !a.Known || !a.Uncertain || len(a.List) != 1 || len(a.Sources) != 2 {
		t.Errorf("jobs that are not known: %+v", a)
	}
	f.write("1", "1\n")
	f.poll()
	if a := f.jobs.Merge(gpu.Allocations{}, node()); a.Known || len(a.List) != 0 || len(a.Sources) != 1 {
		t.Errorf("pods that are not known: %+v", a)
	}
	if f.jobs.Merge(pods, node()); len(pods.List) != 1 {
		t.Error("the kubelet's allocations were changed")
	}
}
