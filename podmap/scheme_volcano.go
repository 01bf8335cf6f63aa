package podmap

// volcanoGPUShare is Volcano's first GPU sharing: <index>-<n>, chosen by the kubelet, while the scheduler
// chose the card. Memory and whole cards are two ways to ask, so both stand alone.
var volcanoGPUShare = scheme{
	name:    "volcano gpushare",
	verdict: lying,
	owns:    named("volcano.sh/gpu-memory", "volcano.sh/gpu-number"),
	truth:   "the kubelet's device checkpoint, or the pod annotation volcano.sh/gpu-index",
}
