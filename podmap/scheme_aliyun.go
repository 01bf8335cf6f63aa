package podmap

// aliyun is Alibaba Cloud's gpushare: GPU-<uuid>-_-<n>, one id per GiB or MiB of memory. The kubelet picks
// ids at random, the scheduler extender picks the card.
var aliyun = scheme{
	name:    "aliyun gpushare",
	verdict: lying,
	owns:    named("aliyun.com/gpu-mem", "aliyun.com/gpu"),
	truth: "the kubelet's device checkpoint, or the pod annotations ALIYUN_COM_GPU_MEM_IDX and " +
		"scheduler.framework.gpushare.allocation",
}
