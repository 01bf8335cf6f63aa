package compat

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// reread is how often a collector file is read again; dcgm-exporter watches its folder. A ConfigMap is read through the API
// server, by every node, so that it is read less often; dcgm-exporter reads it at its start.
const (
	reread          = 10 * time.Second
	rereadConfigMap = 5 * time.Minute
)

// served is the page while the exporter runs: its fields follow the collector file, and its labels those of the pods.
type served struct {
	plan     *rooms.Plan
	settings *settings
	options  compat.Options
	page     atomic.Pointer[compat.Page]
	text     []byte // of the collector file or ConfigMap in use
	failed   string // the last error, which is logged once

	seen map[string]bool // names of labels of pods; only published uses it
	// pages are new fields or labels, for published, which alone replaces the page.
	fields atomic.Pointer[[]compat.Collector]
}

// lacks is what the page does not have of its collectors, in a sentence; it is logged as well.
func (s *served) lacks(page *compat.Page) string {
	absent := page.Absent()
	if len(absent) == 0 {
		return ""
	}
	fields := strings.Join(absent, ", ")
	s.plan.Logger.Warn("collector file: these fields are not offered; docs/dcgm-exporter.md has what to use instead", "fields", fields)
	return "Fields of the collector file that are not offered: " + fields + "."
}

// published takes every view: it replaces the page where its fields or the labels of pods have changed.
func (s *served) published(v *gpu.View) {
	fields := s.fields.Swap(nil)
	if fields != nil {
		s.options.Collectors = *fields
	}
	if s.newLabels(v) || fields != nil {
		page, err := s.page.Load().With(s.options)
		if err == nil {
			err = s.plan.SetFamilies(page.Families())
		}
		if err != nil {
			s.plan.Logger.Error("cannot replace the page", "page", s.options.Release, "err", err)
		} else {
			s.page.Store(page)
			if fields != nil {
				s.lacks(page)
				s.plan.Logger.Info("collector file read again", "fields", len(*fields))
			}
		}
	}
	s.page.Load().Published(v)
}

// newLabels adds the labels of the pods to the options, and reports whether there are new ones. None is removed: a label
// without a value is not on the page.
func (s *served) newLabels(v *gpu.View) bool {
	if s.settings.labels == nil {
		return false
	}
	before := len(s.seen)
	for _, pod := range v.Pods {
		if pod.Meta == nil {
			continue
		}
		for name := range pod.Meta.Labels {
			if !s.seen[name] && len(s.seen) < maxPodLabels {
				if s.seen == nil {
					s.seen = map[string]bool{}
				}
				s.seen[name] = true
			}
		}
	}
	if len(s.seen) == before {
		return false
	}
	s.options.PodLabels = distinct(append(slices.Clone(s.plan.PodLabels), slices.Sorted(maps.Keys(s.seen))...))
	return true
}

// maxPodLabels bounds the labels of a node's pods together.
const maxPodLabels = 256

// distinct returns the names whose labels differ: of two that become one label the first.
func distinct(names []string) (out []string) {
	labels := map[string]bool{}
	for _, n := range names {
		if l := compat.PodLabel(n); !labels[l] {
			labels[l] = true
			out = append(out, n)
		}
	}
	return out
}

// follow reads the collector file again where it changes, and at SIGHUP.
func (s *served) follow(ctx context.Context) {
	every := reread
	if s.settings.configMap != "" {
		every = rereadConfigMap
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		case <-timer.C:
		}
		s.read(ctx)
		timer.Reset(every)
	}
}

// read takes the ConfigMap, or else the collector file, if it changed. An error is logged once, and what is in use stays: a file
// may be half written.
func (s *served) read(ctx context.Context) {
	read := func() ([]compat.Collector, []byte, error) { return s.settings.collectors(s.text) }
	if s.settings.configMap != "" {
		read = func() ([]compat.Collector, []byte, error) { return s.configMap(ctx) }
	}
	fields, text, err := read()
	reason := ""
	if err != nil {
		reason = err.Error()
	} else if !bytes.Equal(text, s.text) {
		s.text = text
		s.fields.Store(&fields)
	}
	if reason != "" && reason != s.failed {
		s.plan.Logger.Warn("collectors: what was read before stays in use", "err", reason)
	}
	s.failed = reason
}

// configMap returns the fields of the ConfigMap, and their text.
func (s *served) configMap(ctx context.Context) ([]compat.Collector, []byte, error) {
	namespace, name, _ := strings.Cut(s.settings.configMap, ":")
	ctx, cancel := context.WithTimeout(ctx, reread)
	defer cancel()
	text, err := source.ConfigMapText(ctx, s.plan.API, namespace, name, "metrics")
	if err != nil {
		return nil, nil, err
	}
	if string(s.text) == text {
		return nil, s.text, nil
	}
	fields, err := compat.ParseCollectors([]byte(text))
	if err != nil {
		return nil, nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	return fields, []byte(text), nil
}
