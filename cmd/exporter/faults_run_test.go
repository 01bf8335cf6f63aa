package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

const (
	// believedFor is the exporter's --kubelet.max-age here: short, so that storms outlast it.
	acceptedFor = time.Minute
	// askEvery is the kubelet's poll group.
	askEvery = 10 * time.Second
)

// violation is an invariant that did not hold.
type violation struct {
	at        time.Duration
	invariant string
	what      string
}

func (v violation) String() string { return fmt.Sprintf("at %v: %s: %s", v.at, v.invariant, v.what) }

// trial plays a world before the program and watches it.
type trial struct {
	t       *testing.T
	w       *world
	s       *scenario.Scenario
	st      *stage
	hands   *hands
	door    *doorman
	handler http.Handler
	network *httptest.Server // of the handler
	api     *apiServers

	tick     time.Duration // from step to step
	every    int           // all is checked after so many steps
	at       time.Duration // of the scenario
	round    int
	procs    map[int]string              // what stands in /proc, by PID
	pairs    [worldGPUs]gpu.Opt[gpu.GPM] // GPM's latest
	logs     map[string]bool
	down     bool
	empties  int
	reported int // XIDs that the kernel log has
	counts   func(gpu.XIDEvent) bool
	replace  int // how often a new process was asked for

	// What the kubelet last got across.
	accepted                []*workload
	hasRecord, doubted      bool
	restarted               bool          // since then
	lastSuccess             time.Duration // by the monotonic clock
	lastQuery               time.Duration
	kubeletWrong, procWrong time.Duration // when last, by the monotonic clock

	check      checker
	violations []violation
	figures    figures
}

// figures are what the suite says of itself.
type figures struct {
	Steps, Faults, Pairs, Checks, Scrapes int
	Kinds                                 map[string]int
	Series, Goroutines                    int // at most
	Heap                                  uint64
}

func (f *figures) add(g figures) {
	f.Steps, f.Faults, f.Pairs, f.Checks, f.Scrapes = f.Steps+g.Steps, f.Faults+g.Faults, f.Pairs+g.Pairs, f.Checks+g.Checks,
		f.Scrapes+g.Scrapes
	f.Series, f.Goroutines, f.Heap = max(f.Series, g.Series), max(f.Goroutines, g.Goroutines), max(f.Heap, g.Heap)
	if f.Kinds == nil {
		f.Kinds = map[string]int{}
	}
	for k, n := range g.Kinds {
		f.Kinds[k] += n
	}
}

// begin puts the program before a world. It must run in an isolated process.
func begin(t *testing.T, w *world, mistake func(*plant), flags ...string) *trial {
	t.Helper()
	plan := newPlant(mistake)
	s := w.parse(t)
	r := &trial{t: t, w: w, s: s, tick: tick, every: 1, procs: map[int]string{}, logs: map[string]bool{},
		figures: figures{Kinds: map[string]int{}}}
	r.st = furnish(t, s, w.node(0))
	plan.checkpoint = r.checkpoint()
	left, err := filepath.Glob(filepath.Join(r.st.trees.Procfs, "[0-9]*"))
	for _, d := range left {
		err = errors.Join(err, os.RemoveAll(d)) // who runs when is this test's to say
	}
	must.OK(t, err)
	r.hands = newHands(t, r.st.control)
	r.door = r.st.door
	r.door.watch, r.door.devs = r.hands.awake, map[gpu.UUID]int{}
	for i, c := range w.devs {
		r.door.devs[gpu.UUID(c.uuid)] = i
	}
	r.st.hangs = func(at time.Duration) (n int) {
		for _, f := range w.faults {
			if f.kind == "call hangs" && f.has(at) {
				n++
			}
		}
		return n
	}
	change := hooks{
		sampler: func(o *sampler.Options) {
			plan.found, plan.sick, plan.lists, plan.listed = r.found, r.distort, r.lists, r.api.listed
			plan.taken = func() bool { return r.has("events taken") }
			o.Driver = guarded{o.Driver, r.door, plan}
			o.Resolver = plannedAllocations{o.Resolver, plan}
			o.Users = plannedUsers{o.Users, plan, r}
		},
	}
	r.api = serveAPI(t)
	r.st.begin(r.hands.now, func(error) { r.replace++ }, change,
		append([]string{"--kubelet.max-age=" + acceptedFor.String(), "--log.level=error", "--kubelet.checkpoint=" + r.checkpoint(),
			"--kubernetes.pods", "--kubernetes.api-server=" + r.api.URL}, flags...)...)
	if plan.view != nil {
		shown := plan.shown(r.st.e.sampler.Latest)
		if r.st.e.metrics, err = collector.New(shown, catalog.All()); err != nil {
			t.Fatal(err)
		}
	}
	r.handler = plan.page(r.st.e.server(r.st.config).Handler)
	r.network = httptest.NewServer(r.handler)
	t.Cleanup(r.network.Close)
	r.counts = plan.kernel
	r.check.begin(r)
	return r
}

