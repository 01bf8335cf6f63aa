package compat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// opened is the part with flags, and what it made.
type opened struct {
	plan  *rooms.Plan
	room  *rooms.Room
	log   bytes.Buffer
	names []string // of the families in use, sorted
}

func open(t *testing.T, api source.APIOptions, args ...string) (*opened, error) {
	t.Helper()
	app := kingpin.New("x", "").Terminate(nil)
	part := New(app)
	if _, err := app.Parse(args); err != nil {
		return nil, err
	}
	o := &opened{}
	addresses, systemd := []string{}, false
	common := &rooms.Common{Logger: slog.New(slog.NewTextHandler(&o.log, nil)), API: api,
		Web: &toolkit.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &systemd}}
	if err := part.Check(common); err != nil {
		return nil, err
	}
	o.plan = &rooms.Plan{Common: common}
	var err error
	if o.room, err = part.Open(o.plan); err != nil {
		return nil, err
	}
	o.plan.SetFamilies = func(all []catalog.Family) error {
		o.names = nil
		for _, f := range all {
			o.names = append(o.names, f.Name)
		}
		return nil
	}
	if o.plan.Page != nil {
		must.OK(t, o.plan.SetFamilies(o.plan.Page.Families))
	}
	return o, nil
}

// read reads the collectors once, and publishes a view.
func (o *opened) read(v *gpu.View) {
	for _, poll := range o.room.Polls {
		poll(context.Background())
	}
	o.plan.Sampler.Published(v)
}

const twoFields = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\nDCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, License\n"

// A file that did not change is not parsed again.
func TestCollectorFileIsParsedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	must.OK(t, os.WriteFile(path, []byte(twoFields), 0o644))
	o, err := open(t, source.APIOptions{}, "--compat=dcgm-4.8", "--compat.set=collectors="+path)
	must.OK(t, err)
	if n := testing.AllocsPerRun(5, func() { o.room.Polls[0](t.Context()) }); n > 15 { // parsing takes 20 more
		t.Errorf("%v allocations", n)
	}
}

// The page has the fields of the file, says what it lacks, and follows the file; a broken file changes nothing, and is said once.
func TestCollectorFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) { must.OK(t, os.WriteFile(path, []byte(text), 0o644)) }
	write(twoFields)
	o, err := open(t, source.APIOptions{}, "--compat=dcgm-4.8", "--compat.set=main=true", "--compat.set=collectors="+path)
	must.OK(t, err)
	if !slices.Equal(o.names, []string{"DCGM_FI_DEV_GPU_TEMP"}) || !o.plan.Page.Main ||
		!strings.Contains(o.plan.Page.Note, "DCGM_FI_DEV_VGPU_LICENSE_STATUS") ||
		!strings.Contains(o.log.String(), "DCGM_FI_DEV_VGPU_LICENSE_STATUS") {
		t.Fatalf("%q, %+v\n%s", o.names, o.plan.Page, o.log.String())
	}
	v := catalogtest.FullView()
	for _, broken := range []string{"DCGM_FI_DEV_GPU_TEMP, gau", "DCGM_FI_DEV_GPU_TEMP, gau", ""} {
		if write(broken); broken == "" {
			must.OK(t, os.Remove(path))
		}
		o.read(v)
	}
	if n := strings.Count(o.log.String(), "stays in use"); n != 2 || !slices.Equal(o.names, []string{"DCGM_FI_DEV_GPU_TEMP"}) {
		t.Errorf("%d messages, %q\n%s", n, o.names, o.log.String())
	}
	write("DCGM_FI_DEV_SM_CLOCK, gauge, Clock\n")
	o.read(v)
	if !slices.Equal(o.names, []string{"DCGM_FI_DEV_SM_CLOCK"}) {
		t.Errorf("%q\n%s", o.names, o.log.String())
	}
}

// What dcgm-exporter's image has needs no file.
func TestFilesOfTheImage(t *testing.T) {
	o, err := open(t, source.APIOptions{}, "--compat=dcgm-4.8", "--compat.set=collectors=/etc/dcgm-exporter/default-counters.csv")
	if err != nil || len(o.names) < 20 {
		t.Fatalf("%v, %v", o, err)
	}
	if before := len(o.names); before > 0 {
		o.read(catalogtest.FullView())
		if len(o.names) != before || o.log.Len() > 0 {
			t.Errorf("%d families, then %d\n%s", before, len(o.names), o.log.String())
		}
	}
}

