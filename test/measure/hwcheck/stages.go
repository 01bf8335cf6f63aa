package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The stages.
const (
	stageIdle     = "idle"
	stageJournal  = "journal"
	stageRings    = "rings"
	stageLoad     = "loaded"
	stageShared   = "shared"
	stageLittle   = "little load"
	stageMPS      = "mps"
	stageCopyPeer = "copies to a GPU"
	stageMIG      = "mig"
	stageXID      = "xid"
	stageCost     = "cost"
	stageUsers    = "users"
	stageLetGo    = "let go"
	stageSuspend  = "suspend"
)

// The roles of loads.
const (
	roleBusy = "busy"
	roleCopy = "copy"
)

// polls are the poll groups of the exporter that runs during a stage.
type polls int

const (
	noExporter   polls = iota // the stage starts its own, or none
	quickPolls                // so that each field is read often
	defaultPolls              // those of --polls
)

func (p polls) String() string { return [...]string{"no exporter", "quick polls", "default polls"}[p] }

// stage is a situation in which claims are checked. Its function fills the period, and returns untestable where the
// machine does not offer what it needs.
type stage struct {
	name  string
	polls polls
	// periods and rest are how long it takes: periods of --period, and seconds.
	periods, rest float64
	run           func(r *run, ctx context.Context, e *exporter, p *period) error
}

// takes is how long a stage may take.
func (s stage) takes(r *run) time.Duration {
	return time.Duration(s.periods*float64(r.period) + s.rest*float64(time.Second))
}

// stages returns the stages in the order of what they settle per second.
func stages() []stage {
	out := []stage{
		{stageIdle, quickPolls, 1, 15, (*run).idle},
		{stageJournal, quickPolls, 0, 10, (*run).journal},
		{stageRings, quickPolls, 0, 17, (*run).rings},
		{stageLoad, defaultPolls, 1, 35, (*run).loaded},
		{stageShared, defaultPolls, 1, 25, (*run).shared},
	}
	for _, c := range pcieStages() {
		out = append(out, stage{c.stage, defaultPolls, 1, 8, c.run})
	}
	return append(out, []stage{
		{stageLittle, defaultPolls, 1, 10, (*run).little},
		{stageMPS, defaultPolls, 1, 15, (*run).mps},
		{stageCopyPeer, defaultPolls, 1, 8, (*run).copyPeer},
		{stageMIG, quickPolls, 1, 30, (*run).mig},
		{stageXID, quickPolls, 0, 25, (*run).xid},
		{stageCost, noExporter, 3, 15, (*run).cost},
		{stageUsers, noExporter, 0, 20, (*run).asUsers},
		{stageLetGo, noExporter, 0, 25, (*run).letGo},
		{stageSuspend, noExporter, 1, 80, (*run).suspend},
	}...)
}

// untestable is why a stage cannot be tested on this machine.
type untestable struct{ error }

func cannot(format string, args ...any) error { return untestable{fmt.Errorf(format, args...)} }

// examineStage runs a stage and checks its claims. What is not checked has a line with the reason.
func (r *run) examineStage(ctx context.Context, s stage, e *exporter) {
	p := &period{stage: s.name, uuid: r.checked["uuid"], loads: map[string]*load{}, noted: map[string]float64{},
		absent: map[string]string{}, fast: s.polls.of(r.config)[0].Seconds()}
	var err error
	if r.leftOut(s) {
		err = cannot("--only leaves the stage %s out", s.name)
	} else if reason := r.hinders(s.name, ""); reason != "" {
		err = cannot("not testable here: %s", reason)
	} else {
		r.progress("%s", s.name)
		err = s.run(r, ctx, e, p)
	}
	for _, l := range p.loads {
		l.stop()
	}
	for _, c := range claims() {
		if c.stage != s.name && (c.stage != "" || p.after == nil) {
			continue
		}
		out := Check{Name: c.name, Number: hardware.Number(c.name)}
		reason := r.hinders(c.stage, c.name)
		switch {
		case errors.As(err, new(untestable)):
			r.add(out.skipped("%v", err))
		case reason != "":
			r.add(out.skipped("not testable here: %s", reason))
		case err != nil:
			r.add(out.incomplete("%v", err))
		case c.applies == nil || c.applies(p):
			r.add(c.check(p))
		}
	}
	if p.after != nil && (s.name == stageIdle || s.name == stageLoad) {
		for call, h := range p.calls() {
			r.latency(call, s.name == stageIdle, h)
		}
	}
	if p.probe != nil {
		r.probed = r.probed.with(p.probe)
	}
}