type plannedAllocations struct {
	of   sampler.Resolver
	plan *plant
}

func (p plannedAllocations) Allocations(inv *gpu.Inventory) gpu.Allocations {
	return p.plan.allocs(p.of.Allocations(inv))
}

type plannedUsers struct {
	of    sampler.Users
	plan  *plant
	trial *trial
}

func (p plannedUsers) Expect(pids []int) { p.of.Expect(pids) }

// Find checks each name: that of the process which has the PID now. Where /proc has none, it is of the last that was seen.
func (p plannedUsers) Find(pid int) account.User {
	u := p.plan.user(pid, p.of.Find(pid))
	r := p.trial
	r.figures.Checks++
	if w := r.running(pid); u.Reason == "" && w != nil && r.procs[pid] != "" && u.Container.Pod != w.name {
		r.violate("wrong pod", "process %d of %s is said to be of %s", pid, w.name, u.Container.Pod)
	}
	return u
}

// running is the workload whose process has a PID; nil: none.
func (r *trial) running(pid int) *workload {
	i := slices.IndexFunc(r.w.workloads, func(p *workload) bool { return p.pid == pid && p.dev != everyGPU && p.runs.has(r.at) })
	if i < 0 {
		return nil
	}
	return r.w.workloads[i]
}

// lists is the pod that the kubelet last listed with the device of a process.
func (r *trial) lists(pid int) string {
	for _, p := range r.accepted {
		if w := r.running(pid); w != nil && w.dev == p.dev && w.id == p.id {
			return p.name
		}
	}
	return ""
}

// has reports whether there is a fault of a kind now.
func (r *trial) has(kind string) bool {
	return slices.ContainsFunc(r.w.during(r.at), func(f fault) bool { return f.kind == kind })
}

// apiServers are two API servers at one address. Each watch has expired when it begins: whoever watches lists again, and then
// the other responds.
type apiServers struct {
	*httptest.Server
	lists  [2][]*workload // of each
	turn   int
	served bool // since the lists were last emptied
	cancel context.CancelFunc
}

func serveAPI(t *testing.T) *apiServers {
	a := &apiServers{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			a.cancel()
			w.WriteHeader(http.StatusGone)
			return
		}
		items := []any{}
		for _, p := range a.lists[a.turn] {
			items = append(items, map[string]any{"metadata": map[string]any{"namespace": "team", "name": p.name, "uid": uidOf(p.name)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}))
	t.Cleanup(a.Close)
	return a
}

// listed reports whether the server that responded last has a pod; true where none did.
func (a *apiServers) listed(pod string) bool {
	return !a.served || slices.ContainsFunc(a.lists[a.turn], func(p *workload) bool { return p.name == pod })
}

// watchAPI has the program list the pods, of one server and then of the other.
func (r *trial) watchAPI(active []fault) {
	i := slices.IndexFunc(active, func(f fault) bool { return f.kind == "API servers disagree" })
	if i < 0 && !r.api.served {
		return
	}
	r.api.served, r.api.lists = i >= 0, [2][]*workload{}
	for _, p := range r.w.workloads {
		for server, behind := range []bool{false, true} {
			if i >= 0 && p.listed.has(r.at) && !behind || i >= 0 && behind && p.listed.has(r.at-active[i].size) {
				r.api.lists[server] = append(r.api.lists[server], p)
			}
		}
	}
	r.api.turn = 1 - r.api.turn
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	r.api.cancel = cancel
	r.st.e.pods.Watch(ctx)
}

// request reads a response as it comes over the network, until between of it is there.
func (r *trial) request(between func()) []byte {
	conn, err := net.Dial("tcp", r.network.Listener.Addr().String())
	must.OK(r.t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"))
	must.OK(r.t, err)
	first := make([]byte, 1024)
	n, err := conn.Read(first)
	must.OK(r.t, err)
	between()
	rest, err := io.ReadAll(conn)
	must.OK(r.t, err)
	return append(first[:n], rest...)
}

// cuts reads responses that are delayed, repeated, and cut: only whole ones are pages.
func (r *trial) cuts() {
	var second []byte
	first := r.request(func() {
		r.st.e.sampler.Step(r.hands.now())
		second = r.request(func() {})
	})
	for _, whole := range [][]byte{first, second} {
		for n := len(whole); n > 0; n = (n - 1) / 2 {
			response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(whole[:n])), nil)
			var text []byte
			if err == nil {
				text, err = io.ReadAll(response.Body)
			}
			if n == len(whole) && err == nil {
				_, err = testkit.Families(string(text))
			}
			r.figures.Checks++
			if (err == nil) != (n == len(whole)) {
				r.violate("scrape", "%d of %d bytes of a response: %v", n, len(whole), err)
			}
		}
	}
}

