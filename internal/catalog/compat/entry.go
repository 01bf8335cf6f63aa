package compat

import (
	"regexp"
	"strings"
)

// Entry describes a family of a page, for programs that check and rewrite queries.
type Entry struct {
	Name, Differs string // Differs is empty if the family is equal
	// Labels are those of its series, without those of pods.
	Labels []string
	// Query is the value by GPU in the names of the catalog, in base units; empty without one. Container is that of a
	// container. The value of the family is theirs times Factor.
	Query, Container string
	Factor           float64
}

// Entries lists the families of a release. The error is that of New.
func Entries(release Release) ([]Entry, error) {
	p, err := New(Options{Release: release, DeviceLabels: DeviceLabels()})
	if err != nil {
		return nil, err
	}
	var out []Entry
	for i, f := range p.Families() {
		e := Entry{Name: f.Name, Labels: f.Labels, Factor: 1}
		if i < len(p.rows) {
			r := p.rows[i]
			e.Differs, e.Query, e.Factor = r.differs, r.gpu.promQL(p.families), r.factorIn(release)
			if r.container != nil {
				e.Container = strings.ReplaceAll(r.container.promQL(p.families), "node, uuid", "node, uuid, namespace, pod, container")
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// Missing returns why another exporter's family or label is not rendered, and what serves the same purpose.
func Missing(name string) (reason string, instead []string, ok bool) {
	if strings.HasPrefix(name, "nvidia_smi_compute_app") {
		return "per process, opt-in there (--collect.compute-apps)",
			[]string{"gpu_container_memory_used_bytes", "gpu_processes"}, true
	}
	for _, m := range missing() {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m.what, -1) {
			before, after, _ := strings.Cut(quoted[1], "*")
			if strings.HasPrefix(name, before) && strings.HasSuffix(name, strings.TrimSuffix(after, "*")) &&
				(name == quoted[1] || strings.Contains(quoted[1], "*")) {
				return m.reason, m.instead, true
			}
		}
	}
	labels, err := Labels()
	for _, l := range labels {
		if err == nil && l.Is == "absent" && l.Name == name {
			return l.Here, nil, true
		}
	}
	return "", nil, false
}
