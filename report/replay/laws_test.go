package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// drawn has nodes of one to four GPUs in two classes, and pods of all kinds on them: whole GPUs, gangs, parts
// of GPUs, MIG devices, bound ones.
func drawn(r *rand.Rand) (nodes []Node, pods []Pod) {
	for i := range 1 + r.IntN(5) {
		nodes = append(nodes, Node{ID: fmt.Sprint("n", i), Class: fmt.Sprint(r.IntN(2)), GPUs: 1 + r.IntN(4), To: 60})
	}
	for i := range 1 + r.IntN(30) {
		n := nodes[r.IntN(len(nodes))]
		p := Pod{ID: fmt.Sprint("p", i), Class: n.Class, GPUs: 1 + r.IntN(2), From: r.IntN(50)}
		p.To = p.From + 1 + r.IntN(60-p.From)
		switch r.IntN(6) {
		case 0:
			p.Shape = []Shape{{Size: 1, Places: 7}, {Size: 2, Places: 3}, {Size: 4, Places: 2}}[r.IntN(3)]
		case 1, 2:
			use := r.Float64()
			p.Shape = Shape{Fraction: 1 / float64(2+r.IntN(3))}
			p.Demand, p.Memory = func(int) float64 { return use }, func(int) float64 { return use / 3 }
		case 3:
			p.Gang, p.From, p.To = "g", 10, 30
		case 4:
			p.Node = n.ID
		}
		pods = append(pods, p)
	}
	return nodes, pods
}

// What ends early is feasible exactly if the whole replay is: a pod that waits now may be placed before the next one starts.
func TestEndsEarlyOnlyIfInfeasible(t *testing.T) {
	for _, tt := range []struct {
		name     string
		pods     []Pod
		budget   float64
		feasible bool
	}{
		// b waits for one of 31 steps: when c starts, long after, it has been running for a time.
		{"a step", []Pod{whole("a", 1, 0, 10), whole("b", 1, 9, 20), whole("c", 1, 30, 40)}, 0.05, true},
		// It waits for one step; c and d later for nine.
		{"later ones wait", []Pod{whole("a", 1, 0, 10), whole("b", 1, 9, 20), whole("c", 1, 30, 40), whole("d", 1, 31, 45)}, 0.05, false},
	} {
		if got := Within(nodes(1), tt.pods, tt.budget); got.Feasible(tt.budget) != tt.feasible {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	feasible := 0
	for range 4000 {
		nodes, pods := drawn(r)
		all := Run(nodes, pods)
		for _, budget := range []float64{0, 0.01, 0.05, 0.2} {
			if got := Within(nodes, pods, budget); got.Feasible(budget) != all.Feasible(budget) || got.Feasible(budget) && got != all {
				t.Fatalf("within %v: %+v, in all %+v", budget, got, all)
			}
			if all.Feasible(budget) {
				feasible++
			}
		}
	}
	if feasible < 1000 {
		t.Errorf("%d of 16,000 are feasible", feasible)
	}
}

// At no time more is placed than there is, in a class and on the node that pods are bound to; a gang starts together or not at all; no pod
// starts before its time, and one that never starts waits for all of it. Each pod is its own owner, so that its start is known.
func TestNeverMoreThanThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	waited, gangs := 0, 0
	for range 2000 {
		nodes, pods := drawn(r)
		for i := range pods {
			pods[i].Owner = pods[i].ID
		}
		w := world{budget: -1}
		owners := w.run(nodes, pods)
		all := w.Result
		room := map[string]float64{} // of classes and nodes
		for _, n := range nodes {
			room["class "+n.Class] += float64(n.GPUs)
			room["node "+n.ID+n.Class] += float64(n.GPUs)
		}
		starts := make([]float64, len(pods))
		placed, gang := 0, map[string]map[float64]bool{}
		for i, p := range pods {
			x := owners[p.ID]
			starts[i] = float64(p.From) + x.Waited/p.Amount()
			if x.Placed+x.Unplaced != 1 || x.Unplaced == 1 && math.Abs(starts[i]-float64(p.To)) > 1e-9 ||
				x.Placed == 1 && starts[i] > float64(p.To)-1+1e-9 || x.Waited < 0 || (x.Waited > 0) != (x.Waiting == 1) {
				t.Fatalf("%+v: %+v", p, x)
			}
			placed += x.Placed
			if x.Waiting > 0 {
				waited++
			}
			if p.Gang != "" {
				if gang[p.Class] == nil {
					gang[p.Class] = map[float64]bool{}
				}
				gang[p.Class][math.Round(starts[i])] = true
			}
		}
		if placed != all.Placed || placed+all.Unplaced != len(pods) {
			t.Fatalf("%d of %d: %+v", placed, len(pods), all)
		}
		together := map[float64]bool{}
		for _, of := range gang {
			gangs++
			for at := range of {
				together[at] = true
			}
		}
		if len(together) > 1 {
			t.Fatalf("a gang starts at %v", together)
		}
		for k := range 60 {
			used := map[string]float64{}
			for i, p := range pods {
				if starts[i] < float64(k)+1e-6 && p.To > k {
					used["class "+p.Class] += p.Amount()
					if p.Node != "" {
						used["node "+p.Node+p.Class] += p.Amount()
					}
				}
			}
			for of, v := range used {
				if v > room[of]+1e-6 {
					t.Fatalf("step %d: %v of %v GPUs of the %s", k, v, room[of], of)
				}
			}
		}
	}
	if waited < 1000 || gangs < 500 {
		t.Errorf("%d pods waited, %d gangs", waited, gangs)
	}
}