// run plays on until the world ends, or one of the invariants that are wanted is violated, or too much is.
func (r *trial) run(wanted ...string) {
	caught := func(v violation) bool { return slices.Contains(wanted, v.invariant) }
	most := 20
	if len(wanted) > 0 {
		most = 2000
	}
	r.step()
	for r.at < r.w.length && !slices.ContainsFunc(r.violations, caught) && len(r.violations) < most {
		if r.advance(); !r.starved() {
			r.step()
		}
	}
	for _, f := range r.w.faults {
		if f.from <= r.at {
			r.figures.Faults++
			r.figures.Kinds[f.kind]++
		}
	}
	for i, a := range r.w.faults {
		for _, b := range r.w.faults[i+1:] {
			if b.from <= r.at && a.from < b.to && b.from < a.to {
				r.figures.Pairs++
			}
		}
	}
}

// finish lets the driver go, and looks whether it was.
func (r *trial) finish() {
	r.st.e.sampler.Close()
	r.st.e.pods.Close()
	if n := r.st.control.Sessions(); n != 0 && r.st.control.Hanging() == 0 {
		r.violate("bounded", "%d sessions of the driver are left open", n)
	}
}

func (r *trial) violate(invariant, format string, args ...any) {
	r.violations = append(r.violations, violation{r.at, invariant, fmt.Sprintf(format, args...)})
}

// advance moves the clocks to the next tick, with what befalls them on the way.
func (r *trial) advance() {
	before := r.st.control.Now()
	r.st.control.Advance(r.tick)
	for _, f := range r.w.faults {
		if f.from <= before || f.from > before+r.tick {
			continue
		}
		switch f.kind {
		case "clock forward", "clock back":
			r.hands.set(f.size)
		case "suspend":
			r.hands.sleep(f.size)
		case "exporter stopped":
			r.st.control.Advance(f.size)
			r.kubeletWrong = r.hands.awake() // its last list is old, and a first one without pods is not believed
		}
	}
	r.at = r.st.control.Now()
	r.st.settle()
}

// starved reports whether the program gets no time for a poll now: for nine of ten seconds.
func (r *trial) starved() bool {
	return int(r.at/r.tick)%5 != 0 && slices.ContainsFunc(r.w.during(r.at), func(f fault) bool { return f.kind == "exporter starved" })
}

// step brings the node up to the moment, has the program do a poll, and checks what it says.
func (r *trial) step() {
	active := r.w.during(r.at)
	r.layProc(active)
	r.layLogs(active)
	r.layCheckpoint(active)
	r.watchAPI(active)
	r.kubelet(active)
	r.kernelLog()
	if slices.ContainsFunc(active, func(f fault) bool { return f.kind == "no descriptors" }) {
		r.procWrong = r.hands.awake()
		withoutDescriptors(r.t, func() { r.st.e.sampler.Step(r.hands.now()) })
	} else {
		r.st.e.sampler.Step(r.hands.now())
	}
	r.round++
	r.figures.Steps++
	r.check.step(active)
}

// withoutDescriptors does something while this process can open nothing.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var usual syscall.Rlimit
	must.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual))
	set := func(limit syscall.Rlimit) {
		must.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	set(syscall.Rlimit{Cur: 0, Max: usual.Max})
	defer set(usual)
	do()
}

// garbage are texts that no kernel writes into a cgroup file, or half of one that it does.
var garbage = []string{"", "\x00\x00\x00", "0::/kubepods/pod", "0::/kubepods/burstable/pod0123/" + strings.Repeat("z", 64) + "\n",
	strings.Repeat("A", 5000), "12:memory:\n:::\n0::\n"}

