package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// message is what Alertmanager posts to a webhook, as far as it is read here (webhook.Message in notify/webhook/webhook.go, v0.31.1).
type message struct {
	Receiver    string            `json:"receiver"`
	Status      string            `json:"status"`
	GroupLabels map[string]string `json:"groupLabels"`
	Alerts      []struct {
		Status string            `json:"status"`
		Labels map[string]string `json:"labels"`
	} `json:"alerts"`
}

// notifier is a real Alertmanager with the shipped example as its configuration, whose receivers are webhooks of this process, and whose
// waits are seconds.
type notifier struct {
	url string

	mu       sync.Mutex
	received []message
}

func newNotifier(t *testing.T) *notifier {
	t.Helper()
	n := &notifier{}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Errorf("webhook: %v", err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.received = append(n.received, m)
	}))
	t.Cleanup(hook.Close)

	var config map[string]any
	must.OK(t, yaml.Unmarshal([]byte(alerts.Alertmanager(alerts.Default())), &config))
	for _, r := range config["receivers"].([]any) {
		if r := r.(map[string]any); r["name"] != "nobody" {
			r["webhook_configs"] = []any{map[string]any{"url": hook.URL, "send_resolved": true}}
		}
	}
	maps.Copy(config["route"].(map[string]any), map[string]any{"group_wait": "2s", "group_interval": "1s"})
	text, err := yaml.Marshal(config)
	must.OK(t, err)
	dir, address := t.TempDir(), servers.Address(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "alertmanager.yml"), text, 0o600))
	servers.Start(t, dir, servers.Build(t, servers.Alertmanager), "--config.file=alertmanager.yml", "--storage.path=data",
		"--web.listen-address="+address, "--cluster.listen-address=")
	n.url = "http://" + address
	servers.Until(t, "Alertmanager is ready", servers.Answers(n.url+"/-/ready"))
	return n
}

// post sends alerts as Prometheus does (POST /api/v2/alerts); one that does not fire has ended now.
func (n *notifier) post(t *testing.T, fires bool, list ...map[string]string) {
	t.Helper()
	type alert struct {
		Labels   map[string]string `json:"labels"`
		StartsAt time.Time         `json:"startsAt"`
		EndsAt   time.Time         `json:"endsAt"`
	}
	var body []alert
	for _, l := range list {
		a := alert{Labels: l, StartsAt: time.Now().Add(-time.Second), EndsAt: time.Now()}
		if fires {
			a.EndsAt = time.Now().Add(time.Hour)
		}
		body = append(body, a)
	}
	text, err := json.Marshal(body)
	must.OK(t, err)
	resp, err := http.Post(n.url+"/api/v2/alerts", "application/json", bytes.NewReader(text))
	must.OK(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST /api/v2/alerts: %s", resp.Status)
	}
}

// count returns how often each group of alerts was notified, by receiver, status and labels of the group.
func (n *notifier) count() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]int{}
	for _, m := range n.received {
		out[fmt.Sprintf("%s %s %s", m.Receiver, m.Status, group(m.GroupLabels))]++
	}
	return out
}

// group is what one notification is about.
func group(labels map[string]string) string {
	return fmt.Sprintf("%s, cluster %q, node %q, namespace %q", labels["alertname"], labels["cluster"], labels["node"], labels["namespace"])
}

// notified waits until each of the groups was notified in a status, and fails if one was more than once.
func (n *notifier) notified(t *testing.T, status string, groups []string) {
	t.Helper()
	servers.Until(t, "every fault is notified as "+status, func() error {
		count := n.count()
		for _, g := range groups {
			key := strings.Replace(g, " ", " "+status+" ", 1)
			switch c := count[key]; {
			case c == 0:
				return fmt.Errorf("%s: no notification", key)
			case c > 1:
				t.Fatalf("%s: %d notifications", key, c)
			}
		}
		return nil
	})
}

