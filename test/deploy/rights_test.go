package deploy_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// rights lists everything that a render needs from a cluster and its nodes, one line each.
func rights(t *testing.T, in installed) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	pod, c := in.pod, in.container
	for name, is := range map[string]bool{"hostPID": pod.HostPID, "hostNetwork": pod.HostNetwork, "hostIPC": pod.HostIPC,
		"shareProcessNamespace": pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace} {
		if is {
			add("%s", name)
		}
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		add("token")
	}
	if p := pod.SecurityContext; p == nil || p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		add("no seccomp")
	} else {
		if p.RunAsUser == nil || p.RunAsNonRoot == nil || *p.RunAsNonRoot == (*p.RunAsUser == 0) {
			t.Errorf("runAsUser and runAsNonRoot contradict: %+v", p)
		} else {
			add("user %d", *p.RunAsUser)
		}
		if p.AppArmorProfile != nil {
			add("apparmor %s", p.AppArmorProfile.Type)
		}
	}
	s := c.SecurityContext
	if s == nil {
		t.Fatal("the container has no security context")
	}
	if s.RunAsUser != nil || s.RunAsNonRoot != nil || s.SeccompProfile != nil || s.ProcMount != nil {
		t.Error("the container overrides the pod's user, /proc or seccomp")
	}
	if s.Privileged != nil && *s.Privileged {
		add("privileged")
		if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
			t.Error("a privileged container with allowPrivilegeEscalation=false, which an API server refuses")
		}
	} else {
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
			add("privilege escalation")
		}
		if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			add("default capabilities")
		} else {
			for _, a := range s.Capabilities.Add {
				add("capability %s", a)
			}
		}
	}
	if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		add("writable root")
	}
	if s.SELinuxOptions != nil {
		add("selinux %s", s.SELinuxOptions.Type)
	}
	if s.AppArmorProfile != nil {
		add("apparmor %s", s.AppArmorProfile.Type)
	}
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	if len(c.VolumeMounts) != len(volumes) || len(c.VolumeDevices) != 0 {
		t.Errorf("%d mounts of %d volumes, %d devices", len(c.VolumeMounts), len(volumes), len(c.VolumeDevices))
	}
	for _, m := range c.VolumeMounts {
		v, ok := volumes[m.Name]
		switch mode := map[bool]string{true: "read-only", false: "WRITABLE"}[m.ReadOnly]; {
		case !ok:
			t.Errorf("%s is mounted and no volume", m.Name)
		case m.SubPath != "" || m.SubPathExpr != "" || m.MountPropagation != nil:
			t.Errorf("%s is mounted by a sub-path or with propagation", m.Name)
		case v.HostPath != nil && v.HostPath.Path != m.MountPath:
			add("host %s at %s, %s", v.HostPath.Path, m.MountPath, mode)
		case v.HostPath != nil:
			add("host %s, %s", v.HostPath.Path, mode)
		case v.Secret != nil:
			add("secret %s, %s", v.Secret.SecretName, mode)
		default:
			t.Errorf("volume %s is of an unexpected kind", m.Name)
		}
	}
	for _, claim := range c.Resources.Claims {
		add("claim %s", claim.Name)
	}
	if len(c.Resources.Claims) != len(pod.ResourceClaims) {
		t.Errorf("%d of %d claims are the container's", len(c.Resources.Claims), len(pod.ResourceClaims))
	}
	for r := range c.Resources.Limits {
		if strings.Contains(string(r), "nvidia") {
			t.Errorf("requests %s: no GPU must be allocated to the exporter", r)
		}
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			add("host port %d", p.HostPort)
		}
	}
	for _, o := range in.all {
		switch o.Kind {
		case "ServiceAccount":
			var a corev1.ServiceAccount
			o.into(t, &a)
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				t.Error("the service account gives its token to every pod that names it")
			}
		case "ResourceClaimTemplate":
			var r resourcev1.ResourceClaimTemplate
			o.into(t, &r)
			for _, request := range r.Spec.Spec.Devices.Requests {
				// Without administrator access the claim would allocate the GPUs.
				if e := request.Exactly; e == nil || e.AdminAccess == nil || !*e.AdminAccess {
					t.Errorf("the claim allocates: %+v", request)
				} else {
					add("administrator access to %s of %s", e.AllocationMode, e.DeviceClassName)
				}
			}
		case "ClusterRole", "Role":
			var r rbacv1.ClusterRole
			o.into(t, &r)
			for _, rule := range r.Rules {
				add("may %v %v of %q", rule.Verbs, rule.Resources, rule.APIGroups)
			}
		case "ClusterRoleBinding":
			var b rbacv1.ClusterRoleBinding
			o.into(t, &b)
			if len(b.Subjects) != 1 || b.Subjects[0].Kind != "ServiceAccount" || b.Subjects[0].Name != pod.ServiceAccountName ||
				b.Subjects[0].Namespace != "monitoring" {
				t.Errorf("the role is bound to %+v", b.Subjects)
			}
		}
	}
	slices.Sort(out)
	return out
}

