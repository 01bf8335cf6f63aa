package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// belonging lists the objects of a release that the server has, "Kind name" in order. What controllers make of them is left out.
func (p *plane) belonging(t *testing.T, release string) []string {
	t.Helper()
	_, lists, err := p.client.Discovery().ServerGroupsAndResources()
	noErr(t, err)
	found := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		noErr(t, err)
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") ||
				slices.Contains([]string{"Pod", "ControllerRevision", "Event", "Job"}, r.Kind) {
				continue
			}
			all, err := p.objects.Resource(gv.WithResource(r.Name)).List(t.Context(),
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range all.Items {
				found[o.GetKind()+" "+o.GetName()] = true
			}
		}
	}
	out := []string{}
	for k := range found {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// released compares the objects on the server with those that Helm installed: all, as written, and nothing else.
func (p *plane) released(t *testing.T, step string) []string {
	t.Helper()
	var want []string
	for _, o := range parse(t, p.helm(t, "get", "manifest", "gpu-exporter", "-n", "monitoring")) {
		want = append(want, name(o))
		got, err := p.read(t, o)
		if err != nil {
			t.Errorf("%s: %s: %v", step, name(o), err)
			continue
		}
		if gone := dropped("", stored(o), got.Object); len(gone) > 0 {
			t.Errorf("%s: %s is not as it was sent:\n\t%s", step, name(o), strings.Join(gone, "\n\t"))
		}
	}
	slices.Sort(want)
	if got := p.belonging(t, "gpu-exporter"); !slices.Equal(got, want) {
		t.Errorf("%s: there are\n\t%s\nand should be\n\t%s", step, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return want
}

// containsKind reports whether there is an object of a kind.
func containsKind(names []string, kind string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, kind+" ") })
}

// Helm installs into a cluster without operators, and an upgrade adds objects of their kinds once these exist.
func TestHelmFindsTheOperators(t *testing.T) {
	p := startPlane(t, admission("privileged"))
	p.prepare(t, false)
	out := p.helm(t, "install", "gpu-exporter", chart(), "-n", "monitoring", "--create-namespace")
	if names := p.released(t, "without operators"); containsKind(names, "PodMonitor") || containsKind(names, "PrometheusRule") ||
		!strings.Contains(out, "Prometheus does not scrape it yet: this cluster has no PodMonitor") {
		t.Errorf("installed %q, output:\n%s", names, out)
	}
	// Requesting a kind that the cluster lacks is refused and changes nothing.
	if out, err := p.command(t, helmTool(t), "upgrade", "gpu-exporter", chart(), "-n", "monitoring", "--set",
		"monitoring.kind=PodMonitor"); err == nil {
		t.Errorf("a PodMonitor without its kind is taken:\n%s", out)
	}
	p.prepare(t, true)
	out = p.helm(t, "upgrade", "gpu-exporter", chart(), "-n", "monitoring")
	if names := p.released(t, "with operators"); !containsKind(names, "PodMonitor") || !containsKind(names, "PrometheusRule") ||
		strings.Contains(out, "does not scrape it yet") {
		t.Errorf("upgraded to %q, output:\n%s", names, out)
	}
}

// Every set of values is an upgrade of every other that precedes it here, by both ways in which Helm applies; a rollback brings the
// first back, and nothing stays when it is removed.
func TestHelmUpgrades(t *testing.T) {
	p := startPlane(t, admission("privileged"))
	p.prepare(t, true)
	p.namespace(t, "monitoring", "")
	p.allowAdminAccess(t, "monitoring")
	order := []string{"default", "everything", "default", "cdi", "openshift", "gke", "everything", "non-root", "kernel-log", "gpu-operator",
		"gpu-cluster", "dcgm-names", "default"}
	for name := range cases(t) {
		if !slices.Contains(order, name) {
			t.Errorf("the values file %s is in no upgrade", name)
		}
	}
	for _, server := range []string{"true", "false"} {
		t.Run("server-side="+server, func(t *testing.T) {
			for i, values := range order {
				args := []string{"install", "--create-namespace"}
				if i > 0 {
					// Without --reset-values, a file that says nothing stands for the values of before.
					args = []string{"upgrade", "--reset-values", "--history-max=0"}
				}
				p.helm(t, append(args, "gpu-exporter", chart(), "-n", "monitoring", "--server-side="+server, "-f", cases(t)[values])...)
				names := p.released(t, fmt.Sprintf("step %d, %s", i, values))
				if containsKind(names, "ClusterRole") != (values == "everything") {
					t.Errorf("step %d, %s: there are %q", i, values, names)
				}
			}
			p.helm(t, "rollback", "gpu-exporter", "2", "-n", "monitoring")
			if names := p.released(t, "rolled back"); !containsKind(names, "CronJob") || !containsKind(names, "ClusterRole") {
				t.Errorf("the second revision had everything; now there are %q", names)
			}
			p.helm(t, "uninstall", "gpu-exporter", "-n", "monitoring")
			eventually(t, "all of the release is gone", func() error {
				if left := p.belonging(t, "gpu-exporter"); len(left) > 0 {
					return fmt.Errorf("there are %q", left)
				}
				return nil
			})
		})
	}
}

