package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Of the lines of a cgroup file the one counts that names the most: a container of a pod, a pod, a container, a job, a
// unit, a user, in whatever order they are. Of two that name the same kind, the first.
func TestPrecedenceOfLines(t *testing.T) {
	lines := []struct {
		path string
		want Place
	}{
		{"/user.slice/user-1000.slice/session-3.scope", Place{User: "1000"}},
		{"/system.slice/ollama.service", Place{Unit: "ollama.service"}},
		{"/slurm/uid_1000/job_42/step_0", Place{SlurmJob: "42"}},
		{"/system.slice/docker-" + cid + ".scope", Place{ContainerID: cid, Runtime: "docker", Beside: true}},
		{"/kubepods/pod" + uid, Place{PodUID: uid}},
		{"/kubepods/pod" + uid + "/" + other, Place{PodUID: uid, ContainerID: other}},
		{"/user.slice/user-1000.slice/pod" + uid, Place{Disputed: true}},
	}
	for i, low := range lines {
		if i > 0 && low.want.rank() != i+1 {
			t.Errorf("%s has rank %d", low.path, low.want.rank())
		}
		for _, high := range lines[i+1:] {
			for _, text := range []string{"1:a:" + low.path + "\n2:b:" + high.path + "\n", "1:a:" + high.path + "\n2:b:" + low.path} {
				if got := ParseCgroup(text); got != high.want {
					t.Errorf("%q: %+v, want %+v", text, got, high.want)
				}
			}
		}
	}
	if got := ParseCgroup("1:a:/system.slice/a.service\n2:b:/system.slice/b.service\n"); got.Unit != "a.service" {
		t.Errorf("%+v", got)
	}
	if (Place{}).rank() != 0 {
		t.Error("an unknown place has a rank")
	}
	// What is beyond 64 KiB is not read.
	long := "1:a:/" + strings.Repeat("x", maxCgroup-6) + "\n"
	if got := ParseCgroup(long[:len(long)-len(lines[1].path)-7] + "\n1:a:" + lines[1].path + "\n"); got != lines[1].want {
		t.Errorf("%+v", got)
	}
	if got := ParseCgroup(long + "1:a:" + lines[1].path + "\n"); got != (Place{}) {
		t.Errorf("%+v", got)
	}
}

