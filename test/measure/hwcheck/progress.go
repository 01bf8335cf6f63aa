package hwcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// base is the path of the report without its ending.
func (r *run) base() string { return strings.TrimSuffix(r.out, ".md") }

// whole is the report with a line for each stage that is missing.
func (r *run) whole() Report {
	out := r.Report
	out.Checks = slices.Clone(out.Checks)
	for _, s := range r.stages {
		if !slices.Contains(r.Done, s.name) && !r.leftOut(s) {
			out.add(Check{Name: "stage: " + s.name, Stage: s.name}.incomplete("not run to its end; --resume runs it"))
		}
	}
	return out
}

// leftOut reports whether --only leaves a stage out.
func (r *run) leftOut(s stage) bool { return len(r.only) > 0 && !slices.Contains(r.only, s.name) }

// save writes the report as far as it is. Each file is replaced as a whole: whenever this program is killed, there is a
// report that can be read.
func (r *run) save() error {
	out := r.whole()
	text, err := page.Render("hwcheck", &out)
	if err != nil {
		return err
	}
	data, err := page.Figures(&out)
	if err != nil {
		return err
	}
	err = errors.Join(os.MkdirAll(filepath.Dir(r.out), 0o755), r.write(r.base()+".json", data), r.write(r.out, []byte(text)))
	if r.probed != nil {
		data, failed := r.probed.encode()
		err = errors.Join(err, failed, r.write(r.base()+".probe.json", data))
	}
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	return nil
}

// restore takes over the stages of an earlier report that were run to their end.
func (r *run) restore() error {
	data, err := os.ReadFile(r.base() + ".json")
	if errors.Is(err, os.ErrNotExist) {
		return nil // killed before anything was saved
	}
	var old Report
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	switch {
	case err != nil:
		return fmt.Errorf("--resume: %s.json: %w", r.base(), err)
	case old.Model != r.Model || old.Driver != r.Driver:
		return fmt.Errorf("--resume: %s.json is of %s with driver %s", r.base(), old.Model, old.Driver)
	}
	r.Done, r.IdleBusy, r.Rows, r.Calls = old.Done, old.IdleBusy, old.Rows, old.Calls
	r.Checks = slices.DeleteFunc(old.Checks, func(c Check) bool { return !slices.Contains(old.Done, c.Stage) })
	for _, f := range old.Facts {
		if !slices.ContainsFunc(r.Facts, func(g [2]string) bool { return f[0] == g[0] }) {
			r.Facts = append(r.Facts, f)
		}
	}
	return nil
}

// session is the exporter that runs at a time, by its poll groups.
type session struct {
	*exporter
	polls    polls
	launched time.Time
}

// examine runs the stages that are not done, in their order, and saves after each. What fails on the way is a line of the
// report.
func (r *run) examine(ctx context.Context) {
	dir, err := os.MkdirTemp("", "hwcheck-")
	if err != nil {
		r.add(Check{Name: "start"}.incomplete("%v", err))
		return
	}
	defer os.RemoveAll(dir)
	if r.dir = dir; r.load != loadManual && r.load != loadNone {
		r.loadPath, r.loadErr = loadProgram(ctx, r.load, dir)
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel() // stops the kubelet
	flags, err := r.startKubelet(serving)
	if err != nil {
		r.add(Check{Name: "start"}.incomplete("%v", err))
		return
	}
	s := &session{}
	defer func() { r.stop(s) }()
	for _, st := range r.stages {
		if slices.Contains(r.Done, st.name) || ctx.Err() != nil {
			continue
		}
		if end, limited := ctx.Deadline(); limited && !r.leftOut(st) && time.Until(end) < st.takes(r) {
			continue
		}
		if st.polls != s.polls && !r.leftOut(st) {
			if r.stop(s); r.launch(ctx, s, st.polls, flags) != nil && ctx.Err() == nil {
				continue
			}
		}
		if st.name == stageMIG && s.exporter != nil { // calls fail when instances are destroyed
			r.examineCounters(ctx, s)
		}
		before := len(r.Checks)
		r.examineStage(ctx, st, s.exporter)
		if ctx.Err() != nil {
			r.Checks = r.Checks[:before]
			break
		}
		for i := range r.Checks[before:] {
			r.Checks[before+i].Stage = st.name
		}
		if !r.leftOut(st) {
			r.Done = append(r.Done, st.name)
		}
		if err := r.save(); err != nil {
			r.progress("%v", err)
		}
	}
}

// launch starts an exporter and waits until it has read all GPUs.
func (r *run) launch(ctx context.Context, s *session, p polls, flags []string) error {
	check := Check{Name: "start, " + p.String()}
	if s.polls = p; p == noExporter {
		return nil
	}
	e, err := r.startExporter(p, flags...)
	if err != nil {
		r.add(check.judge(false, "%v", err))
		return err
	}
	s.exporter, s.launched = e, time.Now()
	if _, err = e.until(ctx, r.startLimit(), polled(r.uuids, time.Time{})); ctx.Err() == nil {
		r.add(check.judge(err == nil, "GPUs: %d, read within %v of the start; %v", len(r.uuids),
			time.Since(s.launched).Round(100*time.Millisecond), err))
	}
	if err != nil {
		_ = e.Stop()
		s.exporter, s.polls = nil, noExporter
	}
	return err
}

// stop stops the exporter that runs, if any.
func (r *run) stop(s *session) {
	if s.exporter == nil {
		return
	}
	err := s.exporter.Stop()
	r.add(Check{Name: "stop, " + s.polls.String()}.judge(err == nil, "exit after SIGTERM: %v", err))
	s.exporter, s.polls = nil, noExporter
}

// examineCounters checks what the exporter counted of itself.
func (r *run) examineCounters(ctx context.Context, s *session) {
	last, err := s.scrape(ctx)
	if err != nil {
		r.add(Check{Name: "counters of the exporter"}.incomplete("%v", err))
		return
	}
	r.add(checkCounters(last)...)
	cpu, _ := last.sum("process_cpu_seconds_total")
	memory, _ := last.sum("process_resident_memory_bytes")
	r.fact("cost of the exporter", "%.2f %% of a core with a fast poll every %v, %.0f MiB resident",
		100*cpu/time.Since(s.launched).Seconds(), r.polls[0], memory/(1<<20))
}
