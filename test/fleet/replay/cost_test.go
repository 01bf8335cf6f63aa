package replay_test

import (
	"cmp"
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

var costNodes = flag.Int("cost.nodes", 0, "measure the cost of the rules with this many nodes of eight GPUs")

// Prints what the rules cost: go test ./fleet/replay -run TestCost -cost.nodes=200 -v.
func TestCost(t *testing.T) {
	if *costNodes == 0 {
		t.Skip("measured by hand: -cost.nodes=200")
	}
	f, err := fleet.New(fleet.Big(1, *costNodes, 8))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s, sampler := replay.New(t, alerts.Default()), expose.NewSampler(f, nil)
	at := fleet.DefaultEpoch().Add(15 * time.Hour)
	end := at.Add(16 * time.Minute)
	least := map[string]time.Duration{} // other programs share the processor
	for ; !at.After(end); at = at.Add(time.Minute) {
		if err := s.Fleet(ctx, f, sampler, at); err != nil {
			t.Fatal(err)
		}
		s.Eval(ctx, at)
		for _, g := range s.Groups {
			for _, r := range g.Rules() {
				name := g.Name() + " " + r.Name()
				if took := r.GetEvaluationDuration(); end.Sub(at) < 8*time.Minute && (least[name] == 0 || took < least[name]) {
					least[name] = took
				}
				if r.LastError() != nil {
					t.Fatalf("%s: %v", name, r.LastError())
				}
			}
		}
	}
	type cost struct {
		name string
		took time.Duration
	}
	var list, groups []cost
	var total time.Duration
	for _, g := range s.Groups {
		sum := cost{name: g.Name()}
		for _, r := range g.Rules() {
			name := g.Name() + " " + r.Name()
			list = append(list, cost{name, least[name]})
			sum.took += least[name]
		}
		groups = append(groups, sum)
		total += sum.took
	}
	slow := func(a, b cost) int { return cmp.Compare(b.took, a.took) }
	slices.SortFunc(list, slow)
	slices.SortFunc(groups, slow)
	per := 16000 / float64(*costNodes*8)
	t.Logf("%d nodes: %v, for 16,000 GPUs %.1f s", *costNodes, total, total.Seconds()*per)
	for _, c := range append(groups, list[:min(35, len(list))]...) {
		t.Logf("%8.3f s at 16,000 GPUs  %s", c.took.Seconds()*per, c.name)
	}
}