// kubectl applies the directories as documented, over one another, and on the client's side, whose annotation has a size
// limit.
func TestKubectlApplies(t *testing.T) {
	p := startPlane(t, admission("restricted"))
	p.prepare(t, true)
	p.namespace(t, "gpu-operator", "privileged")
	p.allowAdminAccess(t, "gpu-operator")
	for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		for _, dir := range []string{"base", "overlays/gke", "overlays/openshift", "overlays/gpu-operator",
			"overlays/gpu-cluster", "base", "overlays/kind"} {
			p.kubectl(t, append([]string{"apply", "--validate=strict", "-k", "deploy/kustomize/" + dir}, how...)...)
		}
		dir := p.withComponents(t)
		p.kubectl(t, append([]string{"apply", "--validate=strict", "-k", dir}, how...)...)
		for _, o := range parse(t, p.kubectl(t, "kustomize", dir)) {
			got, err := p.read(t, o)
			if err != nil {
				t.Errorf("%q: %s: %v", how, name(o), err)
			} else if gone := dropped("", stored(o), got.Object); len(gone) > 0 {
				t.Errorf("%q: %s is not as it was sent:\n\t%s", how, name(o), strings.Join(gone, "\n\t"))
			}
		}
		p.kubectl(t, "-n", "rules", "create", "namespace", fmt.Sprintf("rules-%d", len(how)))
		p.kubectl(t, append([]string{"-n", fmt.Sprintf("rules-%d", len(how)), "apply", "--validate=strict", "-f",
			"alerts/prometheusrule.yaml"}, how...)...)
	}
}

// The notes list the nodes to which the controller assigns a pod; a paused one is left.
func TestNodes(t *testing.T) {
	p := startPlane(t, admission("restricted"))
	p.prepare(t, true)
	nodes := map[string]string{
		"plain": "", "operator": "nvidia.com/gpu.present=true", "operator-without": "nvidia.com/gpu.present=false",
		"discovered": "feature.node.kubernetes.io/pci-10de.present=true",
		"gke":        "cloud.google.com/gke-accelerator=nvidia-l4", "aks": "kubernetes.azure.com/accelerator=nvidia",
		"aks-other": "kubernetes.azure.com/accelerator=amd", "eks": "k8s.amazonaws.com/accelerator=nvidia-tesla-v100",
		"both": "nvidia.com/gpu.present=true,feature.node.kubernetes.io/pci-10de.present=true", "pool": "pool=gpu",
	}
	for n, labels := range nodes {
		p.node(t, n, labels)
	}
	// A tainted one, as GKE taints its nodes with GPUs.
	p.kubectl(t, "taint", "node", "gke", "nvidia.com/gpu=present:NoSchedule")

	out := p.helm(t, "install", "gpu-exporter", chart(), "-n", "monitoring", "--create-namespace")
	// In a namespace without labels the controller is refused every pod: the reason for the command in the notes.
	eventually(t, "the pods are refused without the label", func() error {
		events, err := p.client.CoreV1().Events("monitoring").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=DaemonSet,reason=FailedCreate"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, `violates PodSecurity "restricted:latest"`) {
				return nil
			}
		}
		return fmt.Errorf("%d events of refused pods", len(events.Items))
	})
	listed := map[string]bool{}
	labeled := false
	for line := range strings.Lines(out) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl ")
		switch {
		case ok && strings.HasPrefix(command, "get nodes -l "):
			selector := strings.Trim(strings.TrimPrefix(command, "get nodes -l "), "'")
			for _, n := range strings.Fields(p.kubectl(t, "get", "nodes", "-l", selector, "-o", "name")) {
				listed[strings.TrimPrefix(n, "node/")] = true
			}
		case ok && strings.HasPrefix(command, "label "):
			p.kubectl(t, strings.Fields(command)...)
			labeled = true
		}
	}
	if !labeled {
		t.Fatalf("the notes name no label for the namespace:\n%s", out)
	}
	want := []string{}
	for n := range listed {
		want = append(want, n)
	}
	slices.Sort(want)
	if !slices.Equal(want, []string{"aks", "both", "discovered", "eks", "gke", "operator"}) {
		t.Errorf("the notes list %q", want)
	}
	p.runsOn(t, want...)

	// The MIG manager pauses a node, and the other way about.
	p.kubectl(t, "label", "node", "operator", "nvidia.com/gpu.deploy.dcgm-exporter=paused-for-mig-change")
	p.runsOn(t, "aks", "both", "discovered", "eks", "gke")
	p.kubectl(t, "label", "node", "operator", "--overwrite", "nvidia.com/gpu.deploy.dcgm-exporter=true")
	p.runsOn(t, want...)
	p.kubectl(t, "label", "node", "plain", "accelerator=nvidia")
	p.runsOn(t, append(want, "plain")...)

	out = p.helm(t, "upgrade", "gpu-exporter", chart(), "-n", "monitoring", "--set",
		"scheduling.gpuNodeLabels=null,scheduling.nodeSelector.pool=gpu")
	if !strings.Contains(out, "kubectl get nodes -l 'kubernetes.io/os=linux,pool=gpu'") {
		t.Errorf("the notes are\n%s", out)
	}
	p.runsOn(t, "pool")
}