// The runtime of a container outside pods by its scope, and whether its path leads to it from the cgroups of an engine.
func TestRuntimeOfAScope(t *testing.T) {
	for path, want := range map[string]Place{
		"/system.slice/docker-" + cid + ".scope (deleted)":         {ContainerID: cid, Runtime: "docker", Beside: true},
		"/x.slice/docker-" + cid + ".scope":                        {ContainerID: cid, Runtime: "docker"},
		"/docker-" + cid + ".scope":                                {ContainerID: cid, Runtime: "docker"},
		"/machine.slice/libpod-" + cid + ".scope":                  {ContainerID: cid, Runtime: "podman", Beside: true},
		"/machine.slice/libpod-conmon-" + cid + ".scope":           {},
		"/user.slice/user-7.slice/x/libpod-" + cid + ".scope":      {ContainerID: cid, Runtime: "podman", User: "7"},
		"/user.slice/user-7.slice/system.slice/docker-" + cid + "": {ContainerID: cid, Runtime: "docker", User: "7"},
		"/system.slice/crio-" + cid + ".scope":                     {ContainerID: cid, Runtime: "crio", Beside: true},
		"/system.slice/cri-containerd-" + cid + ".scope":           {ContainerID: cid, Runtime: "containerd"},
		"/system.slice/nerdctl-" + cid + ".scope":                  {ContainerID: cid},
		"/system.slice/" + cid:                                     {ContainerID: cid},
		"/docker/buildkit/" + cid:                                  {ContainerID: cid, Runtime: "docker"},
		"/system.slice/docker-" + cid[:63] + ".scope":              {},
		"/system.slice/docker.service":                             {Unit: "docker.service"},
		"/system.slice/a.service/b.service":                        {Unit: "b.service"},
		"/slurm/job_7/s0000000000000/job_8":                        {SlurmJob: "7"},
		"/slurm/s0000000000000/job_8":                              {SlurmJob: "s0000000000000"},
		"/slurm/s000000000000/x":                                   {},
		"/kubepods-pod" + uid_ + ".slice:crio-conmon:" + cid:       {PodUID: uid},
		"/kubepods-pod" + uid_ + ".slice:crio:" + cid:              {PodUID: uid, ContainerID: cid},
		"/kubepods/pod" + uid + "/crio-conmon-" + cid + "/" + cid:  {PodUID: uid, ContainerID: cid},
		"/docker/" + cid + "/kubepods/pod" + uid:                   {PodUID: uid, Around: cid},
	} {
		if got := parsePath(path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

// What a process outside pods is called.
func TestNamesOutsidePods(t *testing.T) {
	for path, want := range map[string]string{
		"/system.slice/docker-" + cid + ".scope": "docker/" + cid[:12], "/system.slice/" + cid: "container/" + cid[:12],
		"/slurm/job_7/step_0": "slurm/7", "/system.slice/a.service": "systemd/a.service", "/user.slice/user-7.slice/x": "user/7", "/x": "",
		"/system.slice/slurmstepd.scope/job_7/docker-" + cid: "slurm/7",
	} {
		n := newNode(t)
		n.process(10, "555", "0::"+path+"\n")
		owner := Owned
		if want == "" {
			owner = Host
		}
		expect(t, n.finder(false), 10, gpu.Container{Pod: want}, owner)
	}
	// With Kubernetes all of them are the host's, but for containers that are certainly in no pod, and jobs.
	for path, want := range map[string]string{"/system.slice/docker-" + cid + ".scope": "docker/" + cid[:12], "/x/" + cid: "?",
		"/slurm/job_7/step_0": "slurm/7", "/system.slice/a.service": "", "/user.slice/user-7.slice/x": "", "/x": ""} {
		n := newNode(t)
		n.process(10, "555", "0::"+path+"\n")
		f := n.finder(true)
		f.o.Slurm = true
		switch want {
		case "":
			expect(t, f, 10, gpu.Container{}, Host)
		case "?":
			expect(t, f, 10, gpu.Container{}, Unknown)
		default:
			expect(t, f, 10, gpu.Container{Pod: want}, Owned)
		}
	}
}

// A container by the names of logs: p has the links of two containers, q one container without a link, r two without,
// and two links of one ID contradict each other.
func TestContainerOfLogNames(t *testing.T) {
	const p, q, r, s = "p-uid", "q-uid", "r-uid", "s-uid"
	c := func(pod, name string) gpu.Container { return gpu.Container{Namespace: "n", Pod: pod, Name: name} }
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	n := &logNames{pods: map[string]podName{p: {"n", "p", []string{"a", "b"}, true}, q: {"n", "q", []string{"a"}, false},
		r: {"n", "r", []string{"a", "b"}, false}, s: {"n", "s", []string{"a"}, true}},
		links: map[string][]link{id("a")[:minID]: {{id("a"), c("p", "a")}, {id("a")[:20] + "b", c("x", "x")}},
			id("b")[:minID]: {{id("b")[:minID], c("p", "b")}}, id("c")[:minID]: {{id("c"), c("p", "a")}, {id("c")[:20], c("q", "a")}},
			id("d")[:minID]: {{id("d"), c("s", "a")}}}}
	for _, x := range []struct {
		pod, id string
		want    gpu.Container
		ok      bool
	}{
		{p, id("a"), c("p", "a"), true}, {p, id("b"), c("p", "b"), true}, {"", id("b"), c("p", "b"), true},
		{q, id("a"), gpu.Container{}, false}, // link and directory disagree
		{p, id("c"), gpu.Container{}, false}, {"", id("c"), gpu.Container{}, false}, {q, id("c"), c("q", "a"), true},
		{p, id("e"), gpu.Container{}, false}, {q, id("e"), c("q", "a"), true}, {q, "", c("q", "a"), true}, {r, "", gpu.Container{}, false},
		{s, id("e"), gpu.Container{}, false}, {s, "", c("s", "a"), true}, {s, id("d"), c("s", "a"), true},
		{"unknown", id("e"), gpu.Container{}, false}, {"", "", gpu.Container{}, false}, {"", id("a")[:minID-1], gpu.Container{}, false},
	} {
		if got, ok := n.container(Place{PodUID: x.pod, ContainerID: x.id}); got != x.want || ok != x.ok {
			t.Errorf("%s %.4s: %+v %v", x.pod, x.id, got, ok)
		}
	}
	// What they contradict of another source.
	for _, x := range []struct {
		pod, id string
		of      gpu.Container
		want    bool
	}{
		{p, id("a"), c("p", "a"), true}, {q, "", c("q", "a"), false}, {q, "", c("x", "a"), true},
		{q, "", gpu.Container{Namespace: "m", Pod: "q", Name: "a"}, true}, {r, "", c("r", "a"), true}, {s, "", c("s", "a"), false},
		{s, id("e"), c("s", "a"), true}, {s, id("d"), c("s", "a"), false}, {s, id("d"), c("s", "b"), true},
		{"unknown", id("e"), c("x", "a"), false}, {"unknown", id("d"), c("x", "a"), true}, {"unknown", "", c("x", "a"), false},
	} {
		if got := n.contradicts(Place{PodUID: x.pod, ContainerID: x.id}, x.of); got != x.want {
			t.Errorf("%s %.4s %s: %v", x.pod, x.id, x.of.Pod, got)
		}
	}
	if (*logNames)(nil).linked(Place{ContainerID: id("a")}) != nil {
		t.Error("without names there is a link")
	}
}

// An environment's variable is at most 4096 bytes, and is found in the first MiB.
func TestLimitsOfAnEnvironment(t *testing.T) {
	long := strings.Repeat("x", maxVariable)
	for name, c := range map[string]struct {
		text string
		want int
		ok   bool
	}{
		"the longest": {"V=" + long + "\x00", maxVariable, true}, "longer": {"V=" + long + "x\x00V=1\x00", 0, false},
		"at the end": {strings.Repeat("\x00", maxEnviron-3) + "V=1", 1, true},
		"cut":        {strings.Repeat("\x00", maxEnviron-3) + "V=12", 1, true},
		"behind it":  {strings.Repeat("\x00", maxEnviron) + "V=1", 0, false},
	} {
		if got, ok, err := findVariable(strings.NewReader(c.text), "V"); len(got) != c.want || ok != c.ok || err != nil {
			t.Errorf("%s: %d bytes, %v, %v", name, len(got), ok, err)
		}
	}
	if _, ok, err := variable(filepath.Join(t.TempDir(), "missing"), "V"); ok || !os.IsNotExist(err) {
		t.Errorf("%v %v", ok, err)
	}
}

// Numbers of Slurm jobs: a number that another job had until five minutes ago is neither's.
func TestNumbersOfJobs(t *testing.T) {
	now := time.Unix(1000, 0)
	s := slurmJobs{bySLUID: map[string]*slurmJob{}}
	s.note("7", "9", nil, now) // a number needs none
	s.note(sluidA, "", nil, now)
	if len(s.bySLUID) != 0 || s.name("7", now) != "7" || s.name(sluidA, now) != sluidA {
		t.Errorf("%v", s.bySLUID)
	}
	s.note(sluidA, "5", nil, now)
	s.note(sluidB, "5", nil, now.Add(forgetAfter))
	if a, b := s.bySLUID[sluidA], s.bySLUID[sluidB]; a.used != now || b.used != now.Add(forgetAfter) || a.disputed || b.disputed {
		t.Errorf("%+v %+v", a, b)
	}
	if got := s.name(sluidB, now.Add(forgetAfter)); got != sluidB {
		t.Errorf("%s has the number of another job", got)
	}
	if got := s.name(sluidB, now.Add(forgetAfter+1)); got != "5" {
		t.Errorf("%s, though the other is over", got)
	}
	// To be looked up keeps a job.
	if got := s.name(sluidA, now.Add(forgetAfter+1)); got != sluidA {
		t.Errorf("%s has the number of another job", got)
	}
	s.forget(now.Add(2*forgetAfter + 1))
	if len(s.bySLUID) != 2 {
		t.Errorf("%d jobs", len(s.bySLUID))
	}
	s.forget(now.Add(2*forgetAfter + 2))
	if len(s.bySLUID) != 0 {
		t.Errorf("%d jobs", len(s.bySLUID))
	}
	// The reason why no number can be read is that of the last environment; a process that ended has none.
	refused := fmt.Errorf("open: %w", os.ErrPermission)
	s.note(sluidA, "", refused, now)
	s.note(sluidA, "", os.ErrNotExist, now)
	if !errors.Is(s.denied, os.ErrPermission) {
		t.Errorf("%v", s.denied)
	}
	if s.note(sluidA, "", nil, now); s.denied != nil {
		t.Errorf("%v", s.denied)
	}
}

// The result of a scan is used for five intervals, of a minute where none is configured, and computed once for an
// inventory.
func TestScansAreKept(t *testing.T) {
	for interval, kept := range map[time.Duration]time.Duration{0: 5 * time.Minute, time.Second: 5 * time.Second} {
		n := newNode(t)
		n.container(10, "one", "nvidia3")
		o := n.scanner().o
		o.Interval, o.Named = interval, nil
		l := NewVisibleScanner(o)
		n.patient(l.finder)
		if s := l.Source(); s.Message != "no scan has finished yet" || s.Up {
			t.Errorf("%+v", s)
		}
		l.Scan(t.Context())
		n.now = n.now.Add(kept)
		first, second := l.Visible(visibleGPUs), l.Visible(visibleGPUs)
		if len(first) != 1 || &first[0] != &second[0] {
			t.Errorf("%v, %v", seen(first), seen(second))
		}
		less := &gpu.Inventory{GPUs: visibleGPUs.GPUs[1:]}
		if got := l.Visible(less); len(got) != 0 {
			t.Errorf("of another inventory: %v", seen(got))
		}
		if got := l.Visible(visibleGPUs); len(got) != 1 {
			t.Errorf("of the first again: %v", seen(got))
		}
		n.now = n.now.Add(1)
		if got := l.Visible(visibleGPUs); got != nil {
			t.Errorf("after %v: %v", kept+1, seen(got))
		}
	}
}

// A scan that is given up changes nothing.
func TestScanThatIsGivenUp(t *testing.T) {
	n := newNode(t)
	n.container(10, "one", "nvidia3")
	l := n.scanner()
	l.Scan(t.Context())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	os.RemoveAll(filepath.Join(n.root, "proc/10"))
	l.Scan(over)
	if got := l.Visible(visibleGPUs); len(got) != 1 || l.Source().Errors != 0 || !l.Source().Up {
		t.Errorf("%v %+v", seen(got), l.Source())
	}
}

// replacing is a source of pods that replaces a process when another is looked up.
type replacing struct {
	podsOf
	uid     string
	replace func()
}

func (r replacing) ContainerOf(uid string) (gpu.Container, bool) {
	if uid == r.uid {
		r.replace()
	}
	return r.podsOf.ContainerOf(uid)
}

// A container whose process was replaced between two reads is left out, rather than that the other's devices are its.
func TestScanOfAReplacedProcess(t *testing.T) {
	n := newNode(t)
	one, two := gpu.Container{Namespace: "ml", Pod: "one", Name: "main"}, gpu.Container{Namespace: "ml", Pod: "two", Name: "main"}
	n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	n.process(11, "556", "0::/kubepods/pod"+hash+"/"+other+"\n")
	n.write("proc/10/root/dev/nvidia3", "")
	n.write("proc/11/root/dev/nvidia3", "")
	l := n.scanner()
	pods := podsOf{uid: one, hash: two}
	l.finder.o.Pods = pods
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); fmt.Sprint(got) != "[one GPU-a two GPU-a]" {
		t.Errorf("%q", got)
	}
	l = n.scanner()
	l.finder.o.Pods = replacing{pods, hash, func() { n.process(10, "777", "0::/system.slice/a.service\n") }}
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); fmt.Sprint(got) != "[two GPU-a]" || !l.Source().Up {
		t.Errorf("%q %+v", got, l.Source())
	}
}
