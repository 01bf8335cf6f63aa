package dashboards_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The SDK's strict reader refuses unknown fields, missing ones and wrong types: what it reads back is the
// schema of Grafana, and what it writes again is what we wrote.
func TestDashboardsAreReadBackStrictly(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for i, f := range files(t) {
		t.Run(f.Name, func(t *testing.T) {
			var d dashboard.Dashboard
			must.OK(t, well(d.UnmarshalJSONStrict(f.Pretty)))
			must.OK(t, d.Validate())
			// The strict reader checks panels and then drops them, so what is written again comes from the other.
			d = dashboard.Dashboard{}
			must.OK(t, json.Unmarshal(f.Pretty, &d))
			again, err := json.Marshal(d)
			must.OK(t, err)
			var want, got any
			must.OK(t, json.Unmarshal(f.Compact, &want))
			must.OK(t, json.Unmarshal(again, &got))
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(got)
			if !bytes.Equal(a, b) {
				t.Errorf("read back and written again it is another dashboard")
			}
			if i > 0 {
				return
			}
			// A reader that accepts anything would prove nothing. It is the same for all dashboards.
			for _, field := range []string{"gridPos", "refId", "reduceOptions", "colorMode", "templating"} {
				broken := bytes.Replace(f.Pretty, []byte(`"`+field+`"`), []byte(`"`+field+`ed"`), 1)
				if bytes.Equal(broken, f.Pretty) || well(new(dashboard.Dashboard).UnmarshalJSONStrict(broken)) == nil {
					t.Errorf("a misspelled %s passed", field)
				}
			}
		})
	}
}

func TestNoHTMLEscapes(t *testing.T) {
	for _, f := range files(t) {
		for _, escape := range []string{`\u003e`, `\u003c`, `\u0026`} {
			if bytes.Contains(f.Pretty, []byte(escape)) || bytes.Contains(f.Resource, []byte(escape)) {
				t.Errorf("%s contains %s", f.Name, escape)
			}
		}
	}
}
