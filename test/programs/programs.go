// Package programs builds the programs of the repository and the real servers of tools/ into bin/.
package programs

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is one that can be built.
type Program string

// The programs, by the names that they have in bin/.
const (
	Exporter   Program = "gpu-exporter"
	Migrate    Program = "gpu-migrate"
	Report     Program = "gpu-report"
	Standin    Program = "standin"
	Prometheus Program = "prometheus"
	Promtool   Program = "promtool"
	VMAlert    Program = "vmalert"
	Helm       Program = "helm"
	Kustomize  Program = "kustomize"

	VictoriaMetrics Program = "victoria-metrics"
	VMAlertTool     Program = "vmalert-tool"
	Alertmanager    Program = "alertmanager"
)

// command builds the program into out, from a directory below the repository's root.
func (p Program) command(out string) (dir string, args []string) {
	switch p {
	case Exporter, Migrate:
		return "", []string{"make", "build"}
	case Report:
		return "", []string{"go", "build", "-trimpath", "-o", out, "./cmd/report"}
	case Standin:
		return "", []string{"go", "build", "-o", out, "./cmd/standin"}
	case Prometheus, Promtool:
		// Without the clouds' service discoveries these build in minutes; static targets, files and HTTP are enough here.
		return "tools/prometheus", []string{"go", "build", "-tags", "remove_all_sd", "-o", out,
			"github.com/prometheus/prometheus/cmd/" + string(p)}
	case Alertmanager:
		// Modules of later versions lack the pages that the program embeds.
		return "tools/alertmanager", []string{"go", "build", "-o", out, "github.com/prometheus/alertmanager/cmd/alertmanager"}
	case Helm:
		return "tools/helm", []string{"go", "build", "-o", out, "helm.sh/helm/v4/cmd/helm"}
	case Kustomize:
		return "tools/helm", []string{"go", "build", "-o", out, "sigs.k8s.io/kustomize/kustomize/v5"}
	default:
		return "tools/victoriametrics", []string{"go", "build", "-o", out, "github.com/VictoriaMetrics/VictoriaMetrics/app/" + string(p)}
	}
}

// Path is where the program lies once it is built.
func (p Program) Path(root string) string { return filepath.Join(root, "bin", string(p)) }

// Build builds the program of the repository at root. Go's cache makes the second time quick.
func Build(ctx context.Context, root string, p Program) error {
	dir, args := p.command(p.Path(root))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(root, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
