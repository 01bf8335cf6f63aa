package report

import (
	"fmt"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// heap is the memory of live and dead objects, and of what the runtime keeps besides.
func heap() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64()-s[1].Value.Uint64()) / (1 << 20)
}

// BenchmarkFleet reports on a month of fleets in memory: analysis, advice and replay without a server and its decoding. It has
// to grow with the number of GPUs alone.
func BenchmarkFleet(b *testing.B) {
	for _, gpus := range []int{1000, 4000, 16000} {
		b.Run(fmt.Sprint(gpus), func(b *testing.B) {
			server := reporttest.Month(gpus / 8)
			begin := time.Unix(reporttest.MonthFrom, 0)
			for b.Loop() {
				o := Defaults()
				o.From, o.To = begin, begin.AddDate(0, 0, 30)
				o.Now = o.To
				done, peak := make(chan bool), make(chan float64)
				before := heap()
				go func() {
					most := 0.0
					for {
						select {
						case <-done:
							peak <- most
							return
						case <-time.After(20 * time.Millisecond):
							most = max(most, heap())
						}
					}
				}()
				d, err := Build(b.Context(), reporttest.Direct{Server: server}, o)
				close(done)
				b.ReportMetric(<-peak-before, "MiB")
				must.OK(b, err)
				codes := map[string]int{}
				for _, a := range d.Advice {
					codes[a.Code]++
				}
				for _, w := range d.Workloads {
					codes[w.NoAdvice]++
				}
				b.Log(len(d.Workloads), "workloads", codes)
				if codes[document.AdviseRelease] == 0 {
					b.Error("no advice")
				}
			}
		})
	}
}
