package nvml

import (
	"cmp"
	"errors"
	flags "flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

var update = flags.Bool("update", false, "write what each refusal costs instead of comparing it")

// refusalBoards offer, together, nearly every reading: NVLink 5, C2C and a rack; MIG; fans and a display; counters by part.
const refusalBoards = `scenario 1
symbols newest
system DriverVersion = "610.57"
system NVMLVersion = "13.610.57"
system CudaDriverVersion = 13030
include boards/gb200.scenario
include boards/h200-sxm.scenario
include boards/rtx-4090.scenario
gpu 0 board=gb200 pci=0000:01:00.0 minor=0 uuid=GPU-0
  AccountingMode = 1
gpu 1 board=h200 pci=0000:02:00.0 minor=1 uuid=GPU-1
gpu 2 board=rtx4090 pci=0000:03:00.0 minor=2 uuid=GPU-2
mig gpu=1 layout="gi=1 ci=0 profile=3g.71gb slices=1 start=0 size=4 uuid=MIG-a ; gi=1 ci=1 slices=2 uuid=MIG-b ; ` +
	`gi=7 profile=1g.18gb start=4 size=1 uuid=MIG-c"
process gpu=0 pid=10 memory=4GiB busy=30%
process gpu=1 pid=11 gi=1 ci=0 memory=7GiB busy=50%
process gpu=2 pid=12 kind=graphics memory=1GiB busy=20%
`

// refusals are the codes with which each call is refused: from the start, and once it has worked.
var refusals = map[bool][]nvml.Return{
	false: {nvml.ERROR_UNKNOWN, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION},
	true:  {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_GPU_IS_LOST},
}

// refusal is what is done to one call; the zero value is nothing. The driver's value is left in place where full is set: it
// counts for nothing beside an error.
type refusal struct {
	call string
	code nvml.Return
	full bool
	once bool // not from the start
}

// leaves are the values of a reading by path. Slices of samples count as their length.
func leaves(to map[string]string, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if present := v.FieldByName("ok"); present.IsValid() {
			if present.Bool() {
				to[path] = "present"
				leaves(to, path, v.FieldByName("value"))
			}
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Type != reflect.TypeFor[time.Time]() {
				leaves(to, strings.TrimPrefix(path+"."+f.Name, "."), v.Field(i))
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			leaves(to, fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key))
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[gpu.Ring]() {
			to[path] = fmt.Sprint(v.Len())
			return
		}
		for i := range v.Len() {
			leaves(to, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Float64:
		to[path] = fmt.Sprintf("%.9g", v.Float()) // a sum is as precise as the time at which the fake evaluates it
	default:
		if !v.IsZero() {
			to[path] = fmt.Sprint(v)
		}
	}
}

// refuse plays three polls under a refusal, the last without it and after the time in which everything is tried again, and
// returns the leaves of each, which include errors, counts of errors, what is not offered and what was logged.
func (r *harness) refuse(x refusal) (polls [3]map[string]string) {
	r.Helper()
	log := &strings.Builder{}
	on := !x.once
	r.at(20 * time.Second)
	library := New(Options{Path: r.library.Path(), Clock: r.control.Time, SysfsRoot: r.library.options.SysfsRoot,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}})),
		Intercept: func(_ int, call string, _ []int, _ any, run func() int32) int32 {
			if !on || call != x.call {
				return run()
			}
			if x.full {
				run()
			}
			return int32(x.code)
		}})
	s, err := library.Open()
	if err != nil {
		polls[0] = map[string]string{"open failed": strings.Replace(err.Error(), r.library.Path(), "LIBRARY", 1)}
		return polls
	}
	defer func() { _ = s.Close() }()
	for i, at := range []time.Duration{20 * time.Second, 22 * time.Second, 22*time.Second + retryDropped} {
		r.at(at)
		if i == 1 && x.once {
			on = true
		}
		if i == 2 {
			on = false
		}
		log.Reset()
		poll := map[string]string{}
		polls[i] = poll
		for key, text := range map[string]string{"driver": s.System().DriverVersion, "nvml": s.System().NVMLVersion,
			"cuda": s.System().CUDAVersion} {
			poll[key] = text
		}
		gpus, err := s.Scan()
		if err != nil {
			poll["scan failed"] = err.Error()
			continue
		}
		for _, c := range gpus {
			name := fmt.Sprintf("%d.", c.Identity().Index)
			leaves(poll, name+"Identity", reflect.ValueOf(c.Identity()))
			slow, err1 := c.Slow()
			fast, err2 := c.Fast(true)
			medium, err3 := c.Medium()
			leaves(poll, name+"Slow", reflect.ValueOf(slow))
			leaves(poll, name+"Fast", reflect.ValueOf(fast))
			leaves(poll, name+"Medium", reflect.ValueOf(medium))
			for j, err := range []error{err1, err2, err3, c.Err()} {
				if err != nil {
					poll[name+[]string{"Slow", "Fast", "Medium", "GPU"}[j]+" failed"] = err.Error()
				}
			}
			for _, reading := range c.NotOffered() {
				poll[name+"not offered: "+reading] = "yes"
			}
			for _, reading := range c.Denied() {
				poll[name+"denied: "+reading] = "yes"
			}
		}
		if _, err := s.WaitEvents(soon); err != nil {
			poll["events failed"] = err.Error()
		}
		for _, c := range library.Calls() {
			for _, e := range c.Errors {
				poll["errors of "+c.Call+" "+e.Code] = fmt.Sprint(e.Count)
			}
		}
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "level=DEBUG") {
				poll["log: "+strings.TrimSpace(line)] = "yes"
			}
		}
	}
	return polls
}