// layProc writes /proc as it is at the moment.
func (r *trial) layProc(active []fault) {
	want := map[int]string{}
	wrong := false
	for _, p := range r.w.workloads {
		if p.dev == everyGPU || !p.runs.has(r.at) {
			continue
		}
		state := fmt.Sprintf("%d %s", p.begun, p.name)
		for _, f := range active {
			switch {
			case f.kind == "proc refused" && state != "":
				state, wrong = fmt.Sprintf("%d ?", p.begun), true
			case f.kind == "proc ended", f.kind == "process vanishes" && f.dev == p.dev:
				state, wrong = "", true
			case f.kind == "cgroup garbage" && f.dev == p.dev && state != "" && !strings.HasSuffix(state, "?"):
				state, wrong = fmt.Sprintf("%d !%d", p.begun, int(f.from/time.Second)%len(garbage)), true
			case f.kind == "cgroup forged" && state != "" && !strings.ContainsAny(state, "!?"):
				for _, other := range r.w.workloads {
					if other != p && other.dev != everyGPU && other.listed.has(r.at) {
						state = fmt.Sprintf("%d %s>%s", p.begun, p.name, other.name)
						break
					}
				}
			}
		}
		if state != "" {
			want[p.pid] = state
		}
	}
	if wrong {
		r.procWrong = r.hands.awake()
	}
	for pid, state := range r.procs {
		if want[pid] != state {
			must.OK(r.t, os.RemoveAll(filepath.Join(r.st.trees.Procfs, strconv.Itoa(pid))))
			delete(r.procs, pid)
			delete(forgeries, pid)
		}
	}
	for pid, state := range want {
		if r.procs[pid] == state {
			continue
		}
		begun, who, _ := strings.Cut(state, " ")
		who, victim, _ := strings.Cut(who, ">")
		cgroup := "0::" + cgroupOf(who)
		if victim != "" { // the pod made the cgroup of another inside its own
			cgroup += cgroupOf(victim)
			forgeries[pid] = victim
		}
		cgroup += "\n"
		if n, isGarbage := strings.CutPrefix(who, "!"); isGarbage {
			i, _ := strconv.Atoi(n)
			cgroup = garbage[i]
		}
		dir := filepath.Join(r.st.trees.Procfs, strconv.Itoa(pid))
		err := os.MkdirAll(dir, 0o755)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "stat"),
			fmt.Appendf(nil, "%d (main) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %s 0 0\n", pid, begun), 0o644))
		if who == "?" { // for root it is not refused, but no less unreadable
			err = errors.Join(err, os.Mkdir(filepath.Join(dir, "cgroup"), 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644))
		}
		must.OK(r.t, err)
		r.procs[pid] = state
	}
}

func cgroupOf(name string) string { return "/kubepods/pod" + uidOf(name) + "/" + digestOf(name) }

func digestOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func uidOf(name string) string {
	h := digestOf("uid of " + name)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

// layLogs writes the names of logs: they outlast their pod by a moment.
func (r *trial) layLogs(active []fault) {
	gone := slices.ContainsFunc(active, func(f fault) bool { return f.kind == "logs replaced" || f.kind == "list behind checkpoint" })
	if gone {
		r.procWrong = r.hands.awake()
	}
	for _, p := range r.w.workloads {
		there := (span{p.listed.from, p.listed.to + 20*time.Second}).has(r.at)
		if there = there && !gone; there == r.logs[p.name] {
			continue
		}
		pod := filepath.Join(r.st.trees.PodLogs, "team_"+p.name+"_"+uidOf(p.name))
		link := filepath.Join(r.st.trees.ContainerLogs, p.name+"_team_main-"+digestOf(p.name)+".log")
		var err error
		if there {
			err = errors.Join(os.MkdirAll(filepath.Join(pod, "main"), 0o755), os.MkdirAll(r.st.trees.ContainerLogs, 0o755),
				os.WriteFile(link, nil, 0o644))
		} else {
			err = errors.Join(os.RemoveAll(pod), os.Remove(link))
		}
		must.OK(r.t, err)
		r.logs[p.name] = there
	}
}

// checkpoint is the path of the kubelet's device checkpoint.
func (r *trial) checkpoint() string { return filepath.Join(r.st.dir, "kubelet_internal_checkpoint") }

// layCheckpoint writes it: half of it, or an older one.
func (r *trial) layCheckpoint(active []fault) {
	at, torn := r.at, false
	for _, f := range active {
		switch f.kind {
		case "checkpoint old", "kubelet stale": // a list may be as old as the file, not older
			at = max(0, min(at, r.at-f.size))
		case "checkpoint torn":
			torn = true
		}
	}
	entries := []any{}
	for _, p := range r.w.workloads {
		if p.dev != everyGPU && p.listed.has(at) {
			entries = append(entries, map[string]any{"PodUID": uidOf(p.name), "ContainerName": "main", "ResourceName": p.resource,
				"DeviceIDs": map[string][]string{"0": {p.id}}, "AllocResp": ""})
		}
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}, "Checksum": 1})
	if torn {
		text = text[:len(text)/2]
	}
	must.OK(r.t, errors.Join(err, os.WriteFile(r.checkpoint(), text, 0o600)))
}