// start starts a load of the stage on the checked GPU.
func (r *run) start(p *period, role, cgroup string, env []string, args ...string) error {
	if r.load == loadNone || r.load == loadManual {
		return cannot("--load=%s: %s", r.load, manualHint)
	}
	if r.loadErr != nil {
		return fmt.Errorf("no load could be built (%w): %s", r.loadErr, manualHint)
	}
	uuids := []string{p.uuid}
	if args[0] == "p2p" {
		for _, d := range r.devices {
			if d["uuid"] != p.uuid && len(uuids) == 1 {
				uuids = append(uuids, d["uuid"])
			}
		}
		if len(uuids) == 1 {
			return cannot("one GPU alone")
		}
	}
	// The load lasts longer than its stage, which stops it.
	args = slices.Insert(slices.Clone(args), 1, format((r.period + 10*time.Minute).Seconds()))
	l, err := startLoad(r.loadPath, uuids, env, cgroup, args...)
	if err != nil {
		return fmt.Errorf("start a load: %w; %s", err, manualHint)
	}
	p.loads[role] = l
	return nil
}

// align waits until the exporter has just read the sample rings, which it does in each third fast poll at most: the
// counters of busy time then are as of the time of that poll.
func (r *run) align(ctx context.Context, e *exporter, p *period) {
	observed := func(s *scrape) float64 {
		v, _ := s.sum("gpu_observed_seconds_total", equal("uuid", p.uuid))
		return v
	}
	first, err := e.scrape(ctx)
	if err != nil {
		return
	}
	_, _ = e.until(ctx, time.Duration(4*p.fast*float64(time.Second)), func(s *scrape) error {
		if observed(s) == observed(first) {
			return errors.New("no samples yet")
		}
		return nil
	})
}

// observe watches the GPU for the period; a load that exits meanwhile is an error.
func (r *run) observe(ctx context.Context, e *exporter, p *period) error {
	r.align(ctx, e, p)
	err := observe(ctx, e, r.smi, r.period, p, func() { r.align(ctx, e, p) })
	for _, l := range p.loads {
		err = errors.Join(err, l.exited())
	}
	return err
}

// settle waits until the readings are those of the loads.
func (r *run) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(min(3*time.Second, r.period/2)):
	}
}

// idle compares all fields, and watches the GPU before anything uses it.
func (r *run) idle(ctx context.Context, e *exporter, p *period) error {
	r.compareFields(ctx, e, "fields", r.fields)
	r.compareXML(ctx, e)
	r.compareListings(ctx, e)
	if r.load == loadManual {
		return cannot("a load runs already (--load=manual)")
	}
	err := r.observe(ctx, e, p)
	if err == nil {
		r.IdleBusy, _ = p.busy()
		// The sweep of all fields takes locks of the driver: it must not disturb what is compared.
		p.probe, err = r.probe(ctx, p.uuid, "--sweep")
	}
	return err
}

// journal saves the driver calls beside the report.
func (r *run) journal(ctx context.Context, _ *exporter, _ *period) error {
	if r.saveJournal {
		r.add(r.record(ctx, r.base()+".journal"))
	}
	return nil
}

// rings reads every sample ring.
func (r *run) rings(ctx context.Context, _ *exporter, p *period) (err error) {
	p.probe, err = r.probe(ctx, p.uuid, "--rings")
	return err
}