// costs are the differences of a poll to the one without a refusal, in one line. A top-level reading that is absent as a
// whole is one difference.
func costs(before, after map[string]string) string {
	var out []string
	top := func(path string) string {
		parts := strings.SplitN(path, ".", 4)
		return strings.Join(parts[:min(3, len(parts))], ".")
	}
	for _, all := range []string{"open failed", "scan failed"} {
		if text := after[all]; text != "" {
			return all + ": " + text
		}
	}
	left := map[string]bool{}
	for path := range after {
		left[top(path)] = true
		if group, failed := strings.CutSuffix(path, " failed"); failed { // it is empty: that says all
			before = maps.Clone(before)
			maps.DeleteFunc(before, func(path, _ string) bool { return strings.HasPrefix(path, group+".") })
		}
	}
	for path, v := range before {
		switch got, ok := after[path]; {
		case !ok && !left[top(path)]:
			out = append(out, "-"+top(path))
		case !ok:
			out = append(out, "-"+path)
		case got != v:
			out = append(out, path+"="+got)
		}
	}
	for path, v := range after {
		if _, ok := before[path]; !ok {
			out = append(out, "+"+strings.TrimSuffix(path+"="+v, "=yes"))
		}
	}
	slices.Sort(out)
	// What several GPUs have in common is one entry.
	on := map[string]string{}
	for _, entry := range out {
		index := oneGPU.FindString(entry)
		if d := strings.IndexAny(index, "012"); d >= 0 {
			index = index[d : d+1]
		}
		entry = reading.ReplaceAllString(oneGPU.ReplaceAllString(entry, "$1$2"), "read ROW of")
		if !strings.Contains(on[entry], index) || index == "" {
			on[entry] += index
		}
	}
	var merged []string
	for entry, index := range on {
		// Parts of what is absent as a whole, and what is denied, are not repeated.
		whole, _, part := strings.Cut(entry, "[")
		if _, repeated := on[whole]; part && repeated || on[strings.Replace(entry, "not offered", "denied", 1)] == index &&
			strings.Contains(entry, "not offered") {
			continue
		}
		merged = append(merged, strings.TrimSpace(entry+" "+index))
	}
	slices.Sort(merged)
	if n := len(merged); n > mostCosts {
		rest := strings.Join(merged[mostCosts:], "; ")
		merged = append(merged[:mostCosts:mostCosts], fmt.Sprintf("and %d more, %08x", n-mostCosts, crc32.ChecksumIEEE([]byte(rest))))
	}
	return strings.Join(merged, "; ")
}

// mostCosts is how many are spelled out.
const mostCosts = 16

// oneGPU is how an entry names its GPU, and reading how an error names the row.
var (
	oneGPU  = regexp.MustCompile(`^([+-]?)[012]\.|( of| gpu)?[ =]?GPU[ -][012]( \(GPU-[012]\))?`)
	passing = regexp.MustCompile(`\+(errors|log)[^;]*(; |$)`) // what differs from poll to poll
	reading = regexp.MustCompile(`read [a-z_0-9]+ of`)
)

