package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// soon is a timeout for waits in which something is due already.
const soon = time.Millisecond

func TestEvents(t *testing.T) {
	r := playText(t, `
gpu 0 board=b pci=0000:18:00.0
gpu 1 board=b pci=0000:2a:00.0
gpu 2 board=b
  SupportedEventTypes = 0x4
gpu 3 board=b
  SupportedEventTypes = !NOT_SUPPORTED
at 5s gpu 0 xid 13
at 10s gpu 0 xid 31
at 10s gpu 0 xid 31
at 10s gpu 1 event 0x8 data=0
at 10s gpu 1 event 0x4 data=7
at 11s gpu 1 xid 79
at 11s gpu 1 xid 45
at 20s gpu 0 xid 48
at 20s gpu 0 lose
at 21s gpu 1 xid 43
at 25s gpu 1 xid 44
`)
	r.at(5 * time.Second)
	s, err := r.library.Open()
	must.OK(t, err)
	r.session = s
	if events, err := s.WaitEvents(soon); len(events) != 0 || err != nil {
		t.Errorf("before any GPU: %v, %v", events, err)
	}
	devs := r.scan()
	if events, err := s.WaitEvents(soon); len(events) != 0 || err != nil {
		t.Errorf("what was before the registration: %v, %v", events, err)
	}
	r.at(11 * time.Second)
	wait := func(want string) {
		t.Helper()
		events, err := s.WaitEvents(soon)
		must.OK(t, err)
		got := ""
		for _, e := range events {
			got += fmt.Sprintf("%s %d; ", e.PCI, e.XID)
			if e.Source != gpu.SourceNVML || e.Old || !e.Time.Equal(r.control.Time()) {
				t.Errorf("event %+v", e)
			}
			if dev := devs[map[gpu.PCIAddress]int{"0000:18:00.0": 0, "0000:2a:00.0": 1}[e.PCI]]; e.GPU != dev.Identity().UUID {
				t.Errorf("event %+v of %v", e, dev)
			}
		}
		if got != want {
			t.Errorf("at %v: got %q, want %q", r.control.Now(), got, want)
		}
	}
	wait("0000:18:00.0 31; 0000:18:00.0 31; 0000:2a:00.0 45; ") // NVML does not report 79
	wait("")
	// The last word of a GPU comes with its name, though the GPU is lost.
	r.at(20 * time.Second)
	wait("0000:18:00.0 48; ")
	// A lost GPU makes the driver answer that at once, again and again: it must not spin, nor end.
	start := time.Now()
	if events, err := s.WaitEvents(50 * time.Millisecond); len(events) != 0 || err != nil || time.Since(start) < 40*time.Millisecond {
		t.Errorf("lost: %v, %v after %v", events, err, time.Since(start))
	}
	r.at(21 * time.Second)
	wait("0000:2a:00.0 43; ")
	// Once a poll group has found out who is lost, the set is made without it, at once: nothing of the others is missed.
	if _, err := devs[0].Medium(); !errors.Is(err, gpu.ErrLost) {
		t.Fatal(err)
	}
	wait("")
	r.at(25 * time.Second)
	wait("0000:2a:00.0 44; ")
	if made, freed := r.control.Calls("nvmlEventSetCreate"), r.control.Calls("nvmlEventSetFree"); made != 2 || freed != 1 {
		t.Errorf("%d sets made, %d freed", made, freed)
	}
	if e := r.errors("nvmlDeviceRegisterEvents"); len(e) != 0 {
		t.Errorf("errors: %v", e)
	}
	for _, c := range r.library.Calls() {
		if c.Call == "nvmlEventSetWait" && c.Duration.Count != 0 {
			t.Error("waiting was taken for cost")
		}
	}
}

