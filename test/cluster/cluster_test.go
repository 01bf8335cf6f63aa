package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// nodeToken is the token of a kubelet.
func nodeToken(index int) string { return fmt.Sprintf("kubelet-of-node-%d", index) }

// cluster is a Kubernetes with two nodes, on which the exporter is installed by Helm.
type cluster struct {
	*plane
	nodes []*node
	tools string // directory of kubectl and helm
	page  string // of docs/
	// commands are those of the page that are marked as run in a cluster, and whether they were.
	commands map[string]bool
}

// startCluster runs all programs of Kubernetes on this machine: the control plane, a scheduler, and two nodes.
func startCluster(t *testing.T, page string) *cluster {
	t.Helper()
	needs(t)
	dir, err := os.MkdirTemp("", "gpux")
	noErr(t, err)
	t.Cleanup(func() {
		nothingLeft(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	archives := images(t, dir)
	launched := time.Now()
	keepSettings(t)
	network(t)
	var tokens strings.Builder
	for i := 1; i <= 2; i++ {
		fmt.Fprintf(&tokens, "%s,system:node:node-%d,node-%d,system:nodes\n", nodeToken(i), i, i)
	}
	p := startLayout(t, admission("restricted"), layout{dir: dir, address: serviceIP + ":443", services: serviceCIDR,
		tokens: tokens.String(), controllers: "*"})
	bin, err := programs()
	noErr(t, err)
	scheduler, err := start(dir, filepath.Join(bin, "kube-scheduler"), "--kubeconfig="+p.kubeconfig,
		"--leader-elect=false", "--secure-port=0")
	noErr(t, err)
	t.Cleanup(scheduler.stop)
	c := &cluster{plane: p, page: page, tools: filepath.Join(dir, "tools"), commands: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(repository(), "docs", page))
	noErr(t, err)
	for _, m := range regexp.MustCompile("(?s)<!-- run in a cluster -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		c.commands[m[1]] = false
	}
	noErr(t, os.Mkdir(c.tools, 0o755))
	for _, tool := range []string{filepath.Join(bin, "kubectl"), helmTool(t)} {
		noErr(t, os.Symlink(tool, filepath.Join(c.tools, filepath.Base(tool))))
	}
	p.prepare(t, true)
	for i := 1; i <= 2; i++ {
		c.nodes = append(c.nodes, startNode(t, p, i, archives...))
	}
	t.Logf("two nodes were ready after %.1f s", time.Since(launched).Seconds())
	return c
}

// documented returns the commands of the page that begin so, as written.
func (c *cluster) documented(t *testing.T, begins string) string {
	t.Helper()
	for text := range c.commands {
		if strings.HasPrefix(text, begins) {
			c.commands[text] = true
			return text
		}
	}
	t.Fatalf("docs/%s has no commands marked as run in a cluster that begin with %q", c.page, begins)
	return ""
}

// shell runs commands as the administrator of the cluster and returns their output.
func (c *cluster) shell(t *testing.T, commands string) string {
	t.Helper()
	out, err := c.command(t, "bash", "-euo", "pipefail", "-c", "PATH="+c.tools+":$PATH\n"+commands)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return out
}

// exporters waits for the exporters of a namespace and notes where they are; those that are stopping do not count.
func (c *cluster) exporters(t *testing.T, namespace string) {
	t.Helper()
	for _, n := range c.nodes {
		eventually(t, "an exporter on "+n.name, func() error {
			pods, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
				FieldSelector: "spec.nodeName=" + n.name, LabelSelector: "app.kubernetes.io/name=gpu-exporter"})
			if err != nil {
				return err
			}
			for _, pod := range pods.Items {
				if pod.DeletionTimestamp == nil && pod.Status.PodIP != "" {
					n.mutex.Lock()
					n.url = "http://" + pod.Status.PodIP + ":10835"
					n.mutex.Unlock()
					_, err := n.exported(t.Context())
					return err
				}
			}
			return fmt.Errorf("%d pods", len(pods.Items))
		})
	}
}

// settle waits until every exporter agrees with its kubelet, and that with the API server.
func (c *cluster) settle(t *testing.T, step string, bound time.Duration) {
	t.Helper()
	begun := time.Now()
	for {
		var errs []error
		for _, n := range c.nodes {
			errs = append(errs, n.agree(t.Context()))
		}
		err := errors.Join(errs...)
		if err == nil {
			t.Logf("%s: all agree after %.1f s", step, time.Since(begun).Seconds())
			return
		}
		if time.Since(begun) > bound {
			t.Errorf("%s: not within %v: %v", step, bound, err)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// container is one of a pod: its name and what it is given.
type container struct {
	name     string
	limits   string // NAME=COUNT,…
	claim    bool
	initial  string // "": an ordinary container; sidecar or init
	duration string // of an init container or a Job; empty: until it is stopped
}

// pod is the manifest of a pod; its containers run until they are stopped.
func podText(name, node, annotations string, containers ...container) string {
	var main, initial strings.Builder
	claims := ""
	for _, c := range containers {
		into, script := &main, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"
		if c.duration != "" {
			script = "sleep " + c.duration
		}
		var limits []string
		for limit := range strings.SplitSeq(c.limits, ",") {
			if k, v, ok := strings.Cut(limit, "="); ok {
				limits = append(limits, fmt.Sprintf("%s: %q", k, v))
			}
		}
		resources := "limits: {" + strings.Join(limits, ", ") + "}"
		if c.claim {
			resources += ", claims: [{name: gpu}]"
			claims = "  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]\n"
		}
		restart := ""
		if c.initial != "" {
			into = &initial
			if c.initial == "sidecar" {
				restart = ", restartPolicy: Always"
			}
		}
		fmt.Fprintf(into, "  - {name: %s, image: %q, imagePullPolicy: Never, command: [sh, -c, %q], resources: {%s}%s}\n", c.name, boxImage,
			script, resources, restart)
	}
	text := fmt.Sprintf("metadata: {name: %s, namespace: work, labels: {team: a}, annotations: {%s}}\nspec:\n"+
		"  terminationGracePeriodSeconds: 5\n  nodeSelector: {kubernetes.io/hostname: %s}\n%s  containers:\n%s", name, annotations, node,
		claims, main.String())
	if initial.Len() > 0 {
		text += "  initContainers:\n" + initial.String()
	}
	return "apiVersion: v1\nkind: Pod\n" + text
}

// create applies manifests.
func (c *cluster) create(t *testing.T, texts ...string) {
	t.Helper()
	for _, o := range parse(t, strings.Join(texts, "\n---\n")) {
		if _, err := c.apply(t, o); err != nil {
			t.Fatalf("%s: %v", name(o), err)
		}
	}
}

// running waits until all pods of the namespace that have not ended run.
func (c *cluster) running(t *testing.T) {
	t.Helper()
	eventually(t, "the pods run", func() error {
		pods, err := c.client.CoreV1().Pods("work").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodPending {
				return fmt.Errorf("%s is pending: %+v", pod.Name, pod.Status.Conditions)
			}
		}
		return nil
	})
}

// TestCluster installs the exporter as documented, on two nodes, and compares what it exports after each step with the kubelets and the
// API server. Every page in between is compared as well.
func TestCluster(t *testing.T) {
	c := startCluster(t, "install.md")
	one, two := c.nodes[0], c.nodes[1]

	// docs/install.md, Kubernetes.
	out := c.shell(t, c.documented(t, "kubectl create namespace monitoring\n"))
	t.Logf("doctor, as docs/install.md runs it:\n%s", out)
	for _, want := range []string{"ok", "nvml", "podresources"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor's output lacks %q:\n%s", want, out)
		}
	}
	c.exporters(t, "monitoring")
	const upgraded = "helm upgrade gpu-exporter deploy/helm/gpu-exporter --namespace monitoring --reset-then-reuse-values"
	c.shell(t, c.documented(t, upgraded+" \\\n"))
	c.exporters(t, "monitoring")

	c.namespace(t, "work", "privileged")
	c.account(t, "work", "default")
	plugins := one.nvidiaPlugins()
	var chosen sync.Map
	plugins = append(plugins, two.hamiPlugin(func() string { uuid, _ := chosen.Load("uuid"); return uuid.(string) }))
	for _, p := range plugins {
		p.start(t)
	}
	t.Cleanup(func() {
		for _, p := range plugins {
			p.stop()
		}
	})
	two.startClaims(t)
	c.create(t, `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: work}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
`)
	// Every data source of an unprivileged pod.
	features := "features.processes=true,features.deviceCheckpoint=true,features.podMetadata=true,features.resourceSlices=true," +
		"features.containerVisible=true,features.podLabels={team}"
	upgrade := upgraded + " --wait --set '%s'\n" +
		"kubectl -n monitoring rollout status daemonset/gpu-exporter --timeout=120s"
	c.shell(t, fmt.Sprintf(upgrade, features))
	c.exporters(t, "monitoring")
	referees := []*referee{watch(t, one), watch(t, two)}
	c.settle(t, "nothing is allocated", 30*time.Second)

	const gpu = "nvidia.com/gpu=1"
	hami := func(name string, index int) string {
		uuid := two.gpus.uuid[index]
		chosen.Store("uuid", uuid)
		two.assigned.Store("work/"+name, uuid)
		return podText(name, two.name, `hami.io/vgpu-node: node-2, hami.io/bind-phase: success, `+
			`hami.io/vgpu-devices-allocated: "`+uuid+`,NVIDIA,20480,30:;"`, container{name: "main", limits: gpu})
	}
	steps := []struct {
		name  string
		do    func()
		bound time.Duration
	}{
		{"pods of one to three containers", func() {
			c.create(t, podText("one", one.name, "", container{name: "main", limits: "nvidia.com/gpu=1"}),
				podText("two", one.name, "", container{name: "a", limits: gpu}, container{name: "b", limits: "nvidia.com/gpu.shared=1"}),
				podText("three", one.name, "", container{name: "a", limits: "nvidia.com/gpu.shared=2"},
					container{name: "b", limits: "nvidia.com/mig-1g.10gb=2"}, container{name: "c"}))
			c.running(t)
		}, 15 * time.Second},
		{"HAMi-shaped devices", func() {
			c.create(t, hami("hami-1", 2))
			c.running(t)
			c.create(t, hami("hami-2", 2))
			c.running(t)
		}, 15 * time.Second},
		{"claims of an unknown driver", func() {
			c.create(t, podText("claim-1", two.name, "", container{name: "main", claim: true}),
				podText("claim-2", two.name, "", container{name: "main", claim: true}, container{name: "beside"}))
			c.running(t)
		}, 20 * time.Second},
		{"a sidecar with a GPU, and one of two GPUs", func() {
			c.create(t, podText("sidecar", one.name, "", container{name: "proxy", limits: "nvidia.com/mig-2g.20gb=1", initial: "sidecar"},
				container{name: "main", limits: gpu}))
			c.running(t)
		}, 15 * time.Second},
		{"an init container with a GPU runs", func() {
			c.create(t, podText("init", one.name, "", container{name: "prepare", limits: gpu, initial: "init", duration: "8"},
				container{name: "main", limits: "nvidia.com/mig-3g.40gb=1"}))
			c.running(t)
		}, 20 * time.Second},
		{"pods are deleted", func() {
			c.kubectl(t, "-n", "work", "delete", "pod", "two", "sidecar", "hami-1", "claim-1")
		}, 15 * time.Second},
		{"a pod is recreated under its name", func() {
			c.kubectl(t, "-n", "work", "delete", "pod", "one", "--grace-period=1")
			c.create(t, podText("one", one.name, "", container{name: "main", limits: "nvidia.com/gpu=2"}))
			c.running(t)
		}, 15 * time.Second},
		{"the kubelets are killed", func() {
			for _, n := range c.nodes {
				n.kubelet.kill()
			}
			time.Sleep(5 * time.Second)
			for _, n := range c.nodes {
				n.startKubelet(t)
			}
			for _, p := range plugins { // they watch the directory and register again
				p.stop()
				p.start(t)
			}
		}, 45 * time.Second},
		{"a plugin is killed", func() { plugins[0].stop(); time.Sleep(3 * time.Second) }, 15 * time.Second},
		{"the plugin is back", func() { plugins[0].start(t) }, 15 * time.Second},
		{"the API server is killed and comes back", func() {
			c.server.kill()
			time.Sleep(20 * time.Second)
			c.serve(t)
			c.create(t, podText("after", one.name, "", container{name: "main", limits: gpu}))
			c.running(t)
		}, 60 * time.Second},
		{"the exporters are deleted", func() {
			c.kubectl(t, "-n", "monitoring", "delete", "pod", "-l", "app.kubernetes.io/name=gpu-exporter")
			c.exporters(t, "monitoring")
		}, 30 * time.Second},
		{"the chart is upgraded", func() {
			c.shell(t, fmt.Sprintf(upgrade, "exporter.log.level=debug"))
			c.exporters(t, "monitoring")
		}, 30 * time.Second},
	}
	for i, s := range steps {
		s.do()
		c.settle(t, s.name, s.bound)
		if i == 0 {
			c.unhealthy(t, one, plugins[0])
			c.shares(t, one)
		}
	}
	for _, n := range c.nodes {
		c.visible(t, n)
		c.doctor(t, n)
	}

	c.jobs(t, referees[0])

	// The GPU Operator's namespace, as documented, beside the first.
	c.shell(t, "kubectl create namespace gpu-operator\n"+c.documented(t, "kubectl label namespace gpu-operator "))
	c.shell(t, "kubectl -n gpu-operator rollout status daemonset/gpu-exporter --timeout=120s\n"+
		"helm uninstall gpu-exporter -n gpu-operator --wait")
	c.shell(t, c.documented(t, upgraded+" --set image"))
	eventually(t, "all of the release is removed", func() error {
		if left := c.belonging(t, "gpu-exporter"); len(left) > 0 {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
	for text, run := range c.commands {
		if !run {
			t.Errorf("docs/install.md marks these commands as run in a cluster, and this test does not run them:\n%s", text)
		}
	}
}

// unhealthy lets a plugin report the device of work/one as unhealthy, and one that is not allocated, and compares the verdict that the
// exporter has with what the kubelet writes into the pod's status (KEP-4680, by default since 1.36).
func (c *cluster) unhealthy(t *testing.T, n *node, p *plugin) {
	t.Helper()
	uses, _, err := n.listed(t.Context())
	noErr(t, err)
	allocated, unallocated := "", map[string]bool{}
	for _, d := range p.devices {
		unallocated[d.ID] = true
	}
	for u := range uses {
		if delete(unallocated, u.uuid); u.namespace+"/"+u.pod == "work/one" {
			allocated = u.uuid
		}
	}
	if allocated == "" || len(unallocated) == 0 {
		t.Fatalf("the test needs an allocated and an unallocated GPU; uses %v", uses)
	}
	expect := func(id string, healthy float64) {
		t.Helper()
		eventually(t, fmt.Sprintf("health %v of %s", healthy, id), func() error {
			page, err := n.exported(t.Context())
			if err != nil {
				return err
			}
			verdicts := page.values("gpu_kubelet_healthy")
			if len(verdicts) < len(p.devices) {
				return fmt.Errorf("verdicts on %v", verdicts)
			}
			for key, v := range verdicts {
				if want := max(healthy, b2f(key != "// "+id)); v != want {
					return fmt.Errorf("%s has %v, not %v", key, v, want)
				}
			}
			return nil
		})
		if _, modfile, err := release(); err != nil || id != allocated || modfile == "kubernetes-1.34.mod" {
			return
		}
		want := id + " " + map[float64]string{0: deviceplugin.Unhealthy, 1: deviceplugin.Healthy}[healthy]
		eventually(t, "the pod's status has "+want, func() error {
			got := c.kubectl(t, "-n", "work", "get", "pod", "one", "-o",
				`jsonpath={range .status.containerStatuses[0].allocatedResourcesStatus[0].resources[*]}{.resourceID} {.health}{end}`)
			if got != want {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	expect(allocated, 1)
	for _, id := range []string{allocated, slices.Sorted(maps.Keys(unallocated))[0]} {
		p.changed <- p.withHealth(id, deviceplugin.Unhealthy)
		expect(id, 0)
		p.changed <- p.devices
		expect(id, 1)
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sharing are processes on GPU 4 of the first node: in two containers that share it, and in none.
var sharing = []struct {
	memory, busy int // GiB, percent
	container    string
}{{9, 40, "work/three/a"}, {14, 20, "work/two/b"}, {2, 0, ""}}

// shares moves these processes into the cgroups of the containers and compares what the exporter attributes to each.
func (c *cluster) shares(t *testing.T, n *node) {
	t.Helper()
	for i, p := range sharing {
		if p.container == "" {
			continue
		}
		path := strings.Split(p.container, "/")
		id := c.kubectl(t, "-n", path[0], "get", "pod", path[1], "-o",
			`jsonpath={.status.containerStatuses[?(@.name=="`+path[2]+`")].containerID}`)
		must(t, "bash", "-euc", `for f in $(find /sys/fs/cgroup -path "*/$0/cgroup.procs"); do echo "$1" >"$f"; done`,
			strings.TrimPrefix(id, "containerd://"), strconv.Itoa(n.sharing[i]))
	}
	// A new exporter need not wait until it reads the cgroups again.
	c.kubectl(t, "-n", "monitoring", "delete", "pod", "-l", "app.kubernetes.io/name=gpu-exporter")
	c.exporters(t, "monitoring")
	var first *page
	eventually(t, "processes are attributed", func() (err error) {
		if first, err = n.exported(t.Context()); err != nil {
			return err
		}
		for _, p := range sharing {
			if got := first.values("gpu_container_memory_used_bytes")[p.container+" "+n.gpus.uuid[4]]; p.container != "" &&
				got != float64(p.memory<<30) {
				return fmt.Errorf("%s uses %v bytes, not %d GiB", p.container, got, p.memory)
			}
		}
		return nil
	})
	time.Sleep(30 * time.Second)
	second, err := n.exported(t.Context())
	noErr(t, err)
	for _, p := range sharing {
		if p.container == "" {
			continue
		}
		grown := func(family string) float64 {
			key := p.container + " " + n.gpus.uuid[4]
			return second.values(family)[key] - first.values(family)[key]
		}
		share := 100 * grown("gpu_container_busy_seconds_total") / grown("gpu_container_observed_seconds_total")
		t.Logf("%s was busy for %.1f %% of %.0f s; the driver's samples have %d %%", p.container, share,
			grown("gpu_container_observed_seconds_total"), p.busy)
		if share < float64(p.busy)-5 || share > float64(p.busy)+5 {
			t.Errorf("%s: busy for %.1f %%, and the driver's samples have %d %%", p.container, share, p.busy)
		}
	}
	for _, pid := range n.sharing {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// visible compares the GPUs that are visible in the containers of a node with those that its device plugins gave them.
func (c *cluster) visible(t *testing.T, n *node) {
	t.Helper()
	eventually(t, "visible GPUs on "+n.name, func() error {
		uses, _, err := n.listed(t.Context())
		if err != nil {
			return err
		}
		p, err := n.exported(t.Context())
		if err != nil {
			return err
		}
		seen, wanted := p.values("gpu_container_visible"), 0
		for u := range uses {
			if u.resource == label.Replace(draDriver) || u.mig != "" {
				continue // these put no device nodes into the container
			}
			wanted++
			if key := u.namespace + "/" + u.pod + "/" + u.container + " " + u.uuid; seen[key] == 0 {
				return fmt.Errorf("%s is not visible; there are %v", key, seen)
			}
		}
		t.Logf("%s: the GPUs of %d uses are visible", n.name, wanted)
		return nil
	})
}

// doctor compares what doctor prints on a node with what the exporter beside it exports.
func (c *cluster) doctor(t *testing.T, n *node) {
	t.Helper()
	pod := c.kubectl(t, "-n", "monitoring", "get", "pod", "-l", "app.kubernetes.io/name=gpu-exporter", "--field-selector",
		"spec.nodeName="+n.name, "-o", "jsonpath={.items[0].metadata.name}")
	out := c.kubectl(t, "-n", "monitoring", "exec", strings.TrimSpace(pod), "--", "gpu-exporter", "doctor")
	p, err := n.exported(t.Context())
	noErr(t, err)
	if regexp.MustCompile(`(?m)^(warning|error) `).MatchString(out) {
		t.Errorf("%s: doctor finds faults where the exporter has none:\n%s", n.name, out)
	}
	unallocated := 0
	for _, ratio := range p.ratio {
		if ratio == 0 {
			unallocated++
		}
	}
	if got := strings.Count(out, "allocated to  none\n"); got != unallocated {
		t.Errorf("%s: %d GPUs are unallocated, and according to doctor %d:\n%s", n.name, unallocated, got, out)
	}
	for u := range p.uses {
		if !strings.Contains(out, u.namespace+"/"+u.pod+"/"+u.container+" (") {
			t.Errorf("%s: doctor lacks %s:\n%s", n.name, u, out)
		}
	}
}

// jobs runs Jobs whose pods have a GPU for seconds, and compares the GPU-seconds that the exporter counted with those of the
// kubelet's list.
func (c *cluster) jobs(t *testing.T, r *referee) {
	t.Helper()
	c.kubectl(t, "-n", "work", "delete", "pod", "--all")
	c.settle(t, "all pods are deleted", 20*time.Second)
	_, spec, _ := strings.Cut(podText("short", r.n.name, "", container{name: "main", limits: "nvidia.com/gpu=1", duration: "3"}),
		"\nspec:\n")
	c.create(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: short, namespace: work}\nspec:\n  completions: 20\n  parallelism: 4\n"+
		"  template:\n    spec:\n      restartPolicy: Never\n"+regexp.MustCompile(`(?m)^`).ReplaceAllString(spec, "    "))
	c.kubectl(t, "-n", "work", "wait", "job/short", "--for=condition=complete", "--timeout=300s")
	c.settle(t, "Jobs of seconds", 15*time.Second)
	time.Sleep(2 * time.Second) // a last scrape
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pods, truth, counted, missed := 0, 0.0, 0.0, 0
	var differences []string
	for u, seconds := range r.seconds {
		if !strings.HasPrefix(u.pod, "short-") {
			continue
		}
		pods++
		truth += seconds
		counted += r.counted[u]
		differences = append(differences, fmt.Sprintf("%+.1f", r.counted[u]-seconds))
		if r.counted[u] == 0 {
			missed++
		}
	}
	t.Logf("Jobs of seconds: %d pods, %.1f GPU-seconds listed by the kubelet, %.1f counted (%+.1f %%), %d pods never seen; by pod %v; "+
		"%d failed requests", pods, truth, counted, 100*(counted/truth-1), missed, differences, r.failures)
	if pods != 20 || missed > 0 || counted < 0.97*truth || counted > 1.03*truth {
		t.Errorf("GPU-seconds of Jobs are not within 3 %% of the kubelet's")
	}
}