// node creates a ready node, with labels as kubectl takes them.
func (p *plane) node(t *testing.T, name, labels string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}}
	all := map[string]string{"kubernetes.io/os": "linux"}
	for l := range strings.SplitSeq(labels, ",") {
		if k, v, ok := strings.Cut(l, "="); ok {
			all[k] = v
		}
	}
	o.SetLabels(all)
	if _, err := p.apply(t, o); err != nil {
		t.Fatal(err)
	}
	// Admission taints a new node until the controller of its life, which does not run here, has found it ready.
	p.patch(t, o, `{"spec":{"taints":null}}`)
}

// runsOn waits until the controller has pods for exactly these nodes. It replaces their scheduler and kubelets.
func (p *plane) runsOn(t *testing.T, nodes ...string) {
	t.Helper()
	slices.Sort(nodes)
	eventually(t, fmt.Sprintf("the DaemonSet has pods for %q", nodes), func() error {
		pods, err := p.client.CoreV1().Pods("monitoring").List(t.Context(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=gpu-exporter"})
		if err != nil {
			return err
		}
		var on []string
		for _, pod := range pods.Items {
			// The controller has written the node that it means into the pod.
			target := pod.Spec.NodeName
			for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				for _, f := range term.MatchFields {
					target = f.Values[0]
				}
			}
			switch {
			case pod.DeletionTimestamp != nil: // the kubelet would say that it has ended
				now := int64(0)
				_ = p.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
				continue
			case pod.Spec.NodeName == "": // the scheduler would bind it
				_ = p.client.CoreV1().Pods(pod.Namespace).Bind(t.Context(),
					&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
						Target: corev1.ObjectReference{Kind: "Node", Name: target}}, metav1.CreateOptions{})
				return fmt.Errorf("%s is not bound yet", pod.Name)
			}
			on = append(on, target)
		}
		slices.Sort(on)
		if !slices.Equal(on, nodes) {
			return fmt.Errorf("they are for %q", on)
		}
		return nil
	})
}

// If a priority class is limited to namespaces whose quota allows it, as on GKE, the chart's quota admits the pods.
func TestPriorityClassQuota(t *testing.T) {
	p := startPlane(t, admission("privileged", "system-node-critical", "system-cluster-critical"))
	p.prepare(t, false)
	p.node(t, "gke", "cloud.google.com/gke-accelerator=nvidia-l4")
	p.helm(t, "install", "gpu-exporter", chart(), "-n", "monitoring", "--create-namespace")
	eventually(t, "the pods are refused without a quota", func() error {
		events, err := p.client.CoreV1().Events("monitoring").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=DaemonSet,reason=FailedCreate"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, "insufficient quota to match these scopes") {
				return nil
			}
		}
		return errNotYet
	})
	p.runsOn(t)
	p.helm(t, "upgrade", "gpu-exporter", chart(), "-n", "monitoring", "-f", cases(t)["gke"])
	p.runsOn(t, "gke")
}
