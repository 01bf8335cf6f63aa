package slurm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The cases of testdata/sharing/slurm.txt, beside the allocations of pods that they have.
func TestSharedGPUsOfJobs(t *testing.T) {
	text, err := os.ReadFile("../../testdata/sharing/slurm.txt")
	must.OK(t, err)
	uuids := map[string]gpu.UUID{"A": GPUA, "B": GPUB, "C": GPUC, "D": GPUD}
	cases := strings.Split(string(text), "\ncase ")[1:]
	if len(cases) < 7 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, lines := range cases {
		f, pods, want := newJobDir(t), gpu.Allocations{Known: true, Configured: true}, []string{}
		name, lines, _ := strings.Cut(lines, "\n")
		for line := range strings.Lines(lines) {
			switch words := strings.Fields(line); {
			case len(words) < 3:
			case words[0] == "jobs":
				f.write(words[1], strings.Join(words[2:], "\n")+"\n")
			case words[0] == "want" && words[1] == "jobs":
				want = append(want, strings.Join(words[2:], " "))
			case words[0] == "want" && words[1] == "socket" && words[2] != "none":
				pod := strings.Split(words[2], "/")
				pods.List = append(pods.List, gpu.Allocation{Container: gpu.Container{Namespace: pod[0], Pod: pod[1], Name: pod[2]},
					Resource: words[3], GPU: uuids[words[4]], Share: gpu.Some(gpu.Ratio(1)), Source: words[6]})
			}
		}
		f.poll()
		a, got := f.jobs.Merge(pods, node()), []string{}
		short := strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7")
		for _, x := range a.List {
			words := []string{x.Container.Namespace + "/" + x.Container.Pod + "/" + x.Container.Name, x.Resource, string(x.GPU)}
			if x.Instance != "" {
				words = append(words, string(x.Instance))
			}
			words = append(words, fmt.Sprintf("%.3g", float64(x.Share.Or(-1))))
			if x.Shared {
				words = append(words, "shared")
			}
			got = append(got, short.Replace(strings.Join(append(words, x.Source), " ")))
		}
		for _, u := range a.Unresolved {
			got = append(got, fmt.Sprintf("/%s/ %s unresolved %d", u.Container.Pod, u.Resource, u.Devices))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}