func (r *run) loaded(ctx context.Context, e *exporter, p *period) error {
	if r.load == loadManual {
		p.loads[roleBusy] = &load{name: fmt.Sprintf("a manual load with a duty of %g", r.duty), duty: r.duty}
	} else if err := r.start(p, roleBusy, "", nil, "spin", format(r.duty), "1", "0"); err != nil {
		return err
	} else if r.IdleBusy > busyTolerance {
		p.loads[roleBusy].disturbed = true
		r.add(Check{Name: "load"}.incomplete("another process kept the GPU busy %.4f of the time before the load; "+
			"choose another GPU with --gpu", r.IdleBusy))
	}
	r.fact("load", "%s", p.loads[roleBusy].name)
	r.settle(ctx)
	err := r.observe(ctx, e, p)
	if err == nil {
		p.probe, err = r.probe(ctx, p.uuid, fmt.Sprintf("--processes=%g", r.period.Seconds()))
	}
	if err == nil {
		// What moves was compared at idle, and so was what is read in each slow poll alone.
		r.compareFields(ctx, e, "fields under load",
			slices.DeleteFunc(slices.Clone(r.fields), func(f field) bool { return ruleOf(f).moving }), "fast", "medium")
	}
	return err
}

// littleDuty leaves most samples of a ring below the driver's resolution of a percent.
const littleDuty = 0.02

func (r *run) little(ctx context.Context, e *exporter, p *period) error {
	if err := r.start(p, roleBusy, "", nil, "spin", format(littleDuty), "1", "0"); err != nil {
		return err
	}
	r.settle(ctx)
	err := r.observe(ctx, e, p)
	if err == nil {
		p.probe, err = r.probe(ctx, p.uuid)
	}
	return err
}

// sharedPods are the pods of the stages shared and mps, and the arguments of their loads. They are busy one after the
// other.
var sharedPods = []struct {
	pod  string
	args []string
}{
	{"hwcheck-60", []string{"spin", "0.6", "1", "0"}},
	{"hwcheck-20", []string{"spin", "0.2", "1", "0.7"}},
	{"hwcheck-memory", []string{"memory", format(memoryLoad)}},
}

// memoryLoad is what the load of memory allocates.
const memoryLoad = 2 << 30

const podNamespace, podContainer = "hwcheck", "load"

// podNode is the node that the stand-in kubelet reports: the GPU in three replicas, each in a pod.
func podNode(uuid string) standin.KubeletNode {
	n := standin.KubeletNode{Allocatable: map[string][]string{}}
	for i, s := range sharedPods {
		id := fmt.Sprintf("%s::%d", uuid, i)
		n.Allocatable["nvidia.com/gpu"] = append(n.Allocatable["nvidia.com/gpu"], id)
		n.Pods = append(n.Pods, standin.KubeletPod{Namespace: podNamespace, Name: s.pod,
			Containers: []standin.KubeletContainer{
				{Name: podContainer, Devices: []standin.KubeletDevices{{Resource: "nvidia.com/gpu",
					IDs: []string{id}}}}}})
	}
	return n
}

// PodNode is podNode with processes in the pods, whose IDs count up from the first.
func PodNode(uuid string, first int) standin.KubeletNode {
	n := podNode(uuid)
	for i := range n.Pods {
		n.Pods[i].Containers[0].PIDs = []int{first + i}
	}
	return n
}

func (r *run) shared(ctx context.Context, e *exporter, p *period) error {
	return r.share(ctx, e, p, nil)
}

// share runs the three loads, each in the cgroup of its pod.
func (r *run) share(ctx context.Context, e *exporter, p *period, env []string) error {
	if os.Geteuid() != 0 {
		return cannot("needs root, to make cgroups")
	}
	r.kubelet.SetNode(podNode(p.uuid))
	defer r.kubelet.SetNode(standin.KubeletNode{})
	root := filepath.Join(r.cgroups, fmt.Sprintf("hwcheck-%d", os.Getpid()))
	var made []string
	defer func() {
		for _, l := range p.loads {
			l.stop()
		}
		for _, dir := range slices.Backward(made) {
			_ = os.Remove(dir) // a cgroup is removed as a directory, without its files
		}
	}()
	for _, s := range sharedPods {
		pod := filepath.Join(root, "kubepods", "pod"+standin.PodUID(podNamespace, s.pod))
		cgroup := filepath.Join(pod, standin.ContainerID(podNamespace, s.pod, podContainer))
		if err := os.MkdirAll(cgroup, 0o755); err != nil {
			return cannot("no cgroup can be made: %v", err)
		}
		for _, dir := range []string{root, filepath.Join(root, "kubepods"), pod, cgroup} {
			if !slices.Contains(made, dir) {
				made = append(made, dir)
			}
		}
		if err := r.start(p, s.pod, cgroup, env, s.args...); err != nil {
			return err
		}
	}
	if _, err := e.until(ctx, 30*time.Second, func(s *scrape) error {
		for _, x := range sharedPods {
			if _, ok := s.sum("gpu_container_memory_used_bytes", equal("pod", x.pod)); !ok {
				return fmt.Errorf("pod %s has no memory yet", x.pod)
			}
		}
		return nil
	}); err != nil && e.Exited() != nil {
		return err
	}
	r.settle(ctx)
	return r.observe(ctx, e, p)
}

