package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
)

// Two profiling samples of a GPU are a pair if they are 0.1 s to two minutes apart, with the PCIe rates up to three fast
// intervals (6 s). A sample that is too close to the last one is not taken; one that is too far, or after the clock went
// back, begins anew.
func TestGPMPairs(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		between time.Duration
		window  time.Duration // 0: no pair
		samples uint64
	}{{50 * ms, 0, 0}, {99 * ms, 0, 0}, {100 * ms, 100 * ms, 1}, {2000 * ms, 2000 * ms, 1}, {6000 * ms, 6000 * ms, 1},
		{6001 * ms, 6001 * ms, 1}, {120_000 * ms, 120_000 * ms, 1}, {120_001 * ms, 0, 1},
		{-1000 * ms, 0, 1}} {
		r := playText(t, "  GpmQueryDeviceSupport = 1\n  Gpm[1] = 100*util\n  Gpm[20] = 1\n"+
			"gpu 0 board=b\nprocess gpu=0 pid=1 busy=100% period=1s\n")
		r.at(20 * time.Second)
		c := r.open()[0]
		fast(t, c)
		before := r.control.Calls("nvmlGpmSampleGet")
		r.control.Advance(tt.between)
		g, ok := fast(t, c).GPM.Get()
		if ok != (tt.window > 0) || g.Window != tt.window {
			t.Errorf("after %v: a pair %v of %v, want %v", tt.between, ok, g.Window, tt.window)
		}
		if g.PCIeTransmit.Present() != (ok && tt.between <= 6*time.Second) {
			t.Errorf("after %v: PCIe %v", tt.between, g.PCIeTransmit)
		}
		if n := r.control.Calls("nvmlGpmSampleGet") - before; n != tt.samples {
			t.Errorf("after %v: %d samples", tt.between, n)
		}
		// Whatever it was, two seconds later there is a pair of the newest sample.
		r.control.Advance(2 * time.Second)
		want := 2 * time.Second
		if tt.samples == 0 {
			want += tt.between
		}
		if g, ok := fast(t, c).GPM.Get(); !ok || g.Window != want {
			t.Errorf("after %v and 2 s: %v of %v", tt.between, ok, g.Window)
		}
	}
}

// A ring whose first read has less than 60 samples is read in full once more, when a deep one has filled: 20 s later, or when it has
// one. A ring with more is full at once.
func TestRingIsReadInFullOnceMore(t *testing.T) {
	for _, tt := range []struct {
		first   time.Duration
		entries int
		want    [7]int // samples of 0.1 s in a read, every 4 s
		full    int    // the read that is of a full ring
	}{
		{5 * time.Second, 100, [7]int{50, 40, 40, 40, 40, 100, 40}, 5}, {6 * time.Second, 100, [7]int{60, 40, 40, 40, 40, 40, 40}, 0},
		{time.Second, 100, [7]int{10, 40, 40, 40, 40, 100, 40}, 5}, {time.Hour, 10, [7]int{10, 10, 10, 10, 10, 10, 10}, 5},
	} {
		t.Run(fmt.Sprint(tt.first), func(t *testing.T) {
			r := playText(t, fmt.Sprintf("board ring\n  ring period=100ms entries=%d\n  UtilizationRates = gpu=100*util memory=0\n"+
				"gpu 0 board=ring\nprocess gpu=0 pid=1 busy=100%% period=1s\n", tt.entries))
			r.at(tt.first)
			c := r.open()[0]
			var got [7]int
			full := []int{}
			for i := range got {
				f := fast(t, c)
				if got[i] = len(f.Busy.Or(nil)); f.RingFull {
					full = append(full, i)
				}
				r.control.Advance(4 * time.Second)
			}
			if got != tt.want || !slices.Equal(full, []int{tt.full}) {
				t.Errorf("%v samples, full in %v", got, full)
			}
		})
	}
}

// Of the codes of NVML: what means "not offered", what is no error, and what concerns the whole GPU or driver. All others are
// errors of one reading.
func TestClassesOfCodes(t *testing.T) {
	offered := []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_DEPRECATED,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH}
	quiet := append([]nvml.Return{nvml.SUCCESS, nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA, nvml.ERROR_TIMEOUT,
		nvml.ERROR_INSUFFICIENT_SIZE}, offered...)
	all := map[nvml.Return]error{nvml.ERROR_GPU_IS_LOST: gpu.ErrLost, nvml.ERROR_RESET_REQUIRED: gpu.ErrResetRequired,
		nvml.ERROR_UNINITIALIZED: gpu.ErrUninitialized, nvml.ERROR_DRIVER_NOT_LOADED: gpu.ErrNoDriver,
		nvml.ERROR_LIBRARY_NOT_FOUND: gpu.ErrNoDriver, nvml.ERROR_LIB_RM_VERSION_MISMATCH: gpu.ErrVersionMismatch}
	if name := codeName(4242); name != "CODE_4242" {
		t.Error(name)
	}
	for code := range nvml.Return(40) {
		if notOffered(code) != slices.Contains(offered, code) || silent(code) != slices.Contains(quiet,
			code) || !errors.Is(whole(code), all[code]) {
			t.Errorf("%s: not offered %v, silent %v, whole %v", codeName(code), notOffered(code), silent(code), whole(code))
		}
		err := failure(callCount, code, "the driver")
		if !strings.HasPrefix(err.Error(), "nvmlDeviceGetCount of the driver: ") || !strings.Contains(err.Error(), codeName(code)) ||
			all[code] != nil && !errors.Is(err, all[code]) {
			t.Errorf("%v", err)
		}
	}
}

