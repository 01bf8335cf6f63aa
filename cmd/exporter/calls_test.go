package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// An interceptor makes calls in place of the driver; an injection makes one whose hung calls return with the channel.
type (
	interceptor func(dev int, call string, _ []int, value any, run func() int32) int32
	injection   func(release <-chan struct{}) interceptor
)

// allCalls selects every case, which takes half a minute per board: every call with every fault, at both times.
var allCalls = flag.Bool("calls.all", false, "try every fault at every driver call, not one per call and board")

// callFault is one thing that a driver call may do. The codes are those of nvml.h.
type callFault struct {
	name string
	do   func(call string, value any, run func() int32) int32
}

func callFaults(release <-chan struct{}) []callFault {
	code := func(ret int32) func(string, any, func() int32) int32 {
		return func(string, any, func() int32) int32 { return ret }
	}
	garbage := func(bits func() uint64) func(string, any, func() int32) int32 {
		return func(call string, value any, run func() int32) int32 {
			run()
			if value != nil {
				scramble(reflect.ValueOf(value).Elem(), call != "nvmlDeviceGetFieldValues", bits)
			}
			return 0
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // GPUs are read concurrently
	return []callFault{
		{"not supported", code(3)}, {"unknown error", code(999)}, {"invalid argument", code(2)},
		{"all ones", garbage(func() uint64 { return ^uint64(0) })},
		{"random", garbage(func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Uint64() >> (random.UintN(4) * 16)
		})},
		{"hung", func(_ string, _ any, run func() int32) int32 { <-release; return run() }},
		{"panic", func(string, any, func() int32) int32 { panic("planted") }},
	}
}

// scramble overwrites what a call returned, except handles: the library dereferences those. Lists become shorter or
// longer if resize is set.
func scramble(v reflect.Value, resize bool, bits func() uint64) {
	if !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			scramble(v.Field(i), resize, bits)
		}
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice && resize {
			v.Set(reflect.MakeSlice(v.Type(), int(bits()%5), 100))
		}
		for i := range v.Len() {
			scramble(v.Index(i), resize, bits)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("%c%c\x00\xff\n\"", rune(bits()), rune(bits())))
	case reflect.Bool:
		v.SetBool(bits()&1 == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(bits() << (64 - v.Type().Bits()) >> (64 - v.Type().Bits())))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(bits() << (64 - v.Type().Bits()) >> (64 - v.Type().Bits()))
	}
}

// callNodes are two GPUs of every board, and of every MIG layout.
func callNodes(t *testing.T) map[string]string {
	nodes := map[string]string{}
	boards, _ := filepath.Glob("../../testdata/scenarios/boards/*.scenario")
	for _, file := range boards {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		name := regexp.MustCompile(`(?m)^board (\S+)`).FindStringSubmatch(string(text))[1]
		node := "scenario 1\nsystem DriverVersion = \"580.1\"\ninclude boards/" + filepath.Base(file) + "\n"
		for i := range 2 {
			node += fmt.Sprintf("gpu %d board=%s pci=0000:%02x:00.0 uuid=GPU-%d\n", i, name, i+1, i) +
				fmt.Sprintf("process gpu=%d pid=%d memory=100MiB busy=40%% period=1s\n", i, 100+i)
		}
		nodes[name] = node
	}
	for _, mig := range []string{"h100-mig", "a100-mig"} {
		text, err := os.ReadFile("../../testdata/scenarios/" + mig + ".scenario")
		must.OK(t, err)
		if mig == "a100-mig" {
			text = append(text, "gpu 1 board=a100 pci=0000:64:00.0 minor=1\nprocess gpu=1 pid=99 memory=1GiB busy=60% "+
				"period=1s\n"...)
		}
		nodes[mig] = regexp.MustCompile(`(?m)^(symbols|title) .*\n`).ReplaceAllString(string(text), "")
	}
	return nodes
}

// TestEveryCallMayFail makes every call of every board fail in every way, on the first of two GPUs or for the driver as
// a whole, from the start and from the third poll on, one call at a time and some in pairs. The process must survive,
// panics must be counted, and the second GPU must read exactly what it reads beside a healthy first.
func TestEveryCallMayFail(t *testing.T) {
	list := cases{}
	for name, text := range callNodes(t) {
		all := func(t *testing.T) {
			s := parseScenario(t, text)
			dir := t.TempDir()
			c := callCheck{name: name, library: buildDriver(t, "newest", dir), control: simulate(t, s, dir), dir: dir,
				second: string(s.GPUs[1].UUID)}
			c.every(t)
		}
		if name == "h100-mig" {
			t.Run(name, func(t *testing.T) { isolated(t, all) })
		} else {
			list.add("newest", name, all)
		}
	}
	list.run(t)
}

type callCheck struct {
	name, library, dir string
	control            *scenario.Control
	second             string // UUID of the GPU that no fault concerns
	cases              int
}

// callPolls is the number of polls of a case: every poll group is read twice, and again after a GPU was given up.
const callPolls = 8

