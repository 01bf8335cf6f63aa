package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// fractionDirs are the directories and the file that the GPU fractioning operator and the kubelet write.
type fractionDirs struct{ records, leases, logs string }

func newFractionDirs(t *testing.T) fractionDirs {
	t.Helper()
	dir := t.TempDir()
	d := fractionDirs{filepath.Join(dir, "map"), filepath.Join(dir, "leases.json"), filepath.Join(dir, "containers")}
	for _, name := range []string{d.records, d.logs} {
		must.OK(t, os.Mkdir(name, 0o700))
	}
	return d
}

func (d fractionDirs) read(t *testing.T) string {
	t.Helper()
	got, undecoded, err := readFractions(d.records, d.leases, d.logs)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, f := range got.List {
		out = append(out, fmt.Sprintf("%s/%s/%s %s %v %v %d MiB %d %%", f.Namespace, f.Pod, f.Container, f.UID, f.UUIDs, f.Minors, f.MiB,
			f.Percent))
	}
	if undecoded > 0 {
		out = append(out, fmt.Sprint(undecoded, " undecoded"))
	}
	if got.Partial != (undecoded > 0) {
		t.Errorf("partial %v, %d undecoded", got.Partial, undecoded)
	}
	return strings.Join(out, "; ")
}

// What the operator recorded on the node about a container: its GPUs, its limits, and its name by the link of its log.
func TestRecordsOfFractions(t *testing.T) {
	const head = `{"schemaVersion":1,"pod":"p","namespace":"n"`
	sized := func(n int) string { return head + strings.Repeat(" ", n-len(head)-1) + "}" }
	lease := func(more string) string { return `{"leases":[{"containerID":"id"` + more + `}]}` }
	for _, c := range []struct {
		name, record string
		leases, log  string
		want         string
	}{
		{"a UUID", head + `,"podUID":"u","gpuDevices":[{"index":0,"uuid":"GPU-1"}],"requestedMemoryMiB":1024}`, "", "",
			"n/p/ u [GPU-1] [] 1024 MiB 0 %"},
		{"a minor number", head + `,"gpuDevices":[{"minorNumber":3}]}`, "", "", "n/p/  [] [3] 0 MiB 0 %"},
		{"an older record", head + `,"gpuDevices":[{"index":2}]}`, "", "", "n/p/  [] [2] 0 MiB 0 %"},
		{"the first GPU", head + `,"gpuDevices":[{"minorNumber":0}]}`, "", "", "n/p/  [] [0] 0 MiB 0 %"},
		{"the first GPU of an older record", head + `,"gpuDevices":[{"index":0}]}`, "", "", "n/p/  [] [0] 0 MiB 0 %"},
		{"a minor number beside an index", head +
			`,"gpuDevices":[{"index":0,"minorNumber":1},{"index":4,"minorNumber":2},{"index":0,"minorNumber":0}]}`,
			"", "", "n/p/  [] [1 2 0] 0 MiB 0 %"},
		{"an index beside minor number 0 may be either GPU", head + `,"gpuDevices":[{"index":3,"minorNumber":0}]}`, "", "",
			"n/p/  [] [-1] 0 MiB 0 %"},
		{"numbers that are none", head + `,"gpuDevices":[{},{"index":-5},{"minorNumber":-2},{"index":1,"minorNumber":-2}]}`, "", "",
			"n/p/  [] [-1 -1 -1 -1] 0 MiB 0 %"},
		{"two GPUs", head + `,"gpuDevices":[{"uuid":"GPU-1","minorNumber":5},{"minorNumber":3}]}`, "", "", "n/p/  [GPU-1] [3] 0 MiB 0 %"},
		{"a limit of the threads", head + `}`, lease(`,"activeThreadPercent":30,"gpuUUIDs":["GPU-1"]`), "", "n/p/  [GPU-1] [] 0 MiB 30 %"},
		{"recorded GPUs before those of the lease", head + `,"gpuDevices":[{"uuid":"GPU-2"}]}`,
			lease(`,"activeThreadPercent":100,"gpuUUIDs":["GPU-1"]`), "", "n/p/  [GPU-2] [] 0 MiB 100 %"},
		{"a released lease", head + `}`, lease(`,"activeThreadPercent":30,"releasedAt":"2026-01-01T00:00:00Z"`), "",
			"n/p/  [] [] 0 MiB 0 %"},
		{"the smallest limit", head + `}`, lease(`,"activeThreadPercent":1`), "", "n/p/  [] [] 0 MiB 1 %"},
		{"no limit", head + `}`, lease(`,"activeThreadPercent":0,"gpuUUIDs":["GPU-1"]`), "", "n/p/  [] [] 0 MiB 0 %"},
		{"more than a GPU", head + `}`, lease(`,"activeThreadPercent":101`), "", "n/p/  [] [] 0 MiB 0 %"},
		{"a lease of another container", head + `}`, strings.Replace(lease(`,"activeThreadPercent":30`), `"id"`, `"other"`, 1), "",
			"n/p/  [] [] 0 MiB 0 %"},
		{"leases that cannot be decoded", head + `}`, `{"leases":`, "", "n/p/  [] [] 0 MiB 0 %"},
		{"as many leases as may be", head + `}`, lease(`,"activeThreadPercent":30` + strings.Repeat(" ",
			maxLeases-len(lease(`,"activeThreadPercent":30`)))), "",
			"n/p/  [] [] 0 MiB 30 %"},
		{"more", head + `}`, lease(`,"activeThreadPercent":30` + strings.Repeat(" ", maxLeases+1-len(lease(`,"activeThreadPercent":30`)))),
			"",
			"n/p/  [] [] 0 MiB 0 %"},
		{"a container", head + `}`, "", "p_n_main-id.log", "n/p/main  [] [] 0 MiB 0 %"},
		{"a name with dashes", head + `}`, "", "p_n_a-b-id.log", "n/p/a-b  [] [] 0 MiB 0 %"},
		{"another pod's log", head + `}`, "", "q_n_main-id.log", "n/p/  [] [] 0 MiB 0 %"},
		{"another namespace's", head + `}`, "", "p_m_main-id.log", "n/p/  [] [] 0 MiB 0 %"},
		{"another container's", head + `}`, "", "p_n_main-other.log", "n/p/  [] [] 0 MiB 0 %"},
		{"logs that are none", head + `}`, "", "p_n", "n/p/  [] [] 0 MiB 0 %"},
		{"no name", head + `}`, "", "p_n_-id.log", "n/p/  [] [] 0 MiB 0 %"},
		{"as large as it may be", sized(maxFraction), "", "", "n/p/  [] [] 0 MiB 0 %"},
		{"larger", sized(maxFraction + 1), "", "", "1 undecoded"},
		{"of another schema", strings.Replace(head, `:1,`, `:2,`, 1) + `}`, "", "", "1 undecoded"},
		{"of none", strings.Replace(head, `"schemaVersion":1,`, ``, 1) + `}`, "", "", "1 undecoded"},
		{"without a pod", `{"schemaVersion":1,"namespace":"n"}`, "", "", "1 undecoded"},
		{"without a namespace", `{"schemaVersion":1,"pod":"p"}`, "", "", "1 undecoded"},
		{"cut off", head, "", "", "1 undecoded"},
		{"empty", "", "", "", "1 undecoded"},
	} {
		d := newFractionDirs(t)
		mustWrite(t, filepath.Join(d.records, "id.json"), c.record)
		mustWrite(t, filepath.Join(d.records, "id.json.tmp"), "{")
		if c.leases != "" {
			mustWrite(t, d.leases, c.leases)
		}
		if c.log != "" {
			mustWrite(t, filepath.Join(d.logs, c.log), "")
		}
		if got := d.read(t); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// All records of the directory, sorted by pod and container; one that is removed meanwhile is none, one that cannot be
// decoded costs itself.
func TestDirectoryOfFractions(t *testing.T) {
	d := newFractionDirs(t)
	for id, pod := range map[string]string{"3": "p", "1": "q", "2": "p", "4": "a"} {
		mustWrite(t, filepath.Join(d.records, id+".json"), `{"schemaVersion":1,"pod":"`+pod+`","namespace":"n"}`)
	}
	mustWrite(t, filepath.Join(d.logs, "p_n_y-3.log"), "")
	mustWrite(t, filepath.Join(d.logs, "p_n_x-2.log"), "")
	mustWrite(t, filepath.Join(d.records, "5.json"), "x")
	mustWrite(t, filepath.Join(d.records, "6.json"), "x")
	must.OK(t, os.Symlink("/nowhere", filepath.Join(d.records, "7.json")))
	const all = "n/a/  [] [] 0 MiB 0 %; n/p/x  [] [] 0 MiB 0 %; n/p/y  [] [] 0 MiB 0 %; n/q/  [] [] 0 MiB 0 %; 2 undecoded"
	if got := d.read(t); got != all {
		t.Errorf("%s", got)
	}
	f := NewFractions(d.records, d.leases, d.logs, Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler), MaxAge: time.Minute})
	if s := f.Source(); s.Name != gpu.SourceFractions || s.Message != "GPU fractioning map not read yet" {
		t.Errorf("%+v", s)
	}
	if f.Poll(t.Context()); f.Value() == nil || len(f.Value().List) != 4 || !f.Source().Up || f.Source().Errors != 1 {
		t.Errorf("%+v, %+v", f.Value(), f.Source())
	}
	mustWrite(t, filepath.Join(d.records, "8.json"), `{"schemaVersion":1,"pod":"z","namespace":"n"}`)
	if f.Poll(t.Context()); len(f.Value().List) != 5 {
		t.Errorf("%+v", f.Value())
	}
	for _, name := range []string{"5", "6", "7"} {
		must.OK(t, os.Remove(filepath.Join(d.records, name+".json")))
	}
	for i := range maxFractions - 5 {
		must.OK(t, os.Link(filepath.Join(d.logs, "p_n_y-3.log"), filepath.Join(d.records, fmt.Sprint(i))))
	}
	if got := d.read(t); strings.Count(got, ";") != 4 || strings.Contains(got, "undecoded") {
		t.Errorf("as many files as may be: %s", got)
	}
	mustWrite(t, filepath.Join(d.records, "another"), "")
	if got := d.read(t); got != d.records+" has more than 4096 files" {
		t.Errorf("one more: %s", got)
	}
	// Without the directory the operator is not installed, without that of the logs names are unknown.
	if got, undecoded, err := readFractions(filepath.Join(d.records, "none"), "", ""); err != nil || len(got.List) != 0 || got.Partial ||
		undecoded != 0 {
		t.Errorf("%+v, %d, %v", got, undecoded, err)
	}
	if _, _, err := readFractions(filepath.Join(d.records, "another"), "", ""); err == nil ||
		!strings.HasSuffix(err.Error(), "another: not a directory") {
		t.Errorf("a file: %v", err)
	}
}
