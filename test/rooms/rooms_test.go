// Package rooms_test builds the exporter without each of its optional parts: without the part's line in the list of
// cmd/exporter, and without its directory. What is missing then is exactly what the part adds; TestWithoutEachPart of cmd/exporter
// compares the goldens.
package rooms_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// part is all that the program lacks without an optional part.
type part struct {
	flags    []string          // of its help
	commands []string          // of its first argument
	features []string          // of gpu_exporter_feature on a node with a kubelet
	values   map[string]string // of the chart, by the flag that they set
}

var parts = map[string]part{
	"accounts":  {},
	"cgroupmem": {},
	"compat": {flags: []string{"compat", "compat.listen-address", "compat.set"},
		values: map[string]string{"compat": "release", "compat.set": "deviceLabels", "compat.listen-address": "port"}},
	"doctor":    {commands: []string{"doctor", "status"}},
	"dra":       {flags: []string{"kubelet.dra-checkpoint"}, values: map[string]string{"kubelet.dra-checkpoint": "draCheckpoint"}},
	"engines":   {flags: []string{"containers.socket"}},
	"fractions": {},
	"health":    {commands: []string{"conformance", "health"}},
	"kmsg":      {flags: []string{"path.kmsg"}, features: []string{"kernel_log"}},
	"letgo":     {},
	"links":     {flags: []string{"link-details"}, values: map[string]string{"link-details": "linkDetails"}},
	"podmeta": {flags: []string{"kubernetes.pod-label", "kubernetes.pod-scheme", "kubernetes.pods"}, features: []string{"pod_metadata"},
		values: map[string]string{"kubernetes.pods": "podMetadata", "kubernetes.pod-label": "podLabels"}},
	"processes": {flags: []string{"process-limit"}, values: map[string]string{"process-limit": "processLimit"}},
	"record":    {commands: []string{"record"}},
	"slices":    {flags: []string{"kubernetes.resource-slices"}, values: map[string]string{"kubernetes.resource-slices": "resourceSlices"}},
	"slurm": {flags: []string{"slurm.job-mapping-dir", "slurm.job-numbers"},
		values: map[string]string{"slurm.job-mapping-dir": "slurmJobMapping"}},
	"suspend": {flags: []string{"suspend-unopened"}},
	"visible": {flags: []string{"containers.visible"}, features: []string{"container_visible"},
		values: map[string]string{"containers.visible": "containerVisible"}},
}

var (
	helpFlag    = regexp.MustCompile(`(?m)^ {2,6}(?:-h, )?--(?:\[no-\])?([a-z][a-z0-9.-]*)`)
	chartFlag   = regexp.MustCompile(`set \$o "([a-z0-9.-]+)"`)
	featureName = regexp.MustCompile(`(?m)^gpu_exporter_feature\{.*feature="([a-z_]+)"`)
	allCommands = []string{"conformance", "doctor", "health", "record", "status"}
)

func TestExporterWithoutAPart(t *testing.T) {
	root := machine.Root(t)
	files, err := filepath.Glob(filepath.Join(root, "rooms", "*", "*.go"))
	must.OK(t, err)
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) != len(parts) {
		t.Errorf("%d optional parts, and this test has %d", len(names), len(parts))
	}
	template, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "gpu-exporter", "templates", "_helpers.tpl"))
	must.OK(t, err)
	whole := look(t, machine.Binary(t), true)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, has := parts[name]
			if !has {
				t.Fatal("this test does not have it")
			}
			less := look(t, buildWithout(t, root, name), name != "kmsg")
			for _, c := range []struct {
				of          string
				whole, less []string
				want        []string
			}{
				{"flags", whole.flags, less.flags, want.flags}, {"commands", whole.commands, less.commands, want.commands},
				{"features", whole.features, less.features, want.features},
			} {
				if got := difference(c.whole, c.less); !slices.Equal(got, c.want) || len(difference(c.less, c.whole)) > 0 {
					t.Errorf("without it the %s %v are missing, want %v", c.of, got, c.want)
				}
			}
			set := map[string]string{}
			for line := range strings.Lines(string(template)) {
				for _, m := range chartFlag.FindAllStringSubmatch(line, -1) {
					if slices.Contains(want.flags, m[1]) {
						set[m[1]] = line
					}
				}
			}
			for flag, value := range want.values {
				if !strings.Contains(set[flag], "."+value+" ") {
					t.Errorf("the chart does not set --%s from %s: %s", flag, value, set[flag])
				}
			}
			if len(set) != len(want.values) {
				t.Errorf("the chart sets %d flags of it, want %d", len(set), len(want.values))
			}
		})
	}
}

// buildWithout builds the exporter as if the line of a part and its directory were not there.
func buildWithout(t *testing.T, root, name string) string {
	t.Helper()
	list := filepath.Join(root, "cmd", "exporter", "parts.go")
	text, err := os.ReadFile(list)
	must.OK(t, err)
	line := regexp.MustCompile(`(?m)^.*(/rooms/` + name + `"|\{room: ` + name + `\.New\},)\n`)
	if n := len(line.FindAll(text, -1)); n != 2 {
		t.Fatalf("%s has %d lines of it, not an import and an entry", list, n)
	}
	dir := t.TempDir()
	replaced := filepath.Join(dir, "parts.go")
	must.OK(t, os.WriteFile(replaced, line.ReplaceAll(text, nil), 0o600))
	replace := map[string]string{list: replaced}
	files, err := filepath.Glob(filepath.Join(root, "rooms", name, "*.go"))
	must.OK(t, err)
	for _, f := range files {
		replace[f] = "" // it does not exist
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must.OK(t, err)
	must.OK(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program := filepath.Join(dir, "gpu-exporter")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -extldflags=-Wl,-z,lazy",
		"-overlay="+filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/exporter")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// seen is what one program offers.
type seen struct{ flags, commands, features []string }

// look lists what a program offers, by its help and on a node.
func look(t *testing.T, program string, kmsg bool) (s seen) {
	t.Helper()
	for _, m := range helpFlag.FindAllStringSubmatch(output(program, "--help"), -1) {
		s.flags = append(s.flags, m[1])
	}
	for _, c := range allCommands {
		if strings.Contains(output(program, c, "--help"), "gpu-exporter "+c) {
			s.commands = append(s.commands, c)
		}
	}
	n := machine.Shipped(t, "demo", "demo")
	address, err := standin.FreeAddress()
	must.OK(t, err)
	args := append([]string{program, "--web.listen-address=" + address}, n.Flags()...)
	if !kmsg {
		args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--path.kmsg") })
	}
	e := n.Start(t, machine.Options{Address: address, Command: args, Env: append(os.Environ(), n.Env...)})
	must.OK(t, testkit.Within(t.Context(), time.Minute, func() error {
		page, err := testkit.Client{}.Fetch(context.Background(), e.Base()+"/metrics")
		if err == nil && !strings.Contains(page, "\ngpu_device_up{") {
			err = fmt.Errorf("no GPU was read")
		}
		s.features = nil
		for _, m := range featureName.FindAllStringSubmatch(page, -1) {
			s.features = append(s.features, m[1])
		}
		return err
	}))
	e.Stop()
	slices.Sort(s.flags)
	s.flags = slices.Compact(s.flags)
	return s
}

// output is what a program writes before it exits, in any way.
func output(program string, args ...string) string {
	out, _ := exec.Command(program, args...).CombinedOutput()
	return string(out)
}

// difference is what is in all and not in some.
func difference(all, some []string) (missing []string) {
	for _, s := range all {
		if !slices.Contains(some, s) {
			missing = append(missing, s)
		}
	}
	return missing
}
