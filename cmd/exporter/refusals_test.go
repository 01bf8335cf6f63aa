package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// refusedLines are command lines that the programs refuse: variables, then the program and its arguments; DIR has the file "old", a
// wrong web configuration and a report that is none, BUSY is an address in use.
var refusedLines = []struct{ line, want string }{
	{"gpu-exporter --no-such-flag", "unknown flag --no-such-flag; --help"},
	{"gpu-exporter --pol.fast=2s", "--pol.fast: did you mean --poll.fast?"},
	{"gpu-exporter --fast=2s", "did you mean --poll.fast?"},
	{"gpu-exporter --no-kublet", "did you mean --no-kubelet?"},
	{"gpu-exporter --no-poll.fast", "unknown flag --no-poll.fast"},
	{"gpu-exporter --poll.fast=often", `--poll.fast must be a duration such as 500ms, 10s or 5m, got "often"`},
	{"gpu-exporter --poll.fast=5", `--poll.fast must be a duration`},
	{"gpu-exporter --poll.fast", "--poll.fast needs a value: Interval"},
	{"gpu-exporter --poll.fast=1ms", "--poll.fast must be at least 100ms, got 1ms"},
	{"gpu-exporter --poll.fast=9s", "--poll.fast must be at most 5s"},
	{"gpu-exporter --poll.medium=1s", "--poll.medium must be at least 2s, got 1s"},
	{"gpu-exporter --poll.kubelet=1ms", "--poll.kubelet must be at least 1s, got 1ms"},
	{"gpu-exporter --kubelet.max-age=1s", "--kubelet.max-age must be at least 10s"},
	{"gpu-exporter --call-deadline=0s", "--call-deadline must be at least"},
	{"gpu-exporter --lane.fast=1s", "--lane.fast was renamed to --poll.fast"},
	{"gpu-exporter --web.max-requests=40", "--web.max-requests is not needed any more"},
	{"GPU_EXPORTER_LANE_FAST=1s gpu-exporter", "GPU_EXPORTER_LANE_FAST was renamed to GPU_EXPORTER_POLL_FAST"},
	{"GPU_EXPORTER_POL_FAST=1s gpu-exporter", "GPU_EXPORTER_POL_FAST, which is \"1s\": did you mean GPU_EXPORTER_POLL_FAST?"},
	{"GPU_EXPORTER_POLL_FAST=often gpu-exporter", "GPU_EXPORTER_POLL_FAST must be a duration"},
	{"GPU_EXPORTER_POLL_FAST=1ms gpu-exporter", "GPU_EXPORTER_POLL_FAST (--poll.fast) must be at least 100ms"},
	{"GPU_EXPORTER_KUBELET=maybe gpu-exporter", `GPU_EXPORTER_KUBELET must be true or false, got "maybe"`},
	{"gpu-exporter --kubelet=maybe", "use --kubelet or --no-kubelet"},
	{"gpu-exporter --process-limit=x", `--process-limit must be a whole number, got "x"`},
	{"gpu-exporter --process-limit=-1", "--process-limit must be at least 0, got -1"},
	{"gpu-exporter --container-limit=0", "--container-limit must be at least 1, got 0"},
	{"gpu-exporter --container-limit=1.5", `--container-limit must be a whole number, got "1.5"`},
	{"gpu-exporter --compat=prometheus", `--compat must be one of dcgm-4.8, dcgm-4.9, nvidia-smi, got "prometheus"`},
	{"gpu-exporter --compat=dcgm-4.7", "did you mean dcgm-4.8?"},
	{"gpu-exporter --metrics=defaults", "did you mean default?"},
	{"gpu-exporter --collector.powr", "did you mean --collector.power?"},
	{"gpu-exporter --metric-denylist=gpu_(", `--metric-denylist "gpu_("`},
	{"gpu-exporter --metric-allowlist=(", "--metric-allowlist"},
	{"gpu-exporter --metric-allowlist=nothing_such", "leave no metric"},
	{"gpu-exporter --log.level=loud", "--log.level: unrecognized log level loud (Minimum level of log messages: debug, info, warn, error)"},
	{"gpu-exporter --log.format=xml", "--log.format"},
	{"gpu-exporter --log.level=info --log.level=warn", "--log.level is set twice"},
	{"gpu-exporter --web.listen-address=BUSY", "BUSY"},
	{"gpu-exporter --web.listen-address=nothing", "--web.listen-address nothing"},
	{"gpu-exporter --web.config.file=DIR/web.yml", "DIR/web.yml"},
	{"gpu-exporter --no-kubelet --kubelet.checkpoint=DIR/old", "--kubelet.checkpoint requires --kubelet"},
	{"gpu-exporter --kubernetes.kubeconfig=DIR/old", "--kubernetes.kubeconfig requires"},
	{"gpu-exporter --kubernetes.pods --kubernetes.kubeconfig=DIR/none", "--kubernetes.kubeconfig: open DIR/none"},
	{"gpu-exporter docter", `unexpected argument "docter": did you mean doctor?`},
	{"gpu-exporter surprise", `unexpected argument "surprise"`},
	{"gpu-exporter doctor --output=xml", "--output must be text or json"},
	{"gpu-exporter doctor --output", "--output must be text or json"},
	{"gpu-exporter doctor --pol.fast=1s", "did you mean --poll.fast?"},
	{"gpu-exporter record", "--output is required: File to write"},
	{"gpu-exporter record --output=DIR/old", "old exists"},
	{"gpu-exporter record --output=DIR/none/new", "--output: stat DIR/none"},
	{"gpu-exporter record --output=", "--output must be a file, or - for standard output"},
	{"gpu-exporter record --output=- --loud", "unknown flag --loud"},
	{"gpu-exporter record --output=- surprise", `unexpected argument "surprise"`},
	{"gpu-exporter record --output=- --duration=1ms", "--duration must be from 2s"},
	{"gpu-exporter record --output=- --duration=long", `--duration must be a duration such as 500ms, 10s or 5m, got "long"`},
	{"gpu-exporter record --output=DIR/new --duration=1h", "--duration must be from 2s to 10m0s"},
	{"gpu-exporter health --timeout=soon", "--timeout must be a duration"},
	{"gpu-exporter conformance --ur=x", "did you mean --url?"},
	{"gpu-report", "--prometheus.url is required, or the environment variable GPU_REPORT_PROMETHEUS_URL"},
	{"gpu-report --prometheus.url=prometheus:9090", "http://prometheus:9090"},
	{"gpu-report --prometheus.ur=http://127.0.0.1:1", "did you mean --prometheus.url?"},
	{"GPU_REPORT_PROMETHEUS_URI=x gpu-report", "did you mean GPU_REPORT_PROMETHEUS_URL?"},
	{"URL gpu-report --group-by=team", "label:team is a label"},
	{"URL gpu-report --format=pdf", `--format must be one of`},
	{"URL gpu-report --format=html,md", "set --out"},
	{"URL gpu-report --format=csv", "choose it with --level=fleet, cluster,"},
	{"URL gpu-report --format=csv --level=fleet,node --out=DIR/x.csv", "one level to a file"},
	{"URL gpu-report --level=fleet", "--level and --query need --format=csv"},
	{"URL gpu-report --query", "--level and --query need --format=csv"},
	{"URL gpu-report --format=csv --level=team", "that of a label needs --group-by=label:team"},
	{"URL gpu-report --format=csv --level=teams --group-by=label:team", "--level must be one of fleet,"},
	{"URL gpu-report --format=csv --level=projection", "--level=projection needs --prices"},
	{"URL gpu-report --format=csv --level=change", "--level=change needs --compare"},
	{"URL gpu-report --format=csv --level=outcome", "--level=outcome needs --history"},
	{"URL gpu-report --fail-on=waste>0.1", "waste was renamed: use unused"},
	{"URL gpu-report --prometheus.header=x", "--prometheus.header must be NAME:VALUE, got x"},
	{"URL gpu-report --out=DIR/none/report.html --format=html", "--out=DIR/none/report.html: stat DIR/none"},
	{"URL gpu-report --out=DIR/old/reports --format=html,csv", "not a directory"},
	{"URL gpu-report --history=DIR/old", "--history"},
	{"URL gpu-report --compare=DIR/old", "--compare=DIR/old"},
	{"URL gpu-report --fail-on=idle>30", "a fraction of all hours"},
	{"URL gpu-report --fail-on=idel>0.3", "--fail-on must be NAME>VALUE with one of"},
	{"URL gpu-report --from=soon", "30d"},
	{"URL gpu-report --time-zone=Mars", "Europe/Berlin"},
	{"URL gpu-report --goal=70", "--goal must be from 0 to 1"},
	{"URL gpu-report --metrics=dgcm", "did you mean dcgm?"},
	{"URL gpu-report --advice.budget=x", "--advice.budget must be a number"},
	{"URL gpu-report --advice.min-idle=5", "--advice.min-idle must be a duration such as 12h or 7d"},
	{"gpu-migrate", "a command is required: check"},
	{"gpu-migrate chek", "did you mean check?"},
	{"gpu-migrate check", "FILE is required"},
	{"gpu-migrate check --output=yaml DIR/old", `--output must be one of text, json, got "yaml"`},
	{"gpu-migrate check --rewrit DIR/old", "did you mean --rewrite?"},
	{"gpu-migrate --rewrite DIR/old", "a command is required: check"},
	{"gpu-migrate check --rewrite=x DIR/old", "--rewrite takes no value"},
	{"gpu-migrate check --output", "--output needs a value: Form of the result"},
	{"standin", "--scenario is required"},
	{"standin --scenario=DIR/none true", "--scenario: "},
	{"standin --scenario=DIR/old true", "--scenario: "},
	{"standin fleet --nodes=many", "--nodes must be a whole number"},
	{"standin fleet --preset=dem", `must be demo`},
	{"standin fleet --gpus=99", "nodes with 1 to 16 GPUs"},
	{"standin fleet --epoch=now", "--epoch: "},
	{"standin fleet dance", `unexpected argument "dance"`},
}

