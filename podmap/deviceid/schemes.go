package deviceid

// pluginSchemes are the schemes of device plugins. The order matters: a known name takes precedence over a form under
// any name, and an opaque reading over a direct reading of the same text.
var pluginSchemes = []*Scheme{
	&network,
	&sideQuantity,
	&vgpuManager,
	&hami,
	&nos,
	&nvidiaPlugin,
	&gke,
	&kubevirtPassthrough,
	&kubevirtVGPU,
	&pciUnderAnyName,
	&awsVGPU,
	&deepomatic,
	&aliyun,
	&tkestack,
	&volcanoGPUShare,
	&volcanoVGPU,
	&elasticGPU,
	&qgpu,
}

// driverSchemes are the drivers of dynamic resource allocation.
var driverSchemes = []*Scheme{&draGPU, &draHAMi, &draVGPUManager, &draOther}

// podSchemes are the schemes whose pods request nothing of the kubelet.
var podSchemes = []*Scheme{&kai, &nvFractions, &kubeShareOld, &kubeShare, &koordinator}

// DaemonSchemes are the names of those among them whose annotations count only where they are configured, or where the
// scheme's daemon runs.
func DaemonSchemes() (names []string) {
	for _, s := range podSchemes {
		if s.Daemon.Pod != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// NvFractions is the scheme of NVIDIA's GPU fractioning operator.
func NvFractions() *Scheme { return &nvFractions }

// configured parses the IDs of resources that are configured as direct: every form that names a GPU.
var configured = Scheme{
	Name:    "configured",
	class:   Direct,
	Matches: func(string) bool { return true },
	parse: func(_, id string) (Ref, bool) {
		if r, ok := ParseNVML(id); ok {
			return r, true
		}
		if r, ok := parseMinor(id); ok {
			return r, true
		}
		for _, sep := range []string{"::", "-_-", "-"} {
			if r, ok := parseReplica(id, sep); ok {
				return r, true
			}
		}
		return Ref{}, false
	},
}

// configuredWhole is the resources of which one device is one GPU: the GPUs are those that the container received, each as
// a whole.
var configuredWhole = Scheme{
	Name:      "configured, one GPU per device",
	class:     Opaque,
	Matches:   func(string) bool { return true },
	Hint:      "the kubelet's device checkpoint",
	allocated: func(req *Request) []Assignment { return req.wholeGPUs(req.Response.received()) },
}

// unlisted stands for the plugins that are not in the table, or write IDs that are not: its GPUs are those that the
// container received.
var unlisted = Scheme{
	Name:    "unlisted",
	class:   Opaque,
	Matches: func(string) bool { return false },
	Hint: "the kubelet's device checkpoint (with --kubelet.gpu-resource, if one device is one GPU); or, if the IDs of this " +
		"resource contain the UUID of the GPU, --kubelet.gpu-id-resource",
	allocated: func(req *Request) []Assignment {
		if gpus := req.hamiCore(); gpus != nil {
			return gpus
		}
		return assign(req.Response.received())
	},
}
