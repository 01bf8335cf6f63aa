package deploy_test

import (
	"slices"
	"strings"
	"testing"
)

// constraints are what a SecurityContextConstraints allows.
type constraints struct {
	APIVersion, Kind string
	Metadata         any
	Groups, Users    []string
	Volumes          []string
	SeccompProfiles  []string
	Priority         *int32

	AllowHostDirVolumePlugin, AllowHostIPC, AllowHostNetwork, AllowHostPID, AllowHostPorts bool
	AllowPrivilegeEscalation, AllowPrivilegedContainer, ReadOnlyRootFilesystem             bool
	AllowedCapabilities, DefaultAddCapabilities, RequiredDropCapabilities                  []string
	RunAsUser, FSGroup, SupplementalGroups, SELinuxContext                                 struct{ Type string }
}

// The SecurityContextConstraints allow exactly what the pod needs, to its service account only.
func TestOpenShift(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"features.ownership=true", "features.ownership=false", "features.processes=true",
		"features.kernelLog=true", "gpu.access=hostDriver",
		"features.migMonitor=true", "features.processes=true,features.containerVisible=true", "seLinuxOptions.type=spc_t"} {
		in := install(t, "--set", "openshift.scc=true,"+set)
		var c constraints
		in.find(t, "SecurityContextConstraints").into(t, &c)
		has := rights(t, in)
		needs := func(right string) bool {
			return slices.ContainsFunc(has, func(r string) bool { return strings.HasPrefix(r, right) })
		}
		for what, pair := range map[string][2]bool{
			"host paths":                {c.AllowHostDirVolumePlugin, needs("host /")},
			"volumes of host paths":     {slices.Contains(c.Volumes, "hostPath"), needs("host /")},
			"host PIDs":                 {c.AllowHostPID, needs("hostPID")},
			"a privileged container":    {c.AllowPrivilegedContainer, needs("privileged")},
			"an escalation":             {c.AllowPrivilegeEscalation, needs("privileged")},
			"user 0":                    {c.RunAsUser.Type == "RunAsAny", needs("user 0")},
			"capabilities":              {len(c.AllowedCapabilities) > 0, needs("capability")},
			"an SELinux type":           {c.SELinuxContext.Type == "RunAsAny", needs("selinux")},
			"capabilities not dropped":  {!slices.Equal(c.RequiredDropCapabilities, []string{"ALL"}), needs("privileged")},
			"the network or IPC, ports": {c.AllowHostNetwork || c.AllowHostIPC || c.AllowHostPorts, false},
			"a writable root":           {!c.ReadOnlyRootFilesystem, false},
			"a place before others":     {c.Priority == nil || *c.Priority != 0, false},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s: allowed %v, needed %v", set, what, pair[0], pair[1])
			}
		}
		for _, a := range c.AllowedCapabilities {
			if !needs("capability " + a) {
				t.Errorf("%s: allows %s", set, a)
			}
		}
		if !slices.Equal(c.Users, []string{"system:serviceaccount:monitoring:" + in.pod.ServiceAccountName}) || len(c.Groups) != 0 ||
			!slices.Equal(c.SeccompProfiles, []string{"runtime/default"}) {
			t.Errorf("%s: for %v %v, with seccomp %v", set, c.Users, c.Groups, c.SeccompProfiles)
		}
	}
}