// A refusal is one line, has the code 2, and comes before anything is started, queried or written.
func TestRefusals(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer busy.Close()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "web.yml"), []byte("tls_server_config:\n  cert_file: nothing.pem\n"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600))
	bin := filepath.Dir(machine.Binary(t))
	built := exec.Command("go", "build", "-o", filepath.Join(bin, "standin"), "./cmd/standin")
	built.Dir = machine.Root(t)
	if out, err := built.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range refusedLines {
		t.Run(r.line, func(t *testing.T) {
			fill := strings.NewReplacer("DIR", dir, "BUSY", busy.Addr().String(), "URL ", "GPU_REPORT_PROMETHEUS_URL=http://127.0.0.1:1 ")
			words := strings.Fields(fill.Replace(r.line))
			var env []string
			for strings.Contains(words[0], "=") {
				env, words = append(env, words[0]), words[1:]
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			cmd := exec.CommandContext(ctx, filepath.Join(bin, words[0]), words[1:]...)
			out := oneLine{stop: stop}
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &out
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
				t.Errorf("it ended with %v, not exit code %d", err, exitUsage)
			}
			if said := strings.TrimSpace(out.String()); strings.Contains(said, "\n") || !strings.Contains(said, fill.Replace(r.want)) {
				t.Errorf("not one line with %q:\n%s", r.want, said)
			}
		})
	}
	files, err := os.ReadDir(dir)
	must.OK(t, err)
	if len(files) != 2 || must.Read(t, filepath.Join(dir, "old")) != "old" {
		t.Errorf("something was written: %v", files)
	}
}

// oneLine keeps what a program prints, and stops it after the first line and one more: it was started.
type oneLine struct {
	bytes.Buffer
	stop func()
}

// Write implements io.Writer.
func (o *oneLine) Write(b []byte) (int, error) {
	n, err := o.Buffer.Write(b)
	if bytes.Count(o.Bytes(), []byte("\n")) > 1 {
		o.stop()
	}
	return n, err
}
