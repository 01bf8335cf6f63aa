package podmap

// tkestack is the gpu-manager of Tencent's TKEStack (GaiaGPU): tencent.com/vcuda-core-<n>, a hundred per
// card, which name no card at all.
var tkestack = scheme{
	name:    "tkestack gpu-manager",
	verdict: lying,
	owns:    named("tencent.com/vcuda-core"),
	truth:   "the kubelet's device checkpoint, or the pod annotations tencent.com/predicate-gpu-idx-<i>",
}