// TestEventsWakeForNewGPUs: who waits without GPUs goes on when Scan finds some.
func TestEventsWakeForNewGPUs(t *testing.T) {
	r := playText(t, "gpu 0 board=b\nat 1s gpu 0 xid 13\n")
	s, err := r.library.Open()
	must.OK(t, err)
	r.session = s
	got := make(chan error, 1)
	go func() {
		for {
			events, err := s.WaitEvents(time.Hour)
			if len(events) > 0 || err != nil {
				got <- err
				return
			}
		}
	}()
	r.scan()
	// Who waits in the driver has registered the GPU.
	testkit.Until(func() bool { return r.control.Calls("nvmlEventSetWait_v2") > 0 })
	r.control.Advance(time.Second)
	if err := <-got; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := s.WaitEvents(100 * time.Millisecond)
		got <- err
	}()
	if err := s.Close(); err != nil {
		t.Errorf("close while waiting: %v", err)
	}
	<-got
	if _, err := s.WaitEvents(soon); !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("after close: %v", err)
	}
}

func TestNoEvents(t *testing.T) {
	r := playText(t, `
system EventSetCreate = !NOT_SUPPORTED
gpu 0 board=b
`)
	r.open()
	for range 2 {
		if _, err := r.session.WaitEvents(soon); !errors.Is(err, ErrNoEvents) {
			t.Errorf("got %v", err)
		}
	}
}

// A GPU that is unbound from the driver, and one that was bound to it, are reported once; what was before the session is not.
// A session has the GPUs open until it is closed, and none that is unbound.
func TestBindings(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FAKENVML_DEV", dir)
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	r := playText(t, "gpu 0 board=b\ngpu 1 board=b\nat 5s gpu 0 unbind\nat 20s gpu 0 bind\nat 20s gpu 1 unbind\n")
	look := func(at time.Duration, want string) {
		t.Helper()
		r.at(at)
		_, err := r.session.WaitEvents(soon)
		must.OK(t, err)
		unbound, bound := r.session.Bindings()
		open, err := testkit.OpenFiles(os.Getpid(), dir+"/")
		must.OK(t, err)
		if got := fmt.Sprint(unbound, bound, open); got != want {
			t.Errorf("at %s: %v, want %s", at, got, want)
		}
	}
	r.open()
	look(4*time.Second, "false false [nvidia0 nvidia1 nvidiactl]")
	look(5*time.Second, "true false [nvidia0 nvidia1 nvidiactl]") // it goes on, until it is closed
	look(6*time.Second, "false false [nvidia0 nvidia1 nvidiactl]")
	must.OK(t, r.session.Close())
	r.open()
	look(7*time.Second, "false false [nvidia1 nvidiactl]")
	look(20*time.Second, "true true [nvidia1 nvidiactl]")
	if made, freed := r.control.Calls("nvmlSystemEventSetCreate"), r.control.Calls("nvmlSystemEventSetFree"); made != 2 || freed != 1 {
		t.Errorf("%d sets made, %d freed", made, freed)
	}
}

// A driver before R560, and one that refuses, report no binding, and that is no error.
func TestNoBindings(t *testing.T) {
	for _, text := range []string{"", "system SystemEventSetCreate = !NOT_SUPPORTED\n",
		"system SystemRegisterEvents = !NOT_SUPPORTED\n", "system SystemEventSetWait = !UNKNOWN\n"} {
		t.Run(text, func(t *testing.T) {
			if !inChild(t) {
				return
			}
			s, err := scenario.Parse("test.scenario", common+text+"gpu 0 board=b\nat 5s gpu 0 unbind\n", nil)
			must.OK(t, err)
			r := play(t, s, map[bool]string{true: "R550", false: "newest"}[text == ""])
			r.open()
			r.at(6 * time.Second)
			for range 2 {
				_, err = r.session.WaitEvents(soon)
				must.OK(t, err)
			}
			if unbound, bound := r.session.Bindings(); unbound || bound {
				t.Error("reported")
			}
			if n := strings.Count(r.log.String(), "driver does not report that a GPU is unbound"); n != 1 {
				t.Errorf("%d lines: %s", n, r.log.String())
			}
			made, freed := r.control.Calls("nvmlSystemEventSetCreate"), r.control.Calls("nvmlSystemEventSetFree")
			if e := r.errors("nvmlSystemEventSetCreate"); len(e) > 0 || freed > made {
				t.Error(e, made, freed)
			}
		})
	}
}