// TestWhatEachRefusalCosts refuses each call of the guard table with each code, from the start and once it has worked, and
// compares what is absent, counted, logged and tried again with testdata/refused.txt. Whatever the driver leaves beside an
// error is not used.
func TestWhatEachRefusalCosts(t *testing.T) {
	s, err := scenario.Parse("refused.scenario", refusalBoards, os.DirFS(filepath.Join("..", "..", "testdata", "scenarios")))
	must.OK(t, err)
	r := play(t, s, "newest")
	base := r.refuse(refusal{})
	cost := map[string][]string{} // which calls have it
	for id := range guards {
		call := guards[id].name
		for _, once := range []bool{false, true} {
			for i, code := range refusals[once] {
				// Beside the first code the driver leaves its value, which must not be used; a session that was made has to be ended.
				polls := r.refuse(refusal{call: call, code: code, once: once, full: i == 0 && callID(id) != callInit})
				text, last := "", ""
				for i := range polls {
					if polls[i] == nil {
						break
					}
					c := strings.NewReplacer(codeName(code), "CODE", call, "CALL").Replace(costs(base[i], polls[i]))
					if now := passing.ReplaceAllString(c, ""); now != "" && now == last {
						c = strings.Replace(c, now, "as before", 1)
					} else {
						last = now
					}
					if c != "" {
						text += fmt.Sprintf("  poll %d: %s\n", i+1, c)
					}
				}
				who := fmt.Sprintf("%s %s%s", call, map[bool]string{true: "later "}[once], codeName(code))
				cost[text] = append(cost[text], who)
			}
		}
	}
	var out strings.Builder
	for _, text := range slices.SortedFunc(maps.Keys(cost), func(a, b string) int { return cmp.Compare(cost[a][0], cost[b][0]) }) {
		fmt.Fprintf(&out, "%s\n%s", strings.Join(cost[text], "\n"), cmp.Or(text, "  nothing\n"))
	}
	golden := filepath.Join("testdata", "refused.txt")
	if *update {
		must.OK(t, os.MkdirAll("testdata", 0o755))
		must.OK(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must.OK(t, err)
	if got := out.String(); got != string(want) {
		lines := strings.Split(string(want), "\n")
		for i, line := range strings.Split(got, "\n") {
			if i >= len(lines) || line != lines[i] {
				t.Errorf("line %d of %s is not any more as it was; if that is right, run go test ./internal/nvml -update and read the "+
					"diff:\n%s",
					i+1, golden, line)
				break
			}
		}
	}
}

// TestOneAnswerIsOlder: a driver that does not have the newest structure, or method, is asked with the one before; only what
// that lacks is absent.
func TestOneAnswerIsOlder(t *testing.T) {
	const text = `
gpu 0 board=b
  GpuFabricInfo = state=3 status=0 clique=7 health_mask=0x1109 health_summary=3 cluster=0x5c
  Temperature[gpu] = 42
  GpmQueryDeviceSupport = 1
  Gpm[1] = 100*util
load gpu=0 busy=50% period=1s
`
	for _, code := range []nvml.Return{nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_UNKNOWN} {
		r := playText(t, text)
		r.library.options.Intercept = func(_ int, call string, _ []int, value any, run func() int32) int32 {
			switch value.(type) {
			case *nvml.GpuFabricInfo_v3:
				return int32(code)
			case *nvml.Temperature:
				return int32(nvml.ERROR_NOT_SUPPORTED)
			}
			if call == "nvmlGpmSampleGet" {
				r.control.Advance(300 * time.Millisecond) // as long as it takes
			}
			return run()
		}
		c := r.open()[0]
		f, ok := slow(t, c).Fabric.Get()
		want := gpu.Fabric{State: gpu.FabricCompleted, Status: "SUCCESS", Clique: 7, Cluster: "5c000000-0000-0000-0000-000000000000",
			Faults: faultsOf(0x1109), Partitioned: gpu.Some(true)}
		if got := fmt.Sprint(f); ok != (code != nvml.ERROR_UNKNOWN) || ok && got != fmt.Sprint(want) {
			t.Errorf("%s: fabric %v, %s", codeName(code), ok, got)
		}
		if got := medium(t, c).Temperature; got != gpu.Some[gpu.Celsius](42) {
			t.Errorf("temperature %v", got)
		}
		// The window is between the ends of the two samples.
		fast(t, c)
		r.control.Advance(2 * time.Second)
		if g, _ := fast(t, c).GPM.Get(); g.Window != 2300*time.Millisecond {
			t.Errorf("window %v", g.Window)
		}
	}
}

// TestJetson: the GPU of a Jetson Orin (testdata/scenarios/boards/jetson-orin.scenario), with and without a UUID, is up; what it
// does not offer is absent and no error.
func TestJetson(t *testing.T) {
	for refused, want := range map[string]string{"": "GPU-orin", "nvmlDeviceGetUUID": "index-0"} {
		s, err := scenario.Parse("jetson.scenario", `scenario 1
symbols newest
system DriverVersion = "595.78"
system NVMLVersion = "13.595.78"
system CudaDriverVersion = 13020
include boards/jetson-orin.scenario
gpu 0 board=jetson-orin uuid=GPU-orin
`, os.DirFS("../../testdata/scenarios"))
		must.OK(t, err)
		r := play(t, s, "newest")
		r.library.options.Intercept = func(_ int, call string, _ []int, _ any, run func() int32) int32 {
			if call == refused {
				return int32(nvml.ERROR_NOT_SUPPORTED)
			}
			return run()
		}
		c := r.open()[0]
		if id := c.Identity(); id.PCI != "" || string(id.UUID) != want || id.Model != "Orin (nvgpu)" || id.ComputeCapability != "8.7" {
			t.Errorf("%+v", id)
		}
		for range 3 {
			slow(t, c)
			f, m := fast(t, c), medium(t, c)
			if f.Busy.Present() || f.Utilization.Present() || f.Power.Present() || m.Memory.Present() || !m.Integrated ||
				m.Temperature.Present() || c.Err() != nil {
				t.Errorf("%+v, %+v, %v", f, m, c.Err())
			}
			r.control.Advance(2 * time.Second)
			if again := r.scan(); again[0] != c {
				t.Error("it was found again as another GPU")
			}
		}
		checkCalls(r)
		if _, err := r.session.WaitEvents(soon); err != nil && !errors.Is(err, ErrNoEvents) {
			t.Error(err)
		}
	}
}
