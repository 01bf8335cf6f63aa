package proc

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var cases = flag.Int("cases", 20_000, "number of random cases of a property")

// TestNoPathNamesAnotherPod draws the cgroup files of processes: where the runtime put each, and below that any cgroups
// that it may have created itself, with the names of other pods, containers, jobs and sessions. With the names of logs,
// with another source, and with both, a process is its own pod's or unknown, and one outside pods is never a pod's.
func TestNoPathNamesAnotherPod(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 16))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	type pod struct {
		uid  string
		ids  []string
		name gpu.PodName
	}
	var pods []pod
	all := &logNames{pods: map[string]podName{}, links: map[string][]link{}, both: true}
	byUID := podsOf{}
	for i := range 5 {
		p := pod{fmt.Sprintf("%08d-2222-4333-8444-555555555555", i), nil, gpu.PodName{Namespace: "n", Pod: fmt.Sprint("p", i)}}
		dir := podName{namespace: "n", pod: p.name.Pod, linked: true}
		for j := range 1 + i%3 {
			c := gpu.Container{Namespace: "n", Pod: p.name.Pod, Name: fmt.Sprint("c", j)}
			id := fmt.Sprintf("%032d%032d", i+1, j)
			p.ids = append(p.ids, id)
			dir.containers = append(dir.containers, c.Name)
			all.links[id[:minID]] = append(all.links[id[:minID]], link{id, c})
			byUID[p.uid] = c // of several containers, the one that has the GPU
		}
		all.pods[p.uid] = dir
		pods = append(pods, p)
	}
	anyPod := func() string {
		uid := pods[random.IntN(len(pods))].uid
		if random.IntN(4) == 0 {
			uid = "99999999-2222-4333-8444-555555555555"
		}
		if random.IntN(2) == 0 {
			return "kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + pick(".slice", ".slice:cri-containerd:"+pods[0].ids[0])
		}
		return "pod" + uid
	}
	anyContainer := func() string {
		p := pods[random.IntN(len(pods))]
		return pick("", "cri-containerd-", "docker-", "libpod-", "crio-") + p.ids[random.IntN(len(p.ids))] + pick("", ".scope")
	}
	hostile := func() (path string) {
		for range random.IntN(5) {
			path += "/" + pick(anyPod(), anyPod(), anyContainer(), anyContainer(), "kubepods", "kubepods.slice", "docker", "system.slice",
				"machine.slice", "slurm", "slurmstepd.scope", "job_7", "sEKNKTV3WPV500", "user.slice", "user-1000.slice", "x.service", "..",
				"a:b", "0::", strings.Repeat("f", 64), "x (deleted)")
		}
		return path
	}
	owned, unknown := 0, 0
	now := time.Unix(1000, 0)
	for i := range *cases {
		f := New(Options{Kubernetes: true, Slurm: random.IntN(2) == 0, Clock: func() time.Time { return now }})
		f.names, f.namesAt, f.readAt = &logNames{missing: true}, now, now
		if i%3 != 0 {
			f.names = all
		}
		if i%3 != 1 {
			f.o.Pods = byUID
		}
		f.o.Engines = []EngineNames{&engineOf{"docker", map[string]string{strings.Repeat("e", 64): "web"}, nil}}
		var want gpu.PodName
		var base string
		switch own := pods[random.IntN(len(pods))]; random.IntN(8) {
		case 0:
			base = "/user.slice/user-1000.slice/" + pick("user@1000.service", "session-3.scope")
		case 1:
			base = "/slurm/uid_1000/job_4242/step_0"
		case 2:
			base = "/system.slice/docker-" + strings.Repeat("e", 64) + ".scope"
		default:
			want = own.name
			id := own.ids[random.IntN(len(own.ids))]
			flat := "pod" + strings.ReplaceAll(own.uid, "-", "_") + ".slice"
			base = pick("/kubepods/burstable/pod"+own.uid+"/"+id, "/kubepods/pod"+own.uid,
				"/kubepods.slice/kubepods-"+flat+"/cri-containerd-"+id+".scope",
				"/kubelet.slice/kubelet-kubepods-"+flat+"/crio-"+id+".scope",
				"/../../kubepods-"+flat+"/cri-containerd-"+id+".scope",
				"/system.slice/containerd.service/kubepods-"+flat+":cri-containerd:"+id)
		}
		text := ""
		for _, controllers := range []string{"12:memory", "5:devices", "0:"}[random.IntN(3):] { // v1 has several lines
			text += controllers + ":" + base + hostile() + "\n"
		}
		p := ParseCgroup(text)
		if p.Disputed || !f.valid(text, p) {
			unknown++
			continue
		}
		c, owner := f.name(now, now, p)
		switch {
		case owner == Unknown:
			unknown++
		case want != gpu.PodName{} && (owner != Owned || c.PodName() != want), want == gpu.PodName{} && c.Namespace != "":
			t.Fatalf("%q is %v %+v, not %v", text, owner, c, want)
		case owner == Owned && c.Namespace != "":
			owned++
		}
	}
	t.Logf("%d cases, %d pods named, %d unknown", *cases, owned, unknown)
	if owned < *cases/4 {
		t.Errorf("%d of %d cases named a pod", owned, *cases)
	}
}