// A poll group fails if every call of it did; refusals are answers.
func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		codes []nvml.Return
		want  string
	}{
		{nil, ""}, {[]nvml.Return{nvml.SUCCESS, nvml.ERROR_UNKNOWN}, ""}, {[]nvml.Return{nvml.ERROR_UNKNOWN,
			nvml.ERROR_NOT_SUPPORTED}, ""},
		{[]nvml.Return{nvml.ERROR_NO_PERMISSION, nvml.ERROR_UNKNOWN}, ""}, {[]nvml.Return{nvml.ERROR_UNKNOWN,
			nvml.ERROR_INVALID_ARGUMENT}, ""},
		{[]nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_IRQ_ISSUE}, "read GPU 3: all 2 calls failed, the last with IRQ_ISSUE"},
	} {
		var sum tally
		for _, code := range tt.codes {
			sum.add(code)
		}
		got := ""
		if err := sum.verdict(&GPU{identity: gpu.Identity{Index: 3}}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.codes, got, tt.want)
		}
	}
}

// Of rows with one reading the one of the lowest rank that is offered is read; a row with alternatives, where none of them is.
func TestActiveRows(t *testing.T) {
	rows := []row[int]{{reading: "a"}, {reading: "a", rank: 1}, {reading: "a", rank: 1}, {reading: "b", instead: []string{"a"}},
		{reading: "c"}}
	for _, tt := range []struct{ dropped, retry, want string }{
		{"", "", "0 4"}, {"0", "", "1 2 4"}, {"01", "", "2 4"}, {"012", "", "3 4"}, {"0124", "", "3"}, {"012", "0", "0 4"},
		{"01", "1", "1 2 4"}, {"0123", "3", "3 4"},
	} {
		states := make([]rowState, len(rows))
		for i := range states {
			states[i].dropped = strings.Contains(tt.dropped, fmt.Sprint(i))
			states[i].retry = strings.Contains(tt.retry, fmt.Sprint(i))
		}
		var got []string
		for i := range rows {
			if active(rows, states, i) {
				got = append(got, fmt.Sprint(i))
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("dropped %q, tried again %q: %v, want %q", tt.dropped, tt.retry, got, tt.want)
		}
	}
}

// A reading is missing if no row of it is left, once.
func TestMissingRows(t *testing.T) {
	rows := []row[int]{{reading: "a"}, {reading: "b"}, {reading: "a", rank: 1}, {reading: "c"}, {reading: "c", rank: 1}}
	for _, tt := range []struct{ dropped, denied, want string }{
		{"", "", ""}, {"0", "", ""}, {"02", "", "a"}, {"1", "", "b"}, {"01234", "", "a b c"}, {"01234", "13", "a b c"},
	} {
		states := make([]rowState, len(rows))
		for i := range states {
			states[i].dropped = strings.Contains(tt.dropped, fmt.Sprint(i))
			states[i].denied = strings.Contains(tt.denied, fmt.Sprint(i))
		}
		if got := strings.Join(missingRows(rows, states, func(s *rowState) bool { return s.dropped }), " "); got != tt.want {
			t.Errorf("dropped %q: %q, want %q", tt.dropped, got, tt.want)
		}
		want := map[bool]string{true: "b c"}[tt.denied != ""]
		if got := strings.Join(missingRows(rows, states, func(s *rowState) bool { return s.denied }), " "); got != want {
			t.Errorf("denied %q: %q, want %q", tt.denied, got, want)
		}
	}
}

// The library that intercepts NVML among the mapped files of a process.
func TestWrapper(t *testing.T) {
	line := func(path string) string { return "7f00-7f01 r-xp 00000000 fd:00 1234     " + path + "\n" }
	real := line("/usr/lib/libnvidia-ml.so.580.105.08")
	for name, tt := range map[string]struct{ maps, want string }{
		"the driver's":             {"7f00-7f01 rw-p 00000000 00:00 0\n" + real, ""},
		"a shim":                   {line("/shim/libnvidia-ml.so.1") + real, "/shim/libnvidia-ml.so.1"},
		"a shim, after":            {real + line("/shim/libnvidia-ml.so.1"), "/shim/libnvidia-ml.so.1"},
		"a copy, not a link":       {line("/usr/lib/libnvidia-ml.so.1"), ""},
		"a copy that was replaced": {line("/usr/lib/libnvidia-ml.so.1 (deleted)") + line("/usr/lib/libnvidia-ml.so.1"), ""},
		"preloaded":                {line("/usr/local/vgpu/libvgpu.so") + real, "/usr/local/vgpu/libvgpu.so"},
		"a name that is similar":   {line("/x/libvgpu.so.2") + line("/x/mylibnvidia-ml.so.1") + real, ""},
		"nothing":                  {"", ""},
		"a file without a version": {line("/shim/libnvidia-ml.so.1") + line("/lib/libnvidia-ml.so"), ""},
	} {
		if got := bus.Wrapper(tt.maps, DefaultPath); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Processes of several lists are one process with the kinds of all and the memory of the largest; an unknown memory is none.
func TestMergedProcesses(t *testing.T) {
	in := &gpu.Instance{GI: 4, Compute: []gpu.ComputeInstance{{CI: 6}}}
	two := &gpu.Instance{GI: 4, Compute: []gpu.ComputeInstance{{CI: 6}, {CI: 7}}}
	const unknown, na = unknownInstance, ^uint64(0)
	type entry struct {
		kind   gpu.ProcessKind
		pid    uint32
		gi, ci uint32
		memory uint64
		of     *gpu.Instance
	}
	for name, tt := range map[string]struct {
		entries []entry
		want    string
	}{
		"kinds": {[]entry{{gpu.ProcessCompute, 1, unknown, unknown, 10, nil}, {gpu.ProcessGraphics, 1, unknown, unknown, 10, nil},
			{gpu.ProcessGraphics, 1, unknown, unknown, 10, nil}}, "[{1 [compute graphics] 10 – –}]"},
		"memory": {[]entry{{gpu.ProcessCompute, 1, unknown, unknown, 10, nil}, {gpu.ProcessGraphics, 1, unknown, unknown, 12, nil},
			{gpu.ProcessMPS, 1, unknown, unknown, 11, nil}}, "[{1 [compute graphics mps] 12 – –}]"},
		"unknown memory": {[]entry{{gpu.ProcessCompute, 1, unknown, unknown, na, nil}}, "[{1 [compute] – – –}]"},
		"no memory":      {[]entry{{gpu.ProcessCompute, 1, unknown, unknown, 0, nil}}, "[{1 [compute] 0 – –}]"},
		"instances": {[]entry{{gpu.ProcessCompute, 2, 1, 0, 1, nil}, {gpu.ProcessCompute, 1, 2, 1, 1, nil}, {gpu.ProcessCompute,
			1, 2, 0, 1, nil},
			{gpu.ProcessCompute, 1, 1, 5, 1, nil}},
			"[{1 [compute] 1 1 5} {1 [compute] 1 2 0} {1 [compute] 1 2 1} {2 [compute] 1 1 0}]"},
		"of a MIG device": {[]entry{{gpu.ProcessCompute, 1, unknown, unknown, 1, in}, {gpu.ProcessCompute, 2, 9, 8, 1, in},
			{gpu.ProcessCompute, 3, unknown, unknown, 1, two}}, "[{1 [compute] 1 4 6} {2 [compute] 1 4 8} {3 [compute] 1 4 –}]"},
	} {
		var l processList
		for _, e := range tt.entries {
			l.add(e.kind, nvml.ProcessInfo{Pid: e.pid, GpuInstanceId: e.gi, ComputeInstanceId: e.ci, UsedGpuMemory: e.memory}, e.of)
		}
		var to gpu.Medium
		if ret := l.finish(nvml.SUCCESS, &to); ret != nvml.SUCCESS || fmt.Sprint(to.Processes) != tt.want {
			t.Errorf("%s: %v, want %s", name, to.Processes, tt.want)
		}
		var none gpu.Medium
		if ret := l.finish(nvml.ERROR_UNKNOWN, &none); ret != nvml.ERROR_UNKNOWN || none.Processes.Present() {
			t.Errorf("%s: an incomplete list is published", name)
		}
	}
}

// What no exported family needs stays unread when a new MIG layout makes the GPU try every row again.
func TestUnreadStaysUnread(t *testing.T) {
	c := &GPU{dev: &device{session: &Session{library: New(Options{})}}, tables: newPollStates([]string{"gsp_mode"})}
	find := func() (unread []string) {
		for i := range slowRows {
			if c.tables.slow[i].unread {
				unread = append(unread, slowRows[i].reading)
			}
		}
		return unread
	}
	before := find()
	c.tables.slow[0].dropped = true
	if c.relearn(); len(before) == 0 || !slices.Equal(before, find()) || c.tables.slow[0].dropped {
		t.Errorf("unread %q, then %q; dropped is %v", before, find(), c.tables.slow[0].dropped)
	}
}
