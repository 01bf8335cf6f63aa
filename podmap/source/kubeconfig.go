package source

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v2"
)

// ReadKubeconfig sets the server, the certificate authority and the token of the current context of a kubeconfig, unless they are
// set. They have to be files, which are read for every request: a token in the kubeconfig itself would expire.
func (o *APIOptions) ReadKubeconfig(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file struct {
		CurrentContext string `yaml:"current-context"`
		Contexts       []struct {
			Name    string
			Context struct{ Cluster, User string }
		}
		Clusters []struct {
			Name    string
			Cluster struct {
				Server string
				CA     string `yaml:"certificate-authority"`
			}
		}
		Users []struct {
			Name string
			User struct {
				TokenFile string `yaml:"tokenFile"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	at := func(to *string, name string) {
		if name != "" && !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		if *to == "" {
			*to = name
		}
	}
	for _, c := range file.Contexts {
		if c.Name != file.CurrentContext {
			continue
		}
		for _, cluster := range file.Clusters {
			if cluster.Name == c.Context.Cluster {
				if at(&o.CAFile, cluster.Cluster.CA); o.Server == "" {
					o.Server = cluster.Cluster.Server
				}
			}
		}
		for _, user := range file.Users {
			if user.Name == c.Context.User {
				at(&o.TokenFile, user.User.TokenFile)
			}
		}
	}
	if o.Server == "" || o.TokenFile == "" {
		return errors.New(path + " has no server and tokenFile of its current context")
	}
	return nil
}
