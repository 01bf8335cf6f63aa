package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
)

// hungSources are the data sources of the node, and how each comes to block for ever: a file is a named pipe without a
// writer, a server accepts and never responds.
var hungSources = []struct {
	source, also string // also is down that has nothing to read then, from the start
	hang         func(t *testing.T, m *simulated)
}{
	{gpu.SourceCheckpoint, "", func(t *testing.T, m *simulated) { pipe(t, filepath.Join(m.Dir, "checkpoint")) }},
	{gpu.SourceLogs, "", func(t *testing.T, m *simulated) {
		pipe(t, m.Trees.PodLogs)
		// A process of an unknown pod: otherwise the names are read once in a while.
		dir := filepath.Join(m.Trees.Procfs, "5000")
		for file, text := range map[string]string{"stat": "5000 (new) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n",
			"cgroup": "0::/kubepods/pod11111111-1111-4111-8111-111111111111/" + strings.Repeat("1", 64) + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
	}},
	{gpu.SourceProcesses, "", func(t *testing.T, m *simulated) {
		for pid := range 12 { // more than are given up one by one
			pipe(t, filepath.Join(m.Trees.Procfs, fmt.Sprint(5000+pid), "stat"))
		}
	}},
	{"docker", "", func(t *testing.T, m *simulated) { silent(t, "unix", filepath.Join(filepath.Dir(m.Socket), "docker")) }},
	{gpu.SourceAPI, "", func(t *testing.T, m *simulated) {}},                   // hangs always
	{gpu.SourceKmsg, "", func(t *testing.T, m *simulated) { pipe(t, m.Kmsg) }}, // once it is open, it cannot be replaced
	// Last: the checkpoint is read after a response of the kubelet.
	{gpu.SourcePodResources, gpu.SourceCheckpoint,
		func(_ *testing.T, m *simulated) { m.Kubelet.SetFault(standin.KubeletFault{Hang: true}) }},
}

func pipe(t *testing.T, path string) {
	t.Helper()
	verify(t, os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o755), unix.Mkfifo(path, 0o600))
}

// silent accepts connections and never responds.
func silent(t *testing.T, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr()
}

// Data sources of the node that never respond, one by one and all together, from the start and later: the readings of the
// driver go on, the health says which source it is, and the program ends at once.
func TestHungSources(t *testing.T) {
	t.Parallel()
	const later = -1
	for only := later; only <= len(hungSources); only++ {
		name := "later"
		switch {
		case only == len(hungSources):
			name = "all"
		case only != later:
			name = hungSources[only].source
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text, pids strings.Builder
			text.WriteString(twoGPUs)
			for pid := range 12 {
				fmt.Fprintf(&text, "process gpu=0 pid=%d memory=100MiB busy=5%% period=%dms\n", 5000+pid, 700+10*pid)
				fmt.Fprintf(&pids, ",%d", 5000+pid)
			}
			m := node(t, text.String(), strings.TrimSpace(twoPods)+" pids="+pids.String()[1:]+"\n")
			m.Kmsg = filepath.Join(m.Dir, "kmsg")
			for _, file := range []string{"checkpoint", "token", "kmsg"} {
				must.OK(t, os.WriteFile(filepath.Join(m.Dir, file), []byte(`{"Data":{"PodDeviceEntries":[]}}`),
					0o600))
			}
			down := map[string]bool{gpu.SourceAPI: true, "docker": true}
			for i, s := range hungSources {
				if only == i || only == len(hungSources) {
					s.hang(t, m)
					down[s.source], down[s.also] = true, true
				}
			}
			p := m.start("--kubelet.checkpoint="+filepath.Join(m.Dir, "checkpoint"),
				"--containers.socket="+filepath.Join(filepath.Dir(m.Socket), "docker"), "--kubernetes.pods",
				"--kubernetes.api-server=http://"+silent(t, "tcp", "127.0.0.1:0").String(),
				"--kubernetes.token-file="+filepath.Join(m.Dir, "token"))
			check := func(what string) {
				t.Helper()
				before := p.until(t, what, func(s series) error {
					var wrong []error
					for _, source := range hungSources {
						up := 1.0
						if down[source.source] {
							up = 0
						}
						wrong = append(wrong, s.is(up, "gpu_exporter_source_up", `source="`+source.source+`"`))
					}
					return all(append(wrong, s.is(1, "gpu_device_up", GPUA), s.is(1, "gpu_exporter_source_up", `source="nvml"`))...)
				})
				p.until(t, what+": the driver's readings go on", func(s series) error {
					const family = "gpu_energy_joules_total"
					if a, b := sum(before.match(family)), sum(s.match(family)); !(b > a) {
						return fmt.Errorf("the energy stays at %v", a)
					}
					return nil
				})
				if code, body, err := p.get("/-/healthy"); err != nil || code != 200 {
					t.Errorf("%s: health %d %v %s", what, code, err, body)
				}
			}
			check(name)
			if only == later {
				for _, s := range hungSources {
					if !down[s.source] && s.source != gpu.SourceKmsg {
						s.hang(t, m)
						down[s.source] = true
						check("then " + s.source)
					}
				}
			}
			stopsAtOnce(t, p)
		})
	}
}
