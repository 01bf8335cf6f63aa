package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sharingSources are the sources of allocations, in the order of their precedence, and what enables them.
var sharingSources = []struct{ name, enable string }{
	{"podresources", "socket"}, {"checkpoint", "`features.deviceCheckpoint`"}, {"annotation", "`features.podMetadata`"},
	{"dra_checkpoint", "`features.draCheckpoint`"},
	{"resource_slices", "`features.resourceSlices`"}, {"slurm_job_mapping", "`features.slurmJobMapping`"},
	{"gpu_fractioning", "`features.gpuFractioning`"},
}

// sharingSchemes renders a row for each file of testdata/sharing from what its cases expect; the README there describes the format.
func sharingSchemes(root string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(root, "testdata", "sharing", "*.txt"))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("| scheme | resources | GPU resolved by | limits | notes | upstream |\n|---|---|---|---|---|---|\n")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		var scheme, about, project, revision, ran string
		var resources, sources, limits []string
		for line := range strings.Lines(string(text)) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch word {
			case "scheme":
				scheme = rest
			case "source":
				project, _, _ = strings.Cut(rest, " ")
			case "revision":
				revision = rest
			case "ran":
				_, ran, _ = strings.Cut(rest, " ")
			case "about":
				about = strings.TrimSpace(about + " " + rest)
			case "want": // MODE CONTAINER RESOURCE GPU … SOURCE
				words := strings.Fields(rest)
				if len(words) < 5 || words[3] == "unresolved" {
					continue
				}
				resources = append(resources, "`"+words[2]+"`")
				sources = append(sources, words[len(words)-1])
				for _, w := range words[4:] {
					if strings.HasSuffix(w, "MiB") {
						limits = append(limits, "memory")
					} else if strings.HasSuffix(w, "%") {
						limits = append(limits, "compute")
					}
				}
			}
		}
		var by []string
		for _, s := range sharingSources {
			if slices.Contains(sources, s.name) {
				by = append(by, s.enable)
			}
		}
		if by == nil {
			by = []string{"nothing"}
		}
		read := project
		if revision != "" {
			read += "@" + revision
		}
		if ran != "" {
			read += "; " + ran
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", scheme, list(resources), strings.Join(by, ", "), list(limits), about, read)
	}
	return out.String(), nil
}

// list joins the distinct words in their order.
func list(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}
