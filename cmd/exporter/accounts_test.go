package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/proc"
)

// The busy time of a container that a GPU is allocated to includes processes of a second that began and ended while nothing
// was polled: by the profiling counters, where the GPU has them, without any permission; else in the host's PID namespace
// under R610 and newer with accounting mode, because to a caller in a namespace of its own the driver does not list them.
// Otherwise such a gap counts as not observed, and busy time of it is neither made up nor counted as idle.
func TestGapsByAccounts(t *testing.T) {
	list := cases{}
	for _, c := range []struct {
		symbols               string
		mode                  int
		host, profiling, busy bool
	}{{"R550", 1, true, false, false}, {"R610", 1, true, false, true}, {"R615", 1, true, false, true}, {"R620", 1, true, false, true},
		{"R620", 0, true, false, false}, {"R620", 0, true, true, true}, {"R620", 1, true, true, true},
		{"R550", 1, false, false, false}, {"R615", 1, false, false, false}, {"R620", 1, false, false, false},
		{"R550", 0, false, true, true}, {"R615", 0, false, true, true}, {"R620", 0, false, true, true}} {
		list.add(c.symbols, fmt.Sprintf("%s-%d-%v-%v", c.symbols, c.mode, c.host, c.profiling), func(t *testing.T) {
			text := strings.Replace(twoGPUs, "symbols R580", "symbols "+c.symbols, 1) +
				fmt.Sprintf("at 0s gpu 1 AccountingMode = %d\nat 0s system DriverVersion = \"%s.100\"\n", c.mode, c.symbols[1:])
			if !c.profiling {
				text += "at 0s gpu 1 GpmQueryDeviceSupport = 0\n"
			}
			var flags []string
			if !c.host { // the driver lists no account of a process that has ended
				text += "at 0s gpu 1 AccountingPids = 0\n"
				flags = []string{"--path.procfs=/nonexistent"}
			}
			// From 100 s to 160 s nothing is polled.
			worked, inGap, pids := 0.0, 0.0, ""
			for i := range 40 {
				from, length := 60+3.1*float64(i), 1+0.05*float64(i)
				text += fmt.Sprintf("process gpu=1 pid=%d memory=1GiB busy=100%% period=1s from=%dms to=%dms\n", 300+i,
					int(from*1000), int((from+length)*1000))
				pids += fmt.Sprintf(",%d", 300+i)
				worked += length
				inGap += max(0, min(from+length, 160)-max(from, 100))
			}
			s := parseScenario(t, text)
			b := GPUB[len(`uuid="`) : len(GPUB)-1]
			st := play(t, s,
				fmt.Sprintf("allocatable nvidia.com/gpu %s\npod ml/alone container main nvidia.com/gpu=%[1]s pids=%s\n", b, pids[1:]),
				append(flags, "--path.cgroup="+t.TempDir())...)
			st.watched(50 * time.Second)
			busy := func(s series) float64 {
				t.Helper()
				v, err := s.one("gpu_container_busy_seconds_total", GPUB, `pod="alone"`)
				if err != nil {
					t.Error(err)
				}
				return v
			}
			st.watched(48 * time.Second)
			st.control.Advance(60 * time.Second)
			st.step()
			after := st.watched(60 * time.Second)
			total, err := after.one("gpu_busy_seconds_total", GPUB)
			if err != nil || total != busy(after) {
				t.Errorf("the GPU was busy for %g s, the container for %g s (%v)", total, busy(after), err)
			}
			if got := busy(after); c.busy && math.Abs(got-worked) > 0.01*worked {
				t.Errorf("busy for %.2f s, want %.2f s, of which %.2f s in the gap", got, worked, inGap)
			} else if !c.busy && got > worked-inGap/2 {
				t.Errorf("busy for %.2f s of %.2f s, although %.2f s were not polled", got, worked, inGap)
			} else {
				t.Logf("%s: busy for %.2f s of %.2f s", c.symbols, got, worked)
			}
			said, _ := st.doctor()
			if (c.mode == 1 && c.symbols == "R550") != strings.Contains(said, "but driver 550") ||
				(c.mode == 0 && c.symbols != "R550") != strings.Contains(said, "nvidia-smi -am 1 -i "+b) ||
				(c.mode == 1 && !c.host && c.symbols != "R550") !=
					strings.Contains(said, "ended processes in the host's PID namespace only") ||
				c.profiling && strings.Contains(said, b+"): accounting mode") &&
					!strings.Contains(said, "share the GPU is unresolved") {
				t.Errorf("doctor:\n%s", said)
			}
			observed, err := after.one("gpu_observed_seconds_total", GPUB)
			if err != nil || (observed > 210) != c.busy {
				t.Errorf("%g s observed (%v)", observed, err)
			}
		})
	}
	list.run(t)
}

// The driver's accounts are read from when the namespace of PIDs is known to be the host's, also if /proc could not be read at
// first.
func TestAccountsWaitForTheNamespace(t *testing.T) {
	procfs := t.TempDir()
	u := users{Finder: proc.New(proc.Options{Procfs: procfs}), verified: &atomic.Bool{}}
	if err := u.ready(); err == nil || u.verified.Load() {
		t.Fatalf("without a namespace: %v", err)
	}
	err := errors.Join(os.MkdirAll(filepath.Join(procfs, "self", "ns"), 0o755),
		os.Symlink("pid:[4026531836]", filepath.Join(procfs, "self", "ns", "pid")))
	if err = errors.Join(err, u.ready()); err != nil || !u.verified.Load() {
		t.Errorf("in the host's namespace: %v", err)
	}
}
