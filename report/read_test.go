package report

import "testing"

func TestPoolOf(t *testing.T) {
	for node, want := range map[string]string{
		"h100-0007": "h100", "main-h100-mig-0000": "main-h100-mig", "gke-prod-gpu-pool-1a2b3c4d-x7k2": "gke-prod-gpu-pool", "gpu17": "gpu", "gpu-node-a": "gpu-node-a",
		"dgx01.cluster.local": "dgx", "ip-10-0-0-7.ec2.internal": "", "10-0-0-7": "", "aks-gpupool-12345678-vmss000001": "aks-gpupool-12345678-vmss", "n": "n", "7": "",
	} {
		if got := poolOf(node); got != want {
			t.Errorf("%s is of the pool %q, want %q", node, got, want)
		}
	}
}

func TestGuessOwner(t *testing.T) {
	for pod, want := range map[string]owner{
		"chat-7c9d8b6f5d-x2x7p": {"Deployment", "chat", ownerGuessed},
		"notebook-0":            {"StatefulSet", "notebook", ownerGuessed},
		"train-abc12":           {"Pod", "train-abc12", ownerPod},
		"train-x7k2p":           {"Job", "train", ownerGuessed},
		"llama-train":           {"Pod", "llama-train", ownerPod},
		"slurm/4711":            {"slurm", "4711", ownerRecorded},
		"":                      {"Pod", "", ownerPod},
	} {
		if got := guessOwner(pod); got != want {
			t.Errorf("%q is of %+v, want %+v", pod, got, want)
		}
	}
}
