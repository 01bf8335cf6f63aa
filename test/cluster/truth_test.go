package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// use is a GPU, or a MIG device of it, that is allocated to a container.
type use struct{ namespace, pod, container, resource, uuid, mig string }

func (u use) String() string {
	return fmt.Sprintf("%s/%s/%s %s %s%s", u.namespace, u.pod, u.container, u.resource, u.uuid, u.mig)
}

// label makes a resource name a label value, as kube-state-metrics has it.
var label = strings.NewReplacer("/", "_", ".", "_", "-", "_")

// listed is what the kubelet lists: the uses, and the number of devices of each container and resource.
func (n *node) listed(ctx context.Context) (map[use]bool, map[string]int, error) {
	conn, err := grpc.NewClient("unix:"+n.root("var/lib/kubelet/pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	list, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, nil, err
	}
	uses, counts := map[use]bool{}, map[string]int{}
	for _, pod := range list.PodResources {
		for _, c := range pod.Containers {
			add := func(resource, id string) {
				uuid, mig := n.resolve(pod.Namespace+"/"+pod.Name, id)
				uses[use{pod.Namespace, pod.Name, c.Name, label.Replace(resource), uuid, mig}] = true
				counts[fmt.Sprintf("%s/%s/%s %s", pod.Namespace, pod.Name, c.Name, resource)]++
			}
			for _, d := range c.Devices {
				for _, id := range d.DeviceIds {
					add(d.ResourceName, id)
				}
			}
			for _, d := range c.DynamicResources {
				for _, claim := range d.ClaimResources {
					add(claim.DriverName, claim.DeviceName)
				}
			}
		}
	}
	return uses, counts, nil
}

// resolve is the GPU that a device ID of this test's plugins stands for, and the MIG device of it.
func (n *node) resolve(pod, id string) (uuid, mig string) {
	if uuid, ok := n.assigned.Load(pod); ok {
		return uuid.(string), "" // as HAMi's scheduler did
	}
	if _, ok := n.gpus.mig[id]; ok {
		return n.gpus.uuid[5], id
	}
	if letter, ok := strings.CutPrefix(id, "accelerator-"); ok {
		return n.gpus.uuid[int(letter[0]-'a')], ""
	}
	uuid, _, _ = strings.Cut(id, "::")
	return uuid, ""
}

// requested is the number of devices that the API server's pods of the node have been given, by container and resource.
func (n *node) requested(ctx context.Context) (map[string]int, error) {
	pods, err := n.p.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for i, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			if i >= len(pod.Spec.Containers) && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
				continue // the kubelet lists no ordinary init container
			}
			name := pod.Namespace + "/" + pod.Name + "/" + c.Name + " "
			for resource, quantity := range c.Resources.Limits {
				if strings.HasPrefix(string(resource), "nvidia.com/") {
					counts[name+string(resource)] += int(quantity.Value())
				}
			}
			for range c.Resources.Claims {
				counts[name+draDriver]++
			}
		}
	}
	return counts, nil
}

// page is what the exporter of a node exports.
type page struct {
	uses       map[use]bool
	ratio      map[string]float64 // gpu_allocation_ratio by UUID
	unresolved float64
	seconds    map[use]float64 // gpu_container_allocated_seconds_total
	families   map[string]*dto.MetricFamily
}