// minimal are the permissions of the chart with default values.
var minimal = []string{"host /var/lib/kubelet/pod-resources, read-only", "user 0"}

// Each option needs exactly its own permissions.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set         string
		more, fewer []string
	}{
		{},
		{set: "features.ownership=false", more: []string{"user 65534"}, fewer: minimal},
		{set: "features.processes=true", more: []string{"hostPID", "host /var/log/pods, read-only", "host /var/log/containers, read-only"}},
		{set: "features.processes=true,features.processNames=false", more: []string{"hostPID"}},
		{set: "features.processes=true,features.ownership=false", more: []string{"hostPID", "user 65534"}, fewer: minimal},
		{set: "features.containerMemory=true", more: []string{"host /sys/fs/cgroup at /host/sys/fs/cgroup, read-only",
			"host /var/log/pods, read-only", "host /var/log/containers, read-only"}},
		{set: "features.deviceCheckpoint=true", more: []string{"host /var/lib/kubelet/device-plugins, read-only"}},
		{set: "features.draCheckpoint=true", more: []string{"host /var/lib/kubelet/plugins/gpu.nvidia.com, read-only"}},
		{set: "features.gpuFractioning=true", more: []string{"host /var/run/gpu-fractioning/map, read-only",
			"host /var/log/pods, read-only", "host /var/log/containers, read-only"}},
		{set: "features.podMetadata=true", more: []string{"token", `may [list watch] [pods] of [""]`}},
		{set: "features.podMetadata=true,features.podLabels={team}", more: []string{"token", `may [list watch] [pods] of [""]`}},
		{set: "features.resourceSlices=true", more: []string{"token", `may [list] [resourceslices] of ["resource.k8s.io"]`}},
		{set: "features.draCheckpoint=true,kubelet.draDriver=d.example.com",
			more: []string{"host /var/lib/kubelet/plugins/d.example.com, read-only"}},
		{set: "features.kernelLog=true", more: []string{"privileged", "host /dev/kmsg, read-only"}},
		{set: "features.kernelLog=true,features.ownership=false", more: []string{"privileged", "host /dev/kmsg, read-only"},
			fewer: minimal[:1]},
		{set: "features.migMonitor=true", more: []string{"capability SYS_ADMIN"}},
		{set: "features.migMonitor=true,features.kernelLog=true", more: []string{"privileged", "host /dev/kmsg, read-only"}},
		{set: "features.migMonitor=true,features.ownership=false", more: []string{"capability SYS_ADMIN"}, fewer: minimal[:1]},
		{set: "features.processes=true,features.processNames=false,features.containerVisible=true",
			more: []string{"hostPID", "capability SYS_PTRACE", "apparmor Unconfined"}},
		{set: "features.slurmJobMapping=/run/slurm/gpus", more: []string{"host /run/slurm/gpus, read-only"}},
		{set: "features.slurmJobMapping=/run/slurm/gpus,features.ownership=false",
			more: []string{"user 65534", "host /run/slurm/gpus, read-only"}, fewer: minimal},
		{set: "gpu.access=cdi"},
		{set: "gpu.access=claim,features.draCheckpoint=true", more: []string{"host /var/lib/kubelet/plugins/gpu.nvidia.com, read-only",
			"claim gpus", "administrator access to All of gpu.nvidia.com"}},
		{set: "gpu.access=none"},
		{set: "gpu.access=hostDriver", more: []string{"privileged", "host /home/kubernetes/bin/nvidia at /usr/local/nvidia, read-only"}},
		{set: "kubelet.root=/data/kubelet/", more: []string{"host /data/kubelet/pod-resources at /var/lib/kubelet/pod-resources, " +
			"read-only"}, fewer: minimal[:1]},
		{set: "web.tls.secretName=crt", more: []string{"secret crt, read-only", "secret gpu-exporter-web, read-only"}},
		{set: "web.configSecret=mine", more: []string{"secret mine, read-only"}},
		{set: "seLinuxOptions.type=spc_t", more: []string{"selinux spc_t"}},
		{set: "monitoring.kind=ServiceMonitor"},
		{set: "monitoring.kind=PodMonitor,rules.kind=PrometheusRule,dashboards.kind=GrafanaDashboard"},
		{set: "dashboards.kind=ConfigMap"},
		{set: "networkPolicy.enabled=true"},
		{set: "scheduling.priorityClassQuota=true"},
		{set: "service.enabled=true"},
		{set: "compat.release=dcgm-4.9"},
	} {
		t.Run(c.set, func(t *testing.T) {
			want := slices.DeleteFunc(append(slices.Clone(minimal), c.more...), func(r string) bool { return slices.Contains(c.fewer, r) })
			slices.Sort(want)
			var args []string
			if c.set != "" {
				args = []string{"--set", c.set}
			}
			if got := rights(t, install(t, args...)); !slices.Equal(got, want) {
				t.Errorf("needs\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// Socket and checkpoint are recreated under a running exporter: their directories are mounted, not they.
func TestMountsDirectories(t *testing.T) {
	in := install(t, "-f", cases(t)["everything"])
	for _, v := range in.pod.Volumes {
		if v.HostPath == nil {
			continue
		}
		if v.HostPath.Type == nil || !strings.HasPrefix(string(*v.HostPath.Type), "Directory") {
			t.Errorf("%s is mounted from %s, whose type is not a directory", v.Name, v.HostPath.Path)
		}
	}
}

// The chart renders for the oldest supported cluster, for example with AppArmor as an annotation.
func TestOldestCluster(t *testing.T) {
	t.Parallel()
	var c struct{ KubeVersion string }
	must.OK(t, yaml.Unmarshal([]byte(must.Read(t, chart(t)+"/Chart.yaml")), &c))
	oldest := strings.TrimSuffix(strings.TrimPrefix(c.KubeVersion, ">="), "-0")
	for name, values := range cases(t) {
		out, err := helm(t, "template", chart(t), "-f", values, "--kube-version", oldest, "--set", "dashboards.kind=none")
		if err != nil {
			t.Errorf("%s does not render for %s: %s", name, oldest, out)
		}
		const annotation = "container.apparmor.security.beta.kubernetes.io/gpu-exporter: unconfined"
		if strings.Contains(out, "appArmorProfile") || strings.Contains(out, annotation) != (name == "everything") {
			t.Errorf("%s: AppArmor is not configured as %s expects", name, oldest)
		}
	}
	out, err := helm(t, "template", chart(t), "--kube-version", "1.22.0")
	if err == nil || !strings.Contains(out, "chart requires kubeVersion: >=1.23.0-0 which is incompatible with Kubernetes v1.22.0") {
		t.Errorf("for a cluster that is too old: %q", out)
	}
}

// The exporter is scheduled on every node with GPUs, also under pressure, and stops quickly.
func TestScheduling(t *testing.T) {
	in := install(t)
	if in.pod.PriorityClassName != "system-node-critical" || in.pod.TerminationGracePeriodSeconds == nil ||
		*in.pod.TerminationGracePeriodSeconds > 10 {
		t.Errorf("priority class %q", in.pod.PriorityClassName)
	}
	if got := in.daemonset.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); got != "10%" {
		t.Errorf("%s of the nodes are updated at once", got)
	}
	terms := in.pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, c := range []struct {
		labels map[string]string
		runs   bool
	}{
		{map[string]string{}, false},
		{map[string]string{"nvidia.com/gpu.present": "true"}, true},
		{map[string]string{"nvidia.com/gpu.present": "false"}, false},
		{map[string]string{"feature.node.kubernetes.io/pci-10de.present": "true"}, true},
		{map[string]string{"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, true},
		{map[string]string{"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, true},
		{map[string]string{"kubernetes.azure.com/accelerator": "nvidia"}, true},
		{map[string]string{"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}, true},
		{map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true"}, true},
		{map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "false"}, true},
		{map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change"}, false},
		{map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, false},
	} {
		if got := slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool { return matches(term, c.labels) }); got != c.runs {
			t.Errorf("a node with %v: the exporter runs: %v", c.labels, got)
		}
	}
	paused := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change"}
	terms = install(t, "--set",
		"scheduling.followPause=false").pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool { return matches(term, paused) }) {
		t.Error("leaves a paused node with followPause=false")
	}
	if got := install(t, "--set", "scheduling.tolerateAll=true").pod.Tolerations; !reflect.DeepEqual(got,
		[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}) {
		t.Errorf("tolerates %v", got)
	}
}

// matches is the scheduler's rule for one term: all of its expressions.
func matches(term corev1.NodeSelectorTerm, labels map[string]string) bool {
	if len(term.MatchExpressions) == 0 {
		return false
	}
	for _, e := range term.MatchExpressions {
		value, there := labels[e.Key]
		ok := there
		switch e.Operator {
		case corev1.NodeSelectorOpIn:
			ok = there && slices.Contains(e.Values, value)
		case corev1.NodeSelectorOpNotIn:
			ok = !there || !slices.Contains(e.Values, value)
		case corev1.NodeSelectorOpDoesNotExist:
			ok = !there
		}
		if !ok {
			return false
		}
	}
	return true
}

// A node without a driver must not block a rollout, and a hung driver must not restart the exporter.
func TestProbes(t *testing.T) {
	for set, tcp := range map[string]bool{"web.port=10835": false, "web.tls.secretName=crt": false, "web.configSecret=mine": true} {
		c := install(t, "--set", set).container
		for name, p := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			switch {
			case p == nil:
				t.Errorf("%s: no %s probe", set, name)
			case tcp && p.TCPSocket == nil, !tcp && (p.HTTPGet == nil || p.HTTPGet.Path != "/-/healthy"):
				t.Errorf("%s: the %s probe is %+v", set, name, p.ProbeHandler)
			case !tcp && (p.HTTPGet.Scheme == corev1.URISchemeHTTPS) != strings.Contains(set, "tls"):
				t.Errorf("%s: the %s probe uses %s", set, name, p.HTTPGet.Scheme)
			}
		}
		if c.StartupProbe != nil {
			t.Errorf("%s: there is a startup probe", set)
		}
	}
}

// GOMEMLIMIT follows the memory limit.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"256Mi": "214748364", "1Gi": "858993459", "100M": "80000000", "0.5Gi": "429496729",
		"1000000000": "800000000"} {
		e, ok := install(t, "--set", "resources.limits.memory="+limit).env("GOMEMLIMIT")
		if !ok || e.Value != want {
			t.Errorf("of %s GOMEMLIMIT is %q, want %s", limit, e.Value, want)
		}
	}
	if e, ok := install(t, "--set", "resources.limits.memory=null").env("GOMEMLIMIT"); ok {
		t.Errorf("without a limit GOMEMLIMIT is %q", e.Value)
	}
}

// The GPUs that are visible in the container.
func TestDriverAccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, class, visible, mig, annotation string }{
		{"gpu.access=runtimeClass", "nvidia", "all", "", ""},
		{"features.migMonitor=true", "nvidia", "all", "all", ""},
		{"gpu.runtimeClassName=nvidia-legacy", "nvidia-legacy", "all", "", ""},
		{"gpu.access=cdi", "", "void", "", "nvidia.com/gpu=all"},
		{"gpu.access=claim,features.draCheckpoint=true", "", "void", "", ""},
		{"gpu.access=hostDriver", "", "void", "", ""},
		{"gpu.access=none", "", "", "", ""},
	} {
		in := install(t, "--set", c.set)
		class := ""
		if in.pod.RuntimeClassName != nil {
			class = *in.pod.RuntimeClassName
		}
		visible, _ := in.env("NVIDIA_VISIBLE_DEVICES")
		mig, _ := in.env("NVIDIA_MIG_MONITOR_DEVICES")
		annotation := in.daemonset.Spec.Template.Annotations["cdi.k8s.io/gpu-exporter"]
		if class != c.class || visible.Value != c.visible || mig.Value != c.mig || annotation != c.annotation {
			t.Errorf("%s: class %q, visible %q, mig %q, annotation %q", c.set, class, visible.Value, mig.Value, annotation)
		}
		if node, ok := in.env("NODE_NAME"); !ok || node.ValueFrom == nil || node.ValueFrom.FieldRef == nil ||
			node.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
			t.Errorf("%s: NODE_NAME is %+v", c.set, node)
		}
	}
}
