package compat

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
)

// imageFiles are the collector files of dcgm-exporter's image. Where one is named and does not exist, its fields are used.
const imageFiles = "/etc/dcgm-exporter"

// settings are those of dcgm-exporter for its page, by the names of its flags.
type settings struct {
	compat.Settings
	main      bool               // the page is at /metrics
	copies    bool               // of series of a shared GPU
	fields    []string           // label-typed, beside those of collectors
	file      string             // of collectors
	inline    []compat.Collector // of a configuration file
	configMap string             // NAMESPACE:NAME, which comes before the file
	labels    *regexp.Regexp     // of pods; nil: only those of --kubernetes.pod-label
}

// names are the settings in the order of the documentation.
var names = []string{"collectors", "config-file", "configmap-data", "devices", "no-hostname", "use-old-namespace",
	"replace-blanks-in-model-name", "xid-count-window-size", "clock-events-count-window-size", "kubernetes-enable-pod-uid",
	"kubernetes-enable-pod-labels", "kubernetes-pod-label-allowlist-regex", "kubernetes-virtual-gpus"}

// parse reads settings, each NAME=VALUE. The error names the setting.
func parse(all []string, release compat.Release) (*settings, error) {
	s := &settings{}
	labels, patterns, config := false, "", ""
	for _, one := range all {
		name, value, _ := strings.Cut(one, "=")
		var err error
		switch name {
		case "main":
			s.main, err = strconv.ParseBool(value)
		case "kubernetes-virtual-gpus":
			s.copies, err = strconv.ParseBool(value)
		case "label":
			if s.fields = append(s.fields, value); !slices.Contains(compat.DeviceLabels(), value) {
				err = errors.New("want one of " + strings.Join(compat.DeviceLabels(), ", "))
			}
		case "collectors":
			s.file = value
		case "config-file":
			config = value
		case "configmap-data":
			s.configMap = value
			if namespace, name, ok := strings.Cut(value, ":"); !ok || namespace == "" || name == "" || strings.ContainsAny(name, ":/") {
				err = errors.New("want NAMESPACE:NAME")
			}
		case "devices":
			s.Devices, err = compat.ParseDevices(value)
		case "no-hostname":
			s.NoHostname, err = strconv.ParseBool(value)
		case "use-old-namespace":
			s.OldLabels, err = strconv.ParseBool(value)
		case "replace-blanks-in-model-name":
			s.Dashes, err = strconv.ParseBool(value)
		case "xid-count-window-size":
			s.XIDWindow, err = milliseconds(value)
		case "clock-events-count-window-size":
			s.ClockWindow, err = milliseconds(value)
		case "kubernetes-enable-pod-uid":
			var on bool
			on, err = strconv.ParseBool(value)
			s.NoPodUID = !on
		case "kubernetes-enable-pod-labels":
			labels, err = strconv.ParseBool(value)
		case "kubernetes-pod-label-allowlist-regex":
			patterns = strings.ReplaceAll(value, ",", "|")
		default:
			return nil, fmt.Errorf("--compat.set %s: unknown; the settings are main, label, %s", name, strings.Join(names, ", "))
		}
		if err == nil && name != "main" && name != "kubernetes-virtual-gpus" && release == compat.NvidiaSMI {
			err = errors.New("only pages of dcgm-exporter have it")
		}
		if err != nil {
			return nil, fmt.Errorf("--compat.set %s=%s: %w", name, value, err)
		}
	}
	if config != "" && s.file == "" { // as there, flags come before the file
		if err := s.readConfig(config); err != nil {
			return nil, fmt.Errorf("--compat.set config-file=%s: %w", config, err)
		}
	}
	if labels {
		var err error
		if s.labels, err = regexp.Compile(patterns); err != nil {
			return nil, fmt.Errorf("--compat.set kubernetes-pod-label-allowlist-regex=%s: %w", patterns, err)
		}
	}
	return s, nil
}

// maxWindow bounds the history that a window needs.
const maxWindow = time.Hour

func milliseconds(text string) (time.Duration, error) {
	n, err := strconv.Atoi(text)
	if d := time.Duration(n) * time.Millisecond; err == nil && d > 0 && d <= maxWindow {
		return d, nil
	}
	return 0, fmt.Errorf("want milliseconds from 1 to %d", maxWindow.Milliseconds())
}

// readConfig reads the metrics of dcgm-exporter's YAML configuration; its other parts are about DCGM (internal/pkg/appconfig
// of its releases from 4.8.4 on: version 1 with collection, version 2 with collections).
func (s *settings) readConfig(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c struct {
		Version int
		Metrics struct {
			File   string
			Fields []struct {
				Name           string
				PrometheusType string `yaml:"prometheusType"`
				Help           string
			}
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return errors.New(strings.Join(strings.Fields(err.Error()), " ")) // the parser writes several lines
	}
	switch m := c.Metrics; {
	case c.Version != 1 && c.Version != 2:
		return fmt.Errorf("version %d: want 1 or 2", c.Version)
	case m.File != "" && m.Fields != nil:
		return errors.New("metrics has both file and fields")
	case m.File != "":
		s.file = m.File
	default:
		for _, f := range m.Fields {
			s.inline = append(s.inline, compat.Collector{Field: f.Name, Type: f.PrometheusType, Help: f.Help})
		}
	}
	for _, c := range s.inline {
		if err := c.Check(); err != nil {
			return err
		}
	}
	return nil
}

// collectors returns the fields of the page, and the text of the file that they are from. It does not parse the text that is in
// use.
func (s *settings) collectors(inUse []byte) (fields []compat.Collector, text []byte, err error) {
	if s.inline != nil {
		return s.inline, nil, nil
	}
	text, err = os.ReadFile(s.file)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(s.file) == imageFiles {
		fields, err = compat.ShippedCollectors()
		return fields, nil, err
	}
	if err == nil && (inUse == nil || !bytes.Equal(text, inUse)) {
		fields, err = compat.ParseCollectors(text)
	}
	if err != nil {
		return nil, text, fmt.Errorf("collector file %s: %w", s.file, err)
	}
	return fields, text, nil
}