// mps runs the three loads as clients of an MPS server of its own.
func (r *run) mps(ctx context.Context, e *exporter, p *period) error {
	if _, err := exec.LookPath(r.mpsControl); err != nil {
		return cannot("%s is not installed", r.mpsControl)
	}
	dir := filepath.Join(r.dir, "mps")
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + dir, "CUDA_MPS_LOG_DIRECTORY=" + dir}
	command := func(input string, args ...string) error {
		cmd := exec.CommandContext(ctx, r.mpsControl, args...)
		cmd.Env, cmd.Stdin = append(os.Environ(), env...), strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", r.mpsControl, err, firstLine(string(out)))
		}
		return nil
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), command("", "-d")); err != nil {
		return cannot("%v", err)
	}
	defer func() { _ = command("quit\n") }()
	return r.share(ctx, e, p, env)
}

// costPairs is how often cost measures without and with an exporter. With five pairs, the mean of the differences has
// a confidence interval of 2.78 standard errors (Student, 95 %, four degrees of freedom).
const (
	costPairs = 5
	student   = 2.776
)

// cost measures launches and power of the idle GPU without and with an exporter in turn, and the exporter's ioctls.
func (r *run) cost(ctx context.Context, _ *exporter, p *period) error {
	values := map[string][]float64{}
	part := max(2*time.Second, 3*r.period/(2*costPairs)/2)
	var e *exporter
	stop := func() {
		if e != nil {
			_ = e.Stop()
		}
		e = nil
	}
	defer stop()
	for i := range costPairs {
		// The order changes, so that a drift of the GPU is in both.
		for _, with := range [][]string{{" off", " on"}, {" on", " off"}}[i%2] {
			if with == " off" {
				stop()
			} else if e == nil {
				var err error
				if e, err = r.startExporter(defaultPolls, "--no-kubelet"); err != nil {
					return err
				}
				if _, err := e.until(ctx, r.startLimit(), polled(r.uuids, time.Time{}, "fast")); err != nil {
					return err
				}
			}
			got, err := r.costOf(ctx, p, part)
			if err != nil {
				return err
			}
			for name, v := range got {
				values[name+with] = append(values[name+with], v)
			}
		}
	}
	for _, name := range []string{"watts", "p50", "p99", "p99.9"} {
		p.difference(name, values[name+" off"], values[name+" on"])
	}
	if e == nil {
		return nil
	}
	n, reason := r.ioctls(ctx, e, part)
	if reason == "" {
		p.noted["ioctls"] = n
	}
	p.absent["ioctls"] = reason
	return nil
}

// difference notes the means of two series, and how certain that of their differences is.
func (p *period) difference(name string, off, on []float64) {
	if len(off) != costPairs || len(on) != costPairs {
		return
	}
	var sumOff, sumOn, squares float64
	for i := range off {
		sumOff, sumOn = sumOff+off[i]/costPairs, sumOn+on[i]/costPairs
	}
	for i := range off {
		d := on[i] - off[i] - (sumOn - sumOff)
		squares += d * d
	}
	p.noted[name+" off"], p.noted[name+" on"] = sumOff, sumOn
	p.noted[name+" margin"] = student * math.Sqrt(squares/(costPairs-1)/costPairs)
}

