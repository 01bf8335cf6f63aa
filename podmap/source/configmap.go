package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
)

// ConfigMapText reads a key of a ConfigMap from the API server. The error says what was requested, and which permission it
// needs.
func ConfigMapText(ctx context.Context, api APIOptions, namespace, name, key string) (string, error) {
	c := newAPIClient(api, "get on the ConfigMap")
	body, err := c.get(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/configmaps/"+url.PathEscape(name), "application/json", nil)
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %s", namespace, name, c.explain(err))
	}
	defer body.Close()
	var object struct{ Data map[string]string }
	if err := json.NewDecoder(io.LimitReader(body, maxConfigMap)).Decode(&object); err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	text, ok := object.Data[key]
	if !ok {
		return "", fmt.Errorf("ConfigMap %s/%s has no key %s", namespace, name, key)
	}
	return text, nil
}

// maxConfigMap is above what the API server stores in an object.
const maxConfigMap = 4 << 20
