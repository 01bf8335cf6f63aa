package kube

import (
	"strings"
	"testing"
)

func TestPoolOf(t *testing.T) {
	for node, want := range map[string]string{
		"h100-0007": "h100", "main-h100-mig-0000": "main-h100-mig", "gke-prod-gpu-pool-1a2b3c4d-x7k2": "gke-prod-gpu-pool", "gpu17": "gpu",
		"gpu-node-a":          "gpu-node-a",
		"dgx01.cluster.local": "dgx", "ip-10-0-0-7.ec2.internal": "", "10-0-0-7": "",
		"aks-gpupool-12345678-vmss000001": "aks-gpupool-12345678-vmss", "n": "n", "7": "",
	} {
		if got := PoolOf(node); got != want {
			t.Errorf("%s is of the pool %q, want %q", node, got, want)
		}
	}
}

func TestGuessOwner(t *testing.T) {
	for pod, want := range map[string]Owner{
		"chat-7c9d8b6f5d-x2x7p": {"Deployment", "chat", Guessed},
		"notebook-0":            {"StatefulSet", "notebook", Guessed},
		"train-abc12":           {"Pod", "train-abc12", Itself},
		"train-x7k2p":           {"Job", "train", Guessed},
		"llama-train":           {"Pod", "llama-train", Itself},
		"slurm/4711":            {"slurm", "4711", Recorded},
		"":                      {"Pod", "", Itself},
	} {
		if got := GuessOwner(pod); got != want {
			t.Errorf("%q is of %+v, want %+v", pod, got, want)
		}
	}
}

// FuzzOwner: whose a pod is guessed to be is a part of its name, and no two pods of one controller get two owners.
func FuzzOwner(f *testing.F) {
	for _, s := range []string{"web-7d9c5b8f6d-x2x4z", "train-0", "job-bcdfg", "docker/n", "a", "", "-0", "x-12345"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pod string) {
		o := GuessOwner(pod)
		if !strings.Contains(pod, o.Name) || o.Kind == "" && !strings.HasPrefix(pod, "/") {
			t.Errorf("%q is of %+v", pod, o)
		}
		if o.From == Itself && (o.Name != pod || o.Kind != "Pod") {
			t.Errorf("%q stands for itself as %+v", pod, o)
		}
		if o.From == Guessed && o.Kind == "StatefulSet" {
			if other := GuessOwner(o.Name + "-7"); other != o {
				t.Errorf("%q is of %+v, and its sibling of %+v", pod, o, other)
			}
		}
	})
}