// costOf measures the power of the idle GPU, and then launches.
func (r *run) costOf(ctx context.Context, p *period, length time.Duration) (map[string]float64, error) {
	out := map[string]float64{}
	var values []float64
	for end := time.Now().Add(length / 2); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(smiInterval / 2) {
		devices, err := r.smi.query(ctx, []string{"power.draw"}, "--id="+p.uuid)
		if err != nil {
			return nil, err
		}
		if v, err := parseNumber(devices[0]["power.draw"]); err == nil {
			values = append(values, v)
		}
	}
	if len(values) > 0 {
		slices.Sort(values)
		out["watts"] = values[len(values)/2]
	}
	if r.loadPath == "" || r.load == loadNone || r.load == loadManual {
		p.absent[""] = fmt.Sprintf("no load of empty kernels (--load=%s; %v)", r.load, r.loadErr)
		return out, nil
	}
	l, err := startLoad(r.loadPath, []string{p.uuid}, nil, "", "launch", format(length.Seconds()/2))
	if err != nil {
		return nil, err
	}
	select {
	case <-l.logged:
	case <-time.After(length + 30*time.Second):
		l.stop()
		<-l.logged
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.launches != nil {
		out["p50"], out["p99"], out["p99.9"] = l.launches[0], l.launches[1], l.launches[2]
	}
	return out, nil
}

// ioctls counts the exporter's ioctls per driver call for the period with strace, or returns why it cannot.
func (r *run) ioctls(ctx context.Context, e *exporter, length time.Duration) (perCall float64, reason string) {
	if _, err := exec.LookPath(r.strace); err != nil {
		return 0, "strace is not installed"
	}
	out := filepath.Join(r.dir, "strace")
	cmd := exec.CommandContext(ctx, r.strace, "-f", "-c", "-e", "trace=ioctl", "-o", out, "-p", strconv.Itoa(e.PID()))
	var said strings.Builder
	cmd.Stderr, cmd.WaitDelay = &said, 5*time.Second
	if err := cmd.Start(); err != nil {
		return 0, err.Error()
	}
	time.Sleep(time.Second) // until it has attached to all threads
	p := period{}
	var err error
	if p.before, err = e.scrape(ctx); err == nil {
		time.Sleep(length)
		p.after, err = e.scrape(ctx)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	text, readErr := os.ReadFile(out)
	if err := errors.Join(err, readErr); err != nil || strings.Contains(said.String(), "not permitted") {
		return 0, fmt.Sprintf("strace: %v: %s", err, firstLine(said.String()))
	}
	made := 0.0
	for _, h := range p.calls() {
		made += h.Count
	}
	return parseStrace(string(text)) / max(1, made), ""
}

// parseStrace reads the number of ioctls from the table of strace -c: percent, seconds, microseconds per call, calls,
// errors (may be empty) and the name of the system call.
func parseStrace(text string) float64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 5 && f[len(f)-1] == "ioctl" {
			n, _ := strconv.ParseFloat(f[3], 64)
			return n
		}
	}
	return 0
}

// asUsers compares the families of root with those of less privileged users.
func (r *run) asUsers(ctx context.Context, _ *exporter, p *period) error {
	const setpriv = "setpriv"
	if os.Geteuid() != 0 {
		return cannot("needs root, to change the user")
	}
	if _, err := exec.LookPath(setpriv); err != nil {
		return cannot("%s is not installed", setpriv)
	}
	families := func(prefix ...string) (map[string][]sample, error) {
		c := r.config
		c.under = append(slices.Clone(prefix), c.under...)
		e, err := c.startExporter(quickPolls, "--no-kubelet")
		if err != nil {
			return nil, err
		}
		defer func() { _ = e.Stop() }()
		s, err := e.until(ctx, max(r.startLimit()/6, 4*quick[2]), polled(r.uuids, time.Time{}))
		if err != nil {
			if s, err = e.scrape(ctx); err != nil {
				return nil, err
			}
		}
		return s.families, nil
	}
	all, err := families()
	if err != nil {
		return err
	}
	for _, u := range []struct {
		name  string
		flags []string
	}{{"0", nil}, {"65534", []string{"--reuid=65534", "--regid=65534", "--clear-groups"}}} {
		got, err := families(append([]string{setpriv, "--inh-caps=-all", "--bounding-set=-all"}, u.flags...)...)
		if err != nil {
			p.absent["missing as "+u.name] = err.Error()
			continue
		}
		var missing []string
		for name := range all {
			if len(got[name]) == 0 {
				missing = append(missing, name)
			}
		}
		slices.Sort(missing)
		p.noted["missing as "+u.name] = float64(len(missing))
		r.fact("families that uid "+u.name+" without capabilities lacks", "%s", strings.Join(missing, ", "))
	}
	return nil
}

