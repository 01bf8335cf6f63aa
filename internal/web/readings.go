package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// chapter is the readings of one GPU that are in one chapter of the catalog.
type chapter struct {
	Title    string
	Readings []shown
}

// shown is a series: the family with its own labels, and the value.
type shown struct{ Name, Value string }

// readings returns everything that is read of each GPU as a whole.
func readings(v *gpu.View) map[gpu.UUID][]chapter {
	out := map[gpu.UUID][]chapter{}
	scope := catalog.ScopeGPU.Labels()
	at := slices.Index(scope, "uuid")
	for _, group := range catalog.Groups() {
		for _, f := range group.Rows {
			if f.Scope != catalog.ScopeGPU || f.Read == nil {
				continue
			}
			f.Read(v, func(value float64, labels ...string) {
				var own []string
				for i, l := range f.Labels {
					if text := labels[len(scope)+i]; text != "" {
						own = append(own, l+"="+text)
					}
				}
				uuid := gpu.UUID(labels[at])
				chapters := out[uuid]
				if n := len(chapters); n == 0 || chapters[n-1].Title != group.Title {
					chapters = append(chapters, chapter{Title: group.Title})
				}
				last := &chapters[len(chapters)-1]
				last.Readings = append(last.Readings, shown{strings.Join(append([]string{f.Name}, own...), " "), inUnit(f, value)})
				out[uuid] = chapters
			})
		}
	}
	return out
}

// inUnit returns a value for a person; empty where the labels are all that there is to know.
func inUnit(f catalog.Family, value float64) string {
	switch {
	case f.Type == catalog.Info || f.Type == catalog.StateSet:
		return ""
	case strings.HasSuffix(f.Name, "_timestamp_seconds"):
		return time.UnixMilli(int64(value * 1000)).UTC().Format("2006-01-02 15:04:05")
	case f.Unit == "bytes" && value >= 0:
		return humanBytes(gpu.Bytes(value))
	case f.Unit == "hertz":
		return fmt.Sprintf("%.0f MHz", value/1e6)
	}
	return fmt.Sprintf("%.10g", value)
}

// maxProcesses is how many processes of a GPU are listed.
const maxProcesses = 64

// processes lists the processes of a GPU: with commands and containers where they have series of their own.
func processes(g *gpu.GPU, m *gpu.Medium) []gpu.ProcessActivity {
	out := slices.Clone(g.Processes)
	if len(out) == 0 && m != nil {
		for _, p := range m.Processes.Or(nil) {
			out = append(out, gpu.ProcessActivity{PID: p.PID, Kinds: p.Kinds, Memory: p.Memory})
		}
	}
	return out[:min(len(out), maxProcesses)]
}
