package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// A laptop's GPU suspends and is resumed, by others. While it is suspended, and while it may suspend because nobody uses it, the
// driver gets no call and none of its files is open. Its counters go on, and that time is unknown. With power/control=on it is
// read all the time.
func suspendedGPU(t *testing.T) {
	const paused, address = `reason="runtime_suspend"`, "0000:01:00.0"
	dir := deviceFiles(t)
	t.Setenv("FAKENVML_DEV", dir)
	s, err := scenario.Parse("laptop.scenario", "scenario 1\nsymbols R580\nsystem DriverVersion = \"580.105.08\"\n"+
		"include boards/laptop-3060.scenario\ngpu 0 board=laptop3060 pci="+address+"\n"+
		"load gpu=0 busy=50% period=1s from=60s to=120s\n", os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
	must.OK(t, err)
	st := furnish(t, s, standin.KubeletNode{})
	set := func(attribute, value string) {
		path := filepath.Join(st.trees.Sysfs, "bus/pci/devices", address, "power", attribute)
		must.OK(t, os.WriteFile(path, []byte(value+"\n"), 0o644))
	}
	set("control", "auto")
	set("runtime_status", "suspended")
	st.begin(st.control.Time, func(error) { t.Error("the program requests a re-execution") }, hooks{}, "--no-kubelet")
	t.Cleanup(st.close)
	look := func(d time.Duration, open string) series {
		t.Helper()
		before := st.calls()
		now := st.watched(d)
		calls, power := st.calls()-before, len(now.match("gpu_power_watts"))
		if got := openFiles(t, os.Getpid(), dir); got != open || calls > 0 != (open != "") || power > 0 != (open != "") {
			t.Errorf("at %s open: %q, %d calls, %d readings", st.control.Now(), got, calls, power)
		}
		if message := st.e.sampler.Latest().GPUs[0].Message; open == "" && !strings.Contains(message, address) {
			t.Errorf("the node page does not say which GPU is suspended: %q", message)
		}
		verify(t, now.is(map[string]float64{"": 1}[open], "gpu_exporter_paused", paused), now.is(1, "gpu_device_up"),
			now.is(1, "gpu_exporter_source_up", `source="nvml"`))
		return now
	}
	const open = "nvidia0 nvidiactl"
	look(60*time.Second, "")
	set("runtime_status", "active")
	look(60*time.Second, open) // busy
	used := look(20*time.Second, open)
	st.watched(14 * time.Second) // nobody used it for 30 s
	set("runtime_status", "suspended")
	suspended := look(10*time.Minute, "")
	for state, grows := range map[string]float64{"busy": 0, "unknown": 600} {
		state = `state="` + state + `"`
		had, has := sum(used.match("gpu_time_seconds_total", state)), sum(suspended.match("gpu_time_seconds_total", state))
		if had < 1 || has < had+grows || grows == 0 && has > had {
			t.Errorf("%s: %v s, %v s after it was suspended for 10 minutes", state, had, has)
		}
	}
	set("control", "on")
	st.watched(10 * time.Minute)
	if got := openFiles(t, os.Getpid(), dir); got != open || strings.Contains(st.page(), paused) {
		t.Errorf("with power/control=on: open %q", got)
	}
	// Where that is asked for, a GPU without persistence mode is left alone while no program has it open.
	refs := func(n int) {
		must.OK(t, os.MkdirAll(filepath.Join(st.trees.Sysfs, "module/nvidia"), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(st.trees.Sysfs, "module/nvidia/refcnt"), fmt.Appendln(nil, n), 0o644))
	}
	st.close()
	st.begin(st.control.Time, func(error) { t.Error("the program requests a re-execution") }, hooks{}, "--no-kubelet", "--suspend-unopened")
	refs(2)
	st.watched(34 * time.Second)
	refs(0)
	look(10*time.Minute, "")
	refs(2)
	look(20*time.Second, open)
}