// mig enables MIG, loads an instance, removes another one, and disables MIG again.
func (r *run) mig(ctx context.Context, e *exporter, p *period) error {
	if !r.changeMIG {
		return cannot("it changes the GPU: --change-mig allows it")
	}
	if mode := r.checked["mig.mode.current"]; classify(mode) != aValue {
		return cannot("the GPU has no MIG")
	} else if mode == "Enabled" && len(r.only) == 0 {
		return cannot("the GPU is partitioned already")
	}
	smi := func(args ...string) error {
		_, err := r.smi.run(ctx, append(slices.Clone(args), "-i", r.checked["index"])...)
		return err
	}
	defer func() {
		_, _, _ = smi("mig", "-dci"), smi("mig", "-dgi"), smi("-mig", "0")
	}()
	// Profile 19 is the smallest of all models with MIG: 1g.5gb, 1g.10gb.
	if err := errors.Join(smi("-mig", "1"), smi("mig", "-cgi", "19,19", "-C")); err != nil {
		return cannot("%v", err)
	}
	of, err := r.loadInstance(ctx, e, p)
	if err != nil {
		return err
	}
	if got, err := r.probe(ctx, p.uuid, "--pcie="+(gpmEvery*3/2).String()); err == nil && len(got.PCIe[""].At) > 0 {
		p.noted["gpm"] = 0
		for _, pair := range got.PCIe[""].Pairs {
			if pair.Rate[0] != nil && pair.Rate[1] != nil {
				p.noted["gpm"] = 1
			}
		}
	}

	gi := of.Get("gi")
	if err := errors.Join(smi("mig", "-dci", "-gi", gi), smi("mig", "-dgi", "-gi", gi)); err != nil {
		return err
	}
	text, err := r.smi.run(ctx, "mig", "-lgi", "-i", r.checked["index"])
	if err != nil {
		return err
	}
	listed := parseInstances(text)[r.checked["index"]]
	var exported []string
	_, err = e.until(ctx, min(r.startLimit(), 3*r.period), func(s *scrape) error {
		if exported = instances(s, p.uuid); !slices.Equal(exported, listed) {
			return fmt.Errorf("exported %q, listed %q", exported, listed)
		}
		return nil
	})
	p.noted["instances exported"], p.noted["instances listed"] = float64(len(exported)), float64(len(listed))
	if err != nil && len(exported) == len(listed) {
		p.noted["instances exported"] = -1 // as many, and others
	}
	return nil
}

// loadInstance loads the first MIG instance that is exported, and notes how busy it was.
func (r *run) loadInstance(ctx context.Context, e *exporter, p *period) (of sample, err error) {
	if _, err := e.until(ctx, r.startLimit(), func(s *scrape) error {
		found := s.find("gpu_mig_info", equal("uuid", p.uuid))
		if len(found) == 0 {
			return errors.New("no instance is exported")
		}
		of = found[0]
		return nil
	}); err != nil {
		return of, err
	}
	uuid := p.uuid
	p.uuid = of.Get("mig_uuid")
	err = r.start(p, roleBusy, "", nil, "spin", format(r.duty), "1", "0")
	p.uuid = uuid
	if err != nil {
		return of, err
	}
	r.settle(ctx)
	before, err := e.scrape(ctx)
	if err != nil {
		return of, err
	}
	time.Sleep(r.period)
	after, err := e.scrape(ctx)
	if err != nil {
		return of, err
	}
	p.before, p.after = before, after
	from, to := p.bounds()
	busy, hasBusy := after.sum("gpu_mig_busy_seconds_total", equal("mig_uuid", of.Get("mig_uuid")))
	was, _ := before.sum("gpu_mig_busy_seconds_total", equal("mig_uuid", of.Get("mig_uuid")))
	logged, _ := p.loads[roleBusy].did(from, to)
	p.before, p.after = nil, nil
	if hasBusy {
		p.noted["busy of the instance"] = (busy - was) / (to - from)
	} else {
		p.absent["busy of the instance"] = "no activity of MIG instances on this GPU"
	}
	p.noted["log of the load"] = logged / (to - from)
	p.loads[roleBusy].stop()
	delete(p.loads, roleBusy)
	return of, nil
}

