package security_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// hostile are names that an API server refuses. A process with access to the kubelet's socket or to cgroup names could
// still provide them.
var hostile = []string{
	`quote"and\backslash`,
	"new\nline",
	"carriage\rreturn\ttab",
	`"} 1` + "\n" + `gpu_device_up{uuid="forged"} 1` + "\n#",
	"# HELP gpu_device_up forged\n# TYPE gpu_device_up counter\n# EOF\n",
	`<script>alert(1)</script><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`javascript:alert(1)`,
	`{{.Node}}{{template "x"}}`,
	"ünïcödé-日本語-🙂",
	"right\u202eto left\u202c zero\u200bwidth \ufeff bom",
	"nul\x00and\x1bescape\x7f",
	"../../../etc/passwd",
	`${jndi:ldap://x/y}`,
	"%s%n%d",
	strings.Repeat("long", 120),
	" ",
}

// A name reaches a label in all three formats, a page as text, and forges nothing; no control character of it reaches
// any output.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	n := machine.Parse(t, twoGPUs+"process gpu=1 pid=4242 memory=1GiB busy=50% period=1s\nprocess gpu=1 pid=4243 memory=1GiB busy=20% "+
		"period=1s\n",
		twoPods)
	var pods []standin.KubeletPod
	var ids []string
	for i, name := range hostile {
		id := fmt.Sprintf("%s::%d", GPUA, i)
		ids = append(ids, id)
		pods = append(pods, standin.KubeletPod{Namespace: name, Name: name, Containers: []standin.KubeletContainer{{Name: name,
			Devices: []standin.KubeletDevices{{Resource: "nvidia.com/gpu", IDs: []string{id}}}}}})
	}
	// An unknown resource with a name of this kind.
	pods = append(pods, standin.KubeletPod{Namespace: "ml", Name: "odd", Containers: []standin.KubeletContainer{{Name: "c",
		Devices: []standin.KubeletDevices{{Resource: "nvidia.com/gpu\"}\n<script>", IDs: []string{"<script>\"\n"}}}}}})
	n.Kubelet.SetNode(standin.KubeletNode{Pods: pods, Allocatable: map[string][]string{"nvidia.com/gpu": ids}})
	e := n.Start(t, machine.Options{Flags: append([]string{"--compat=dcgm-4.9", "--compat.set=kubernetes-virtual-gpus=true"}, quick...)})

	await(t, http.DefaultClient, e.Base(), "", `pod="odd"`)
	shows(t, e, func(t *testing.T, allocated map[[3]string]bool) {
		for _, name := range hostile {
			if name = gpu.Printable(name); !allocated[[3]string{name, name, name}] {
				t.Errorf("%q is not there", name)
			}
		}
	})
	// Under the names of another exporter, too, a name is a value.
	_, other := ask(t, http.DefaultClient, e.Base()+"/metrics/dcgm")
	isPrintable(t, "the dcgm page", other)
	families, err := testkit.Families(other)
	listed := map[string]bool{}
	for name, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "pod" {
					listed[l.GetValue()] = true
				}
			}
		}
		if !strings.HasPrefix(name, "DCGM_") {
			t.Errorf("a family %q was forged", name)
		}
	}
	if err != nil {
		t.Error(err)
	}
	for _, name := range hostile {
		if !listed[gpu.Printable(name)] {
			t.Errorf("%q is not there under other names", name)
		}
	}
	if _, page := ask(t, http.DefaultClient, e.Base()+"/"); !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error("the page does not show the names at all")
	}
	e.Stop()
	isPrintable(t, "the log", e.Said())
	// A log record is one line, whatever a name contains.
	for line := range strings.Lines(e.Said()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("a name broke a line of the log: %q", line)
		}
	}
}

// What a process controls: its command, and the name of its cgroup, on a node without Kubernetes.
func TestHostileProcesses(t *testing.T) {
	t.Parallel()
	n := machine.Parse(t, twoGPUs+"process gpu=1 pid=4242 memory=1GiB busy=50% period=1s\nprocess gpu=1 pid=4243 memory=1GiB busy=20% "+
		"period=1s\nprocess gpu=0 pid=4244 memory=1GiB busy=20% period=1s\n", twoPods)
	for pid, cgroup := range map[string]string{
		"4242": "/system.slice/evil\"}<script>é\\x5cn.service",
		"4243": "/kubepods.slice/kubepods-pod<script>\".slice/cri-containerd-" + strings.Repeat("z", 64) + ".scope",
		"4244": "/system.slice/docker-<script>.scope/../../../../etc/passwd",
	} {
		write(t, filepath.Join(n.Trees.Procfs, pid, "comm"), "\"}<script>\n")
		write(t, filepath.Join(n.Trees.Procfs, pid, "cgroup"), "0::"+cgroup+"\n")
	}
	e := n.Start(t, machine.Options{Flags: append([]string{"--no-kubelet"}, quick...)})
	await(t, http.DefaultClient, e.Base(), "", `gpu_container_busy_seconds_total{`)
	shows(t, e, func(*testing.T, map[[3]string]bool) {})
	_, body := ask(t, http.DefaultClient, e.Base()+"/metrics")
	if !strings.Contains(body, `pod="systemd/evil\"}<script>é`) {
		t.Error("the service is not called by its name")
	}
	if strings.Contains(body, "etc/passwd") {
		t.Error("a cgroup's path became a name")
	}
}

// isPrintable reports control characters of a text of lines.
func isPrintable(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("%s contains %q", what, text[max(0, i-40):min(len(text), i+40)])
	}
}

// shows has every format and the page looked at: none is broken, and the GPUs are those that there are.
func shows(t *testing.T, e *machine.Exporter, look func(t *testing.T, allocated map[[3]string]bool)) {
	t.Helper()
	for format, accept := range formats {
		t.Run(format, func(t *testing.T) {
			page, err := testkit.Client{}.Get(t.Context(), e.Base()+"/metrics", "Accept", accept)
			must.OK(t, err)
			if format != "protobuf" {
				isPrintable(t, format, page.Text)
			}
			got, devs, err := names(page)
			must.OK(t, err)
			look(t, got)
			slices.Sort(devs)
			if !slices.Equal(devs, []string{GPUA, GPUB}) {
				t.Errorf("there are the GPUs %q", devs)
			}
		})
	}

	_, page := ask(t, http.DefaultClient, e.Base()+"/")
	isPrintable(t, "the page", page)
	for _, markup := range []string{"<script", "<img", "onmouseover='", `onerror=alert(1)>`, `href="javascript:`} {
		if strings.Contains(page, markup) {
			t.Errorf("the page contains %q", markup)
		}
	}
}

// names returns namespace, pod and container of allocations, and the GPUs that are up.
func names(page testkit.Page) (allocated map[[3]string]bool, devs []string, err error) {
	allocated = map[[3]string]bool{}
	parser, err := textparse.New([]byte(page.Text), page.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, nil, err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return allocated, devs, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		parser.Labels(&l)
		switch l.Get(model.MetricNameLabel) {
		case "gpu_container_allocation_ratio":
			allocated[[3]string{l.Get("namespace"), l.Get("pod"), l.Get("container")}] = true
		case "gpu_device_up":
			devs = append(devs, l.Get("uuid"))
		}
	}
}