// values are those of a family by namespace/pod/container and, after a space, the UUID.
func (p *page) values(family string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range p.families[family].GetMetric() {
		l := labels(m)
		key := l["namespace"] + "/" + l["pod"] + "/" + l["container"] + " " + l["uuid"]
		out[key] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return out
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.Label {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// exported scrapes the exporter of a node.
func (n *node) exported(ctx context.Context) (*page, error) {
	n.mutex.Lock()
	url, path := n.url, cmp.Or(n.path, "/metrics")
	n.mutex.Unlock()
	if url == "" {
		return nil, errors.New("no exporter runs")
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, err
	}
	p := &page{map[use]bool{}, map[string]float64{}, 0, map[use]float64{}, families}
	for _, m := range families["gpu_container_allocation_ratio"].GetMetric() {
		l := labels(m)
		p.uses[use{l["namespace"], l["pod"], l["container"], l["resource"], l["uuid"], l["mig_uuid"]}] = true
	}
	for _, m := range families["gpu_allocation_ratio"].GetMetric() {
		p.ratio[labels(m)["uuid"]] = m.GetGauge().GetValue()
	}
	for _, m := range families["gpu_container_unresolved_devices"].GetMetric() {
		p.unresolved += m.GetGauge().GetValue()
	}
	for _, m := range families["gpu_container_allocated_seconds_total"].GetMetric() {
		l := labels(m)
		p.seconds[use{namespace: l["namespace"], pod: l["pod"], container: l["container"], uuid: l["uuid"]}] = m.GetCounter().GetValue()
	}
	return p, nil
}

func texts(uses map[use]bool) []string {
	var out []string
	for u := range uses {
		out = append(out, u.String())
	}
	slices.Sort(out)
	return out
}

// agree compares the exporter of a node with its kubelet, and that with the API server.
func (n *node) agree(ctx context.Context) error {
	uses, counts, err := n.listed(ctx)
	if err != nil {
		return fmt.Errorf("%s: list: %w", n.name, err)
	}
	wanted, err := n.requested(ctx)
	if err != nil {
		return fmt.Errorf("%s: pods: %w", n.name, err)
	}
	if !maps.Equal(counts, wanted) {
		return fmt.Errorf("%s: the kubelet has allocated %v, and the API server's pods request %v", n.name, counts, wanted)
	}
	p, err := n.exported(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	if !maps.Equal(p.uses, uses) {
		return fmt.Errorf("%s: the exporter has\n\t%s\nthe kubelet\n\t%s", n.name, strings.Join(texts(p.uses), "\n\t"),
			strings.Join(texts(uses), "\n\t"))
	}
	if p.unresolved > 0 {
		return fmt.Errorf("%s: %v devices are unresolved", n.name, p.unresolved)
	}
	allocated := map[string]bool{}
	for u := range uses {
		allocated[u.uuid] = true
	}
	for _, uuid := range n.gpus.uuid {
		if ratio, known := p.ratio[uuid]; !known || (ratio > 0) != allocated[uuid] {
			return fmt.Errorf("%s: %s: gpu_allocation_ratio %v, known: %v; allocated: %v", n.name, uuid, ratio, known, allocated[uuid])
		}
	}
	return nil
}

// grace is the delay after which the exporter must have followed, without the API server: one poll of the kubelet, and a scrape.
const grace = 13 * time.Second

// referee compares every page of a node's exporter with what the kubelet has listed, until it is stopped: a use that the kubelet has not
// listed for longer than the grace is a wrong name, and a GPU at 0 that it has listed for longer is falsely unallocated. While the kubelet
// does not respond, and for a moment after, the last list counts: a restarting one lists nothing at first.
type referee struct {
	n        *node
	mutex    sync.Mutex
	since    map[use]time.Time // listed without a break since
	last     map[use]time.Time // listed last
	seconds  map[use]float64   // the kubelet's truth: time for which a use was listed
	counted  map[use]float64   // the highest counter of the exporter
	failed   time.Time         // of the kubelet's last failure
	pages    int
	failures int               // of requests to the kubelet
	faults   map[string]string // first time of each
	stop     func()
}

func watch(t *testing.T, n *node) *referee {
	ctx, cancel := context.WithCancel(context.Background())
	r := &referee{n: n, since: map[use]time.Time{}, last: map[use]time.Time{}, seconds: map[use]float64{}, counted: map[use]float64{},
		faults: map[string]string{}}
	var both sync.WaitGroup
	each := func(interval time.Duration, do func()) {
		both.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					do()
				}
			}
		})
	}
	before := time.Now()
	each(100*time.Millisecond, func() {
		uses, _, err := n.listed(ctx)
		r.mutex.Lock()
		defer r.mutex.Unlock()
		now := time.Now()
		step := now.Sub(before)
		before = now
		if err != nil {
			r.failed = now
			r.failures++
		}
		if now.Sub(r.failed) < 10*time.Second && len(uses) < len(r.since) {
			for u := range r.since {
				r.last[u] = now
			}
			return
		}
		for u := range uses {
			if _, on := r.since[u]; !on {
				r.since[u] = now
			}
			r.last[u] = now
			key := u
			key.resource, key.mig = "", ""
			r.seconds[key] += step.Seconds()
		}
		for u := range r.since {
			if !uses[u] {
				delete(r.since, u)
			}
		}
	})
	each(500*time.Millisecond, func() {
		p, err := n.exported(ctx)
		if err != nil {
			return
		}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		now := time.Now()
		r.pages++
		fault := func(format string, args ...any) {
			if text := fmt.Sprintf(format, args...); r.faults[text] == "" {
				r.faults[text] = now.Format("15:04:05.0")
			}
		}
		for u := range p.uses {
			if now.Sub(r.last[u]) > grace {
				fault("wrong: %s", u)
			}
		}
		for u, since := range r.since {
			if ratio, known := p.ratio[u.uuid]; known && ratio == 0 && now.Sub(since) > grace {
				fault("falsely unallocated: %s", u)
			}
		}
		for u, v := range p.seconds {
			r.counted[u] = max(r.counted[u], v)
		}
	})
	r.stop = func() { cancel(); both.Wait() }
	t.Cleanup(func() {
		r.stop()
		for text, first := range r.faults {
			t.Errorf("%s: %s, first at %s", n.name, text, first)
		}
		t.Logf("%s: %d pages compared, %d faults", n.name, r.pages, len(r.faults))
		if r.pages == 0 {
			t.Errorf("%s: no page was compared", n.name)
		}
	})
	return r
}