// xidLine is an XID in the kernel log.
var xidLine = regexp.MustCompile(`Xid \([^)]*\): (\d+)`)

// xid causes two errors of an application. The exporter counts each once although two sources report it.
func (r *run) xid(ctx context.Context, e *exporter, p *period) error {
	if !r.causeXIDs {
		return cannot("it causes errors of the GPU: --cause-xids allows it")
	}
	for _, x := range []struct{ mode, code string }{{"fault", "31"}, {"trap", "43"}} {
		count := func(s *scrape) float64 {
			n, _ := s.sum("gpu_xid_events_total", equal("uuid", p.uuid), equal("xid", x.code))
			return n
		}
		before, err := e.scrape(ctx)
		if err != nil {
			return err
		}
		logBefore := r.kernelLog(x.code)
		l, err := startLoad(r.loadPath, []string{p.uuid}, nil, "", x.mode, "60")
		if err != nil {
			return err
		}
		select {
		case <-l.child.Done():
		case <-time.After(time.Minute):
			l.stop()
		}
		n := 0.0
		_, _ = e.until(ctx, 10*time.Second, func(s *scrape) error {
			if n = count(s) - count(before); n == 0 {
				return errors.New("no event yet")
			}
			return nil
		})
		time.Sleep(2 * quick[1]) // a second count would come now
		if last, err := e.scrape(ctx); err == nil {
			n = count(last) - count(before)
		}
		p.noted["xid "+x.code] = n
		if logs := r.kernelLog(x.code); logs >= 0 {
			p.noted["log "+x.code] = float64(logs - logBefore)
		} else {
			p.absent["log "+x.code] = "the kernel log cannot be read"
		}
	}
	return nil
}

// kernelLog counts the XIDs of a code in the kernel log; -1 if it cannot be read.
func (r *run) kernelLog(code string) (n int) {
	fd, err := syscall.Open(r.kmsg, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return -1
	}
	defer syscall.Close(fd)
	record := make([]byte, 8192)
	for {
		length, err := syscall.Read(fd, record)
		if errors.Is(err, syscall.EPIPE) { // records were overwritten meanwhile
			continue
		}
		if err != nil || length <= 0 {
			return n
		}
		for _, m := range xidLine.FindAllStringSubmatch(string(record[:length]), -1) {
			if m[1] == code {
				n++
			}
		}
	}
}

// startKubelet starts the stand-in kubelet that reports the pods of this program, and returns the exporter's flags.
func (r *run) startKubelet(ctx context.Context) ([]string, error) {
	// Logs of the pods show their names; nothing else of the trees is used.
	trees, err := standin.WriteTrees(filepath.Join(r.dir, "node"), &scenario.Scenario{}, podNode(""))
	if err != nil {
		return nil, err
	}
	r.kubelet = standin.NewKubelet()
	r.kubelet.SetNode(standin.KubeletNode{})
	socket := filepath.Join(r.dir, "kubelet.sock")
	go func() { _ = r.kubelet.Serve(ctx, socket) }()
	return []string{"--kubelet.socket=" + socket, "--poll.kubelet=1s", "--path.pod-logs=" + trees.PodLogs,
		"--path.container-logs=" + trees.ContainerLogs}, r.kubelet.Ready(ctx)
}

// startLimit is how long an exporter may take to read all GPUs.
func (r *run) startLimit() time.Duration {
	return time.Minute + time.Duration(len(r.uuids))*10*time.Second
}
