package dashboards_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The SDK's strict reader refuses unknown fields, missing ones and wrong types: what it reads back is the
// schema of Grafana, and what it writes again is what we wrote.
func TestDashboardsAreReadBackStrictly(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for i, f := range files(t) {
		t.Run(f.Name, func(t *testing.T) {
			var d dashboard.Dashboard
			if err := well(d.UnmarshalJSONStrict(f.Pretty)); err != nil {
				t.Fatal(err)
			}
			if err := d.Validate(); err != nil {
				t.Fatal(err)
			}
			// The strict reader checks panels and then drops them, so what is written again comes from the other.
			d = dashboard.Dashboard{}
			if err := json.Unmarshal(f.Pretty, &d); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal(f.Compact, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(again, &got); err != nil {
				t.Fatal(err)
			}
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
