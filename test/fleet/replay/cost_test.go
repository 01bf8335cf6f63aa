package replay_test

import (
	"cmp"
	"context"
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

var costNodes = flag.Int("cost.nodes", 0, "measure the cost of the rules with this many nodes of eight GPUs")

// A cost is that of a group or of a rule, at one evaluation.
type cost struct {
	name string
	replay.Cost
	every time.Duration
}

// Prints what the rules cost, in processor time and in samples, of which other programs on the machine change little and
// nothing: go test ./fleet/replay -run TestCost -cost.nodes=200 -v.
func TestCost(t *testing.T) {
	if *costNodes == 0 {
		t.Skip("measured by hand: -cost.nodes=200")
	}
	f, err := fleet.New(fleet.Big(1, *costNodes, 8))
	must.OK(t, err)
	ctx := context.Background()
	s, sampler := replay.New(t, alerts.Default()), expose.NewSampler(f, nil)
	at := fleet.DefaultEpoch().Add(14 * time.Hour)
	end := at.Add(34 * time.Minute)
	least := map[string]cost{} // other programs share caches and memory
	keep := func(name string, c replay.Cost, every time.Duration) {
		if old, is := least[name]; !is || c.CPU < old.CPU {
			least[name] = cost{name, c, every}
		}
	}
	for ; !at.After(end); at = at.Add(time.Minute) {
		must.OK(t, s.Fleet(ctx, f, sampler, at))
		runtime.GC() // the garbage of the scrapes
		for _, g := range s.Groups {
			if at.UnixMilli()%g.Interval().Milliseconds() != 0 {
				continue
			}
			begin, total := replay.CPU(), replay.Cost{}
			g.Eval(ctx, at)
			total.CPU = replay.CPU() - begin
			for _, r := range g.Rules() {
				if r.LastError() != nil {
					t.Fatalf("%s: %v", r.Name(), r.LastError())
				}
				c := s.Costs[r.Query().String()]
				total.Samples += c.Samples
				if end.Sub(at) < 10*time.Minute {
					keep(g.Name()+" "+r.Name()+" "+r.Query().String()[:min(60, len(r.Query().String()))], c, g.Interval())
				}
			}
			if end.Sub(at) < 10*time.Minute {
				keep(g.Name(), total, g.Interval())
			}
		}
	}
	groups, byRule := map[string]bool{}, []cost{}
	for _, g := range s.Groups {
		groups[g.Name()] = true
	}
	var byGroup []cost
	var minute cost
	for name, c := range least {
		if !groups[name] {
			byRule = append(byRule, c)
			continue
		}
		byGroup = append(byGroup, c)
		minute.CPU += time.Duration(float64(c.CPU) * float64(time.Minute) / float64(c.every))
		minute.Samples += c.Samples * int64(time.Minute) / int64(c.every)
	}
	slow := func(a, b cost) int { return cmp.Compare(b.CPU, a.CPU) }
	slices.SortFunc(byRule, slow)
	slices.SortFunc(byGroup, slow)
	per := 16000 / float64(*costNodes*8)
	t.Logf("%d nodes: %v of a core and %d samples a minute; at 16,000 GPUs %.1f s, %.1f million samples", *costNodes, minute.CPU,
		minute.Samples, minute.CPU.Seconds()*per, float64(minute.Samples)*per/1e6)
	for _, c := range append(byGroup, byRule[:min(45, len(byRule))]...) {
		t.Logf("%8.3f s, %8.0f thousand samples at 16,000 GPUs, every %s  %s", c.CPU.Seconds()*per, float64(c.Samples)*per/1e3,
			c.every, c.name)
	}
}
