package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// quick are intervals of the poll groups at which a stage holds enough calls of each.
var quick = [3]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// of are the intervals of the poll groups.
func (p polls) of(c config) [3]time.Duration {
	if p == defaultPolls {
		return c.polls
	}
	return quick
}

// callDurations is the native histogram of the latency of driver calls.
const callDurations = "gpu_exporter_call_duration_seconds"

// sample is one series of a scrape.
type sample struct {
	labels.Labels
	value float64
}

// scrape is one page of metrics: samples by family, and the latency histograms by driver call.
type scrape struct {
	families map[string][]sample
	calls    map[string]*histogram.FloatHistogram
}

func parse(body []byte, contentType string) (*scrape, error) {
	p, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	s := &scrape{families: map[string][]sample{}, calls: map[string]*histogram.FloatHistogram{}}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse the exposition: %w", err)
		}
		var l labels.Labels
		switch entry {
		case textparse.EntrySeries:
			_, _, v := p.Series()
			p.Labels(&l)
			name := l.Get(model.MetricNameLabel)
			s.families[name] = append(s.families[name], sample{l, v})
		case textparse.EntryHistogram:
			_, _, h, _ := p.Histogram()
			p.Labels(&l)
			if h != nil && l.Get(model.MetricNameLabel) == callDurations {
				s.calls[l.Get("call")] = h.ToFloat(nil)
			}
		}
	}
}

// equal matches one exact label value.
func equal(label, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, label, value)
}

// find returns the samples of a family that satisfy every matcher.
func (s *scrape) find(family string, matchers ...*labels.Matcher) []sample {
	var out []sample
	for _, x := range s.families[family] {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(x.Get(m.Name)) }) {
			out = append(out, x)
		}
	}
	return out
}

// sum adds up the samples found; false if there are none.
func (s *scrape) sum(family string, matchers ...*labels.Matcher) (float64, bool) {
	found := s.find(family, matchers...)
	total := 0.0
	for _, x := range found {
		total += x.value
	}
	return total, len(found) > 0
}

// exporter is the running gpu-exporter under test.
type exporter struct {
	*testkit.Child
	url string
}

// startExporter runs the program on a free port of the loopback interface.
func (c config) startExporter(p polls, flags ...string) (*exporter, error) {
	address, err := standin.FreeAddress()
	if err != nil {
		return nil, err
	}
	every := p.of(c)
	args := c.prefix(c.exporter, append([]string{"--web.listen-address=" + address, "--metrics=all", "--poll.fast=" +
		every[0].String(), "--poll.medium=" + every[1].String(), "--poll.slow=" + every[2].String()}, flags...)...)
	if c.library != "" {
		args = append(args, "--nvml.library="+c.library)
	}
	args = append(args, c.flags...)
	cmd := exec.Command(args[0], args[1:]...)
	// GPU_EXPORTER_* would be flags of the exporter.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GPU_EXPORTER_") })
	child, err := testkit.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.exporter, err)
	}
	return &exporter{child, "http://" + address + "/metrics"}, nil
}

// scrape reads the metrics in the protobuf format, the only one that carries native histograms.
func (e *exporter) scrape(ctx context.Context) (*scrape, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s: %s", e.url, res.Status, firstLine(string(body)))
	}
	return parse(body, res.Header.Get("Content-Type"))
}

// until scrapes until check is satisfied, for at most limit.
func (e *exporter) until(ctx context.Context, limit time.Duration, check func(*scrape) error) (*scrape, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		got, err := e.scrape(ctx)
		if err == nil {
			if err = check(got); err == nil {
				return got, nil
			}
		}
		select {
		case <-e.Done():
			return nil, errors.Join(e.Exited(), err)
		case <-ctx.Done():
			return nil, fmt.Errorf("after %v: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// polled returns a check that each poll group, or those named, has read each of the GPUs since a time.
func polled(uuids []string, since time.Time, groups ...string) func(*scrape) error {
	if len(groups) == 0 {
		groups = []string{"fast", "medium", "slow"}
	}
	return func(s *scrape) error {
		for _, uuid := range uuids {
			if up, ok := s.sum("gpu_device_up", equal("uuid", uuid)); !ok || up != 1 {
				return fmt.Errorf("GPU %s is not up", uuid)
			}
			for _, poll := range groups {
				at, ok := s.sum("gpu_last_read_timestamp_seconds", equal("uuid", uuid), equal("poll", poll))
				if !ok || at < seconds(since) {
					return fmt.Errorf("poll group %s has not read GPU %s", poll, uuid)
				}
			}
		}
		return nil
	}
}

// seconds is a Unix time as in the exposition.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
