package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Processes one after the other, of two pods by turns, each looked up only when the driver returns its samples: at the
// next poll of 2 s. Never is one attributed to the other pod.
func TestShortProcesses(t *testing.T) {
	for _, c := range []struct {
		name    string
		life    time.Duration
		pids    int // are reused after so many; 0: never
		watched bool
		want    float64 // of the time, after the first that was missed
	}{
		{"1 s", time.Second, 0, true, 0.95},
		{"1 s, unwatched", time.Second, 0, false, 0},
		{"half a second", 500 * time.Millisecond, 0, true, 0.95},
		{"2 s", 2 * time.Second, 0, true, 0.95},
		{"10 s", 10 * time.Second, 0, true, 0.95},
		{"1 s, of one PID", time.Second, 1, true, 0},
		{"1 s, of two PIDs", time.Second, 2, true, 0},
		{"3 s, of one PID", 3 * time.Second, 1, true, 0.3},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.pod("ml", "a", uid, "main", cid)
			n.pod("ml", "b", hash, "main", other)
			cgroups := []string{"0::/kubepods/pod" + uid + "/" + cid + "\n", "0::/kubepods/pod" + hash + "/" + other + "\n"}
			f := n.finder(true)
			const step, poll, length = 100 * time.Millisecond, 2 * time.Second, time.Minute
			var right, wrong, all time.Duration
			active := map[int]map[int]time.Duration{} // since the last poll, by PID and pod
			last := -1
			for at := time.Duration(0); at < length; at += step {
				i := int(at / c.life)
				pid := 100 + i
				if c.pids > 0 {
					pid = 100 + i%c.pids
				}
				if i != last {
					if last >= 0 {
						os.RemoveAll(filepath.Join(n.root, "proc/100"))
						os.RemoveAll(filepath.Join(n.root, fmt.Sprintf("proc/%d", 100+last)))
						os.RemoveAll(filepath.Join(n.root, "proc/101"))
					}
					n.process(pid, fmt.Sprint(1000+i), cgroups[i%2])
					last = i
				}
				n.now = n.now.Add(step)
				if active[pid] == nil {
					active[pid] = map[int]time.Duration{}
				}
				active[pid][i%2] += step
				if c.watched && at%watchInterval == 0 {
					f.Glance(t.Context())
				}
				if (at+step)%poll != 0 {
					continue
				}
				for pid, by := range active {
					found, owner := f.Find(pid)
					for pod, d := range by {
						if at < 2*poll {
							continue // until the first was missed, nothing is watched
						}
						all += d
						switch {
						case owner != Owned:
						case found.Pod == string(rune('a'+pod)):
							right += d
						default:
							wrong += d
						}
					}
				}
				clear(active)
			}
			if share := float64(right) / float64(all); wrong > 0 || share < c.want || !c.watched && share > 0.6 {
				t.Errorf("%.0f %% of %v attributed, %v of it to the wrong pod", share*100, all, wrong)
			} else {
				t.Logf("%.0f %% attributed", share*100)
			}
		})
	}
}

// Processes are listed after one was missed, until the end of the program, also if a list fails.
func TestWatchRests(t *testing.T) {
	n := newNode(t)
	n.process(1, "1", "0::/init.scope\n")
	f := n.finder(true)
	if f.Glance(t.Context()) {
		t.Error("watching without a reason")
	}
	expect(t, f, 10, gpu.Container{}, Unknown)
	if len(f.watch.wake) != 1 || !f.Glance(t.Context()) {
		t.Error("not watching after a process was missed")
	}
	if err := os.Rename(filepath.Join(n.root, "proc"), filepath.Join(n.root, "hidden")); err != nil || !f.Glance(t.Context()) {
		t.Error("not watching after a list that failed", err)
	}
	// A list that was given up may still be read for a moment, in which there is no other.
	over, cancel := context.WithCancel(t.Context())
	if cancel(); f.Glance(over) {
		t.Error("watching after the end of the program")
	}
	n.now = n.now.Add(watchFor + time.Second)
	if f.Glance(t.Context()) || f.watch.last != nil {
		t.Error("watching for ever")
	}
}