// address is where a GPU is. While GPUFree is another, it and GPUCalm, which never fails alone, have changed places.
func (r *trial) address(dev int) gpu.PCIAddress {
	if r.has("driver finds another GPU") {
		dev = [worldGPUs]int{GPUFree, GPUShared, GPUWhole, GPUCalm, GPUMIG}[dev]
	}
	return gpu.PCIAddress(r.w.devs[dev].pci)
}

// found is the GPU that the driver lists in the place of another.
func (r *trial) found(id gpu.Identity) gpu.Identity {
	dev, known := r.door.devs[id.UUID]
	if r.has("driver finds another GPU") && known && (dev == GPUFree || dev == GPUCalm) {
		if id.PCI = r.address(dev); dev == GPUFree {
			id.UUID = anotherUUID
		}
	}
	return id
}

// distort makes of a reading of the driver what its faults make of it.
func (r *trial) distort(id gpu.Identity, f *gpu.Fast) {
	dev, known := r.door.devs[id.UUID]
	if !known {
		return
	}
	late := r.pairs[dev]
	r.pairs[dev] = f.GPM
	for _, a := range r.w.faults {
		switch {
		case a.dev != dev:
		case a.kind == "samples fast":
			zero := r.st.control.Time().Add(-r.st.control.Now())
			ahead := func(of int64) int64 {
				passed := time.UnixMicro(of).Sub(zero)
				return of + int64(float64(max(0, min(passed, a.to)-a.from)/time.Microsecond)*fastBy)
			}
			for _, ring := range []*gpu.Opt[gpu.Ring]{&f.Busy, &f.MemoryBusy} {
				if list, ok := ring.Get(); ok {
					list = slices.Clone(list)
					for i := range list {
						list[i].Time = ahead(list[i].Time)
					}
					*ring = gpu.Some(list)
				}
			}
			list := slices.Clone(f.Processes.Or(nil))
			for i := range list {
				list[i].Time = ahead(list[i].Time)
			}
			if f.Processes.Present() {
				f.Processes = gpu.Some(list)
			}
		case a.kind == "GPM late" && a.has(r.at):
			f.GPM = late
		case a.kind == "GPM biased" && a.has(r.at):
			if pair, ok := f.GPM.Get(); ok {
				if rate, ok := pair.PCIeTransmit.Get(); ok {
					pair.PCIeTransmit = gpu.Some(rate * biased)
				}
				f.GPM = gpu.Some(pair)
			}
		}
	}
}

// By how much the driver's clock is fast, and GPM's rates are off, in the faults that are called so.
const fastBy, biased = 0.05, 1.3