// Labels of pods are those that the patterns match; a new one is on the page from the next view on.
func TestLabelsOfPods(t *testing.T) {
	o, err := open(t, source.APIOptions{}, "--compat=dcgm-4.8", "--compat.set=kubernetes-enable-pod-labels=true",
		"--compat.set=kubernetes-pod-label-allowlist-regex=^team$,^app")
	must.OK(t, err)
	for name, want := range map[string]bool{"team": true, "app.kubernetes.io/name": true, "teams": false, "x": false} {
		if got := o.plan.PodLabelPattern.MatchString(name); got != want {
			t.Errorf("%s matches: %v", name, got)
		}
	}
	var families []catalog.Family
	o.plan.SetFamilies = func(all []catalog.Family) error { families = all; return nil }
	v := catalogtest.FullView()
	v.Pods = []gpu.PodRef{{Namespace: "ml", Pod: "train-0", Meta: &gpu.PodMeta{Labels: map[string]string{"team": "vision", "app/a": "x",
		"app.a": "y"}}}}
	o.read(v)
	if families == nil || !slices.Contains(families[0].Labels, "team") || !slices.Contains(families[0].Labels, "app_a") {
		t.Fatalf("%+v", families)
	}
	families = nil
	o.read(v)
	if families != nil {
		t.Error("the page was replaced again for the same labels")
	}
}

func TestConfigMap(t *testing.T) {
	text := `{"data":{"metrics":"DCGM_FI_DEV_GPU_TEMP, gauge, Temperature"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/gpu/configmaps/metrics" || text == "" {
			http.Error(w, `{"message":"configmaps \"metrics\" is forbidden"}`, http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	defer server.Close()
	o, err := open(t, source.APIOptions{Node: "n", Server: server.URL}, "--compat=dcgm-4.8", "--compat.set=configmap-data=gpu:metrics",
		"--compat.set=collectors=/etc/dcgm-exporter/default-counters.csv")
	must.OK(t, err)
	v := catalogtest.FullView()
	before := len(o.names)
	given := text
	for _, broken := range []string{"", `{"data":{"other":""}}`, `{"data":{"metrics":"a, b"}}`} {
		text = broken
		o.read(v)
		if len(o.names) != before {
			t.Errorf("%q: %q", broken, o.names)
		}
	}
	text = given
	o.read(v)
	if !slices.Equal(o.names, []string{"DCGM_FI_DEV_GPU_TEMP"}) {
		t.Errorf("%q\n%s", o.names, o.log.String())
	}
	for _, want := range []string{"forbidden", "has no key metrics", "want a field, a type and a help text"} {
		if !strings.Contains(o.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, o.log.String())
		}
	}
}

func TestConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{
		"version: 1\nmetrics:\n  fields:\n  - " +
			"{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: T}\ncollection: {interval: 30s}": "",
		"version: 2\nmetrics:\n  file: " +
			"/etc/dcgm-exporter/default-counters.csv\ncollections: []": "",
		"version: 3": "version 3: want 1 or 2",
		"version: 1\nmetrics: {file: /x, fields: [{name: a}]}":                               "both file and fields",
		"version: 1\nmetrics: {fields: [{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: big}]}": "unknown type",
		"version: [":                         "yaml",
		"version: 1\nmetrics: {file: /nope}": "/nope: no such file",
	} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		o, err := open(t, source.APIOptions{}, "--compat=dcgm-4.8", "--compat.set=config-file="+path)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, %v", text, o, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	dcgm := "--compat=dcgm-4.9"
	for args, want := range map[string]string{
		"--compat.set=devices=g":                                "require --compat",
		"--compat.set=main=true":                                "require --compat",
		"--compat=nvidia-smi --compat.set=devices=g":            "only pages of dcgm-exporter have it",
		dcgm + " --compat.set=devices=x":                        "--compat.set devices=x: \"x\": want f, g, i",
		dcgm + " --compat.set=nonsense=1":                       "unknown; the settings are main, label, collectors, ",
		dcgm + " --compat.set=no-hostname=maybe":                "no-hostname=maybe",
		dcgm + " --compat.set=xid-count-window-size=0":          "want milliseconds from 1 to 3600000",
		dcgm + " --compat.set=clock-events-count-window-size=x": "want milliseconds",
		dcgm + " --compat.set=configmap-data=x":                 "want NAMESPACE:NAME",
		dcgm + " --compat.set=collectors=/no/such/file":         "collector file /no/such/file",
		dcgm + " --compat.set=kubernetes-enable-pod-labels=true --compat.set=kubernetes-pod-label-allowlist-regex=(": "missing closing",
		dcgm + " --compat.listen-address=9400": "--compat.listen-address 9400",
	} {
		if _, err := open(t, source.APIOptions{}, strings.Fields(args)...); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
}