func (c *callCheck) every(t *testing.T) {
	type place struct {
		gpu  int
		call string
	}
	var mu sync.Mutex // calls of two GPUs are concurrent
	seen := map[place]bool{}
	healthy, _ := c.play(t, func(<-chan struct{}) interceptor {
		return func(dev int, call string, _ []int, _ any, run func() int32) int32 {
			if dev < 1 {
				mu.Lock()
				defer mu.Unlock()
				seen[place{dev, call}] = true
			}
			return run()
		}
	})
	if len(healthy) < 15 {
		t.Fatalf("the second GPU has %d series", len(healthy))
	}
	places := make([]place, 0, len(seen))
	for p := range seen {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(b.gpu-a.gpu, strings.Compare(a.call, b.call)) })
	random := rand.New(rand.NewPCG(3, 4))
	try := func(from int, faults ...string) func(at ...place) {
		return func(at ...place) {
			what := ""
			for i, p := range at {
				what += fmt.Sprintf(" gpu %d %s %s", p.gpu, p.call, faults[i])
			}
			count := map[place]int{}
			inject := func(release <-chan struct{}) interceptor {
				kinds := callFaults(release)
				return func(dev int, call string, _ []int, value any, run func() int32) int32 {
					i := slices.Index(at, place{dev, call})
					if i < 0 {
						return run()
					}
					mu.Lock()
					count[at[i]]++
					early := count[at[i]] <= from
					mu.Unlock()
					if early {
						return run()
					}
					k := slices.IndexFunc(kinds, func(f callFault) bool { return f.name == faults[i] })
					return kinds[k].do(call, value, run)
				}
			}
			got, panics := c.play(t, inject)
			if planted := slices.Contains(faults[:len(at)], "panic"); panics > 0 && !planted {
				t.Errorf("%s: %d panics", what, panics)
			}
			want := healthy
			if slices.Contains(faults, "hung") && (from == 0 || at[0].call == "nvmlDeviceGetInforomVersion") {
				// While an identity hangs (of which that call is made three times), the first scan takes longer: the second GPU's
				// counters start later.
				want, got = names(want), names(got)
			}
			alone := !slices.ContainsFunc(at, func(p place) bool { return p.gpu < 0 })
			if d := difference(strings.Join(want, "\n"), strings.Join(got, "\n")); alone && d != "" {
				t.Errorf("%s: the second GPU reads otherwise:\n%s", what, d)
			}
		}
	}
	faults := callFaults(nil)
	shift := len(c.name) // so that boards differ in what is tried
	for i, p := range places {
		i += shift
		for k, f := range faults {
			for _, from := range []int{0, 2} {
				if !*allCalls && (k != i%len(faults) || from != i/len(faults)%2*2) {
					continue
				}
				if f.name == "hung" && p.gpu < 0 && strings.HasPrefix(p.call, "nvmlDevice") {
					continue // it is called under a lock, which a bubble cannot wait for
				}
				try(from, f.name)(p)
			}
		}
	}
	faults = slices.DeleteFunc(faults, func(f callFault) bool { return f.name == "hung" })
	for range 10 {
		a, b := random.IntN(len(places)), random.IntN(len(places))
		try(random.IntN(3), faults[random.IntN(len(faults))].name, faults[random.IntN(len(faults))].name)(places[a], places[b])
	}
	t.Logf("%d calls, %d cases", len(places), c.cases)
	// A case whose nvmlShutdown failed leaves its session to the next board.
	for open := gonvml.New(gonvml.WithLibraryPath(c.library)); c.control.Sessions() > 0; {
		open.Shutdown()
	}
}

// play runs a case in time of its own, and returns the series of the second GPU and the number of panics.
func (c *callCheck) play(t *testing.T, inject injection) (series []string, panics uint64) {
	c.cases++
	synctest.Test(t, func(t *testing.T) {
		control, release := c.control, make(chan struct{})
		control.Set(0)
		library := nvml.New(nvml.Options{Path: c.library, Clock: control.Time, SysfsRoot: c.dir, Intercept: inject(release)})
		e := sampler.New(sampler.Options{Driver: driver{library}, Users: anyUser{}, Node: "n",
			Medium: 4 * time.Second, Slow: 6 * time.Second, Clock: control.Time})
		for range callPolls {
			e.Step(control.Time())
			control.Advance(2 * time.Second)
			time.Sleep(2 * time.Second)
		}
		view := e.Latest()
		metrics, err := collector.New(e.Latest, catalog.All())
		must.OK(t, err)
		var b strings.Builder
		if err := metrics.WriteText(&b, false, nil); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, `uuid="`+c.second+`"`) {
				series = append(series, line)
			}
		}
		panics = view.Panics.Or(0)
		close(release)
		time.Sleep(time.Second)
		e.Step(control.Time())
		e.Close()
	})
	return series, panics
}

// names returns series without their values.
func names(series []string) (out []string) {
	for _, s := range series {
		out = append(out, s[:strings.LastIndex(s, " ")])
	}
	return out
}

type anyUser struct{}

func (anyUser) Expect([]int) {}

func (anyUser) Find(pid int) account.User {
	return account.User{Container: gpu.Container{Namespace: "n", Pod: fmt.Sprint(pid), Name: "c"}}
}