// What happens in the month, evaluated by two Prometheus servers, arrives at the receivers as one notification for each fault, and as one
// that it is resolved.
func TestNotifications(t *testing.T) {
	t.Parallel()
	random := generator(t)
	start := fleet.DefaultEpoch()
	var targets []replay.Target
	for _, r := range cast(t, random, start, false) {
		targets = append(targets, r.targets()...)
	}
	byReplica := [2][]map[string]string{}
	groups := map[string]bool{}
	for i := range byReplica {
		w := replay.New(t, alerts.Default()).Watch(replay.Cell{Scrape: 30 * time.Second}, random, targets)
		must.OK(t, w.Run(t.Context(), start, start.Add(history+40*time.Minute)))
		for _, a := range w.Notifications {
			byReplica[i] = append(byReplica[i], a.Labels.Map())
			receiver := map[string]string{"critical": "gpu-page", "warning": "gpu-ticket"}[a.Labels.Get("severity")]
			if receiver != "" {
				groups[receiver+" "+group(a.Labels.Map())] = true
			}
		}
	}
	if len(groups) < 20 {
		t.Fatalf("only %d faults of the month notify", len(groups))
	}
	want := slices.Sorted(maps.Keys(groups))

	n := newNotifier(t)
	for _, replica := range byReplica {
		n.post(t, true, replica...)
	}
	n.notified(t, "firing", want)
	for _, replica := range byReplica {
		n.post(t, false, replica...)
	}
	n.notified(t, "resolved", want)
	if got := len(n.count()); got != 2*len(want) {
		t.Errorf("%d groups were notified, want %d, firing and resolved: %v", got, 2*len(want), n.count())
	}
	t.Logf("%d faults, %d alerts of two servers: %d notifications", len(want), len(byReplica[0])+len(byReplica[1]), len(n.received))
}

// An alert that another one explains does not notify while that fires, and does elsewhere.
func TestInhibitions(t *testing.T) {
	t.Parallel()
	n := newNotifier(t)
	byName := map[string]alerts.Alert{}
	for _, a := range alerts.Alerts() {
		byName[a.Name] = a
	}
	sample := func(name, suffix string) map[string]string {
		a := byName[name]
		l := map[string]string{labels.AlertName: name, "severity": string(a.Severity), "cluster": "c" + suffix}
		for _, label := range a.Labels {
			l[label] = label + suffix
		}
		return l
	}
	var config struct {
		Rules []struct {
			Source []string `json:"source_matchers"`
			Target []string `json:"target_matchers"`
		} `json:"inhibit_rules"`
	}
	must.OK(t, yaml.Unmarshal([]byte(alerts.Alertmanager(alerts.Default())), &config))
	names := func(matchers []string) []string {
		list, ok := strings.CutPrefix(strings.Join(matchers, ","), `alertname=~"`)
		if !ok {
			t.Fatalf("%q is no list of alerts", matchers)
		}
		return strings.Split(strings.TrimSuffix(list, `"`), "|")
	}
	if len(config.Rules) == 0 {
		t.Fatal("no inhibition rule")
	}
	for _, r := range config.Rules {
		for _, source := range names(r.Source) {
			n.post(t, true, sample(source, "-1"))
		}
		for _, target := range names(r.Target) {
			n.post(t, true, sample(target, "-1"), sample(target, "-2"))
			servers.Until(t, target+" is inhibited by "+r.Source[0], func() error {
				for _, suffix := range []string{"-1", "-2"} {
					state, err := n.state(target, "c"+suffix)
					if want := map[string]string{"-1": "suppressed", "-2": "active"}[suffix]; err != nil || state != want {
						return fmt.Errorf("in cluster c%s: state %q, want %q (%w)", suffix, state, want, err)
					}
				}
				return nil
			})
		}
	}
}

// state is the state of the alert of a name in a cluster (GET /api/v2/alerts).
func (n *notifier) state(name, cluster string) (string, error) {
	text, err := servers.Fetch(fmt.Sprintf("%s/api/v2/alerts?filter=alertname=%q&filter=cluster=%q", n.url, name, cluster))
	if err != nil {
		return "", err
	}
	var list []struct {
		Status struct{ State string }
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("%d alerts", len(list))
	}
	return list[0].Status.State, nil
}