// kubelet has the kubelet fail as it should now, and asks it where the poll group is due.
func (r *trial) kubelet(active []fault) {
	var f standin.KubeletFault
	down, anew := false, false
	listed := r.at // the time of which the kubelet's list is
	for _, a := range active {
		switch a.kind {
		case "kubelet down":
			down = true
		case "kubelet slow":
			f.Delay = 20 * time.Millisecond
		case "kubelet exhausted":
			f.Exhausted = true
		case "kubelet hangs":
			// What the client makes of a response that does not come in time; real ones are in TestHungSources.
			f.ListError = status.FromContextError(context.DeadlineExceeded).Err()
		case "kubelet garbage":
			f.Garbage = true
		case "kubelet error":
			f.ListError, f.AllocatableError = errors.New("internal error"), errors.New("internal error")
		case "kubelet huge":
			f.Padding = 2 << 20
		case "kubelet floods":
			f.Pods = 5000
		case "kubelet flaps":
			down = down || int(r.hands.awake()/askEvery)%2 == 1
		case "kubelet asymmetric":
			f.AllocatableError = errors.New("internal error")
		case "kubelet stale", "list behind checkpoint":
			listed = max(0, r.at-a.size)
		case "kubelet restarted":
			anew, r.empties = true, 1
		case "kubelet socket recreated":
			anew = true
		default:
			continue
		}
		r.kubeletWrong = r.hands.awake()
	}
	var err error
	switch {
	case down && !r.down:
		err = r.st.kubelet.Stop(r.t.Context())
	case !down && (r.down || anew):
		r.restarted = true
		err = r.st.kubelet.Restart(r.t.Context(), r.empties)
	}
	must.OK(r.t, err)
	r.down = down
	now := r.hands.awake()
	if r.round > 0 && now-r.lastQuery < askEvery {
		return
	}
	r.lastQuery = now
	f.EmptyLists = r.empties
	r.st.kubelet.SetFault(f)
	r.st.kubelet.SetNode(r.w.node(listed))
	if err := r.st.e.pods.Poll(r.t.Context()); err != nil {
		if f.Garbage && !down && !f.Exhausted && f.ListError == nil {
			r.empties = 0 // it was told, and broke on the way
		}
		r.doubted = false
		r.kubeletWrong = now
		return
	}
	var response []*workload
	pods := 0
	if r.empties == 0 {
		pods = 1
		for _, p := range r.w.workloads {
			if p.listed.has(listed) {
				response = append(response, p)
			}
		}
	}
	r.empties = 0
	credible := r.doubted || pods > 0 && !r.restarted || len(response) > 0 || !r.hasRecord && pods > 0 ||
		r.hasRecord && len(r.accepted) == 0
	if !credible {
		r.doubted = true
		return
	}
	r.accepted, r.hasRecord, r.doubted, r.restarted, r.lastSuccess = response, true, false, false, now
}

// owned reports whether an answer of the kubelet is young enough to be believed.
func (r *trial) owned() bool { return r.hasRecord && r.hands.awake()-r.lastSuccess <= acceptedFor }

// kernelLog tells the XIDs that the kernel wrote down.
func (r *trial) kernelLog() {
	for ; r.reported < len(r.w.xids) && r.w.xids[r.reported].at <= r.at; r.reported++ {
		x := r.w.xids[r.reported]
		for range x.kmsg {
			e := gpu.XIDEvent{PCI: r.address(x.dev), XID: x.code, Time: r.hands.now(), Source: gpu.SourceKmsg}
			if r.counts(e) {
				r.st.e.sampler.Event(e)
			}
		}
	}
}

// scrape asks as Prometheus does, and reads the response as it does.
func (r *trial) scrape() {
	before := r.st.calls()
	response := httptest.NewRecorder()
	r.handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	r.figures.Scrapes++
	if r.st.calls() != before {
		r.violate("scrape", "it called the driver")
	}
	if response.Code != http.StatusOK {
		r.violate("scrape", "it was answered %d: %.200s", response.Code, response.Body)
		return
	}
	if _, err := testkit.Families(response.Body.String()); err != nil {
		r.violate("scrape", "it cannot be read: %v", err)
	}
}

// measure keeps how much the process holds.
func (r *trial) measure() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	goroutines, heap = runtime.NumGoroutine(), m.HeapAlloc
	r.figures.Goroutines, r.figures.Heap = max(r.figures.Goroutines, goroutines), max(r.figures.Heap, heap)
	return goroutines, heap
}

// report fails the test with all that did not hold, and how to see it again.
func (r *trial) report() {
	if len(r.violations) == 0 {
		return
	}
	var b strings.Builder
	for _, v := range r.violations[:min(8, len(r.violations))] {
		fmt.Fprintf(&b, "%v\n", v)
		for _, f := range r.w.faults {
			if f.from <= v.at && f.to+3*time.Minute > v.at {
				fmt.Fprintf(&b, "    %s, GPU %d, from %v to %v\n", f.kind, f.dev, f.from, f.to)
			}
		}
	}
	r.t.Errorf("seed %d: %d violations; again: go test ./cmd/exporter -run 'TestFaults$' -seed=%d -steps=%d\n%s", r.w.seed,
		len(r.violations), r.w.seed, r.figures.Steps, &b)
}

// random returns another seed than that of any run before.
func random() uint64 { return cmp.Or(rand.Uint64N(1_000_000_000), 1) }
