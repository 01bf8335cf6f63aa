package source

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// The extended resources of containers, and of init containers, which may be sidecars, by whoever set them. The format is
// that of testdata/sharing/dra-extended.txt.
func TestReadRequests(t *testing.T) {
	entry := func(containers ...string) string {
		return `{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{}},"f:spec":{"f:containers":{` +
			strings.Join(containers, ",") + `},"f:initContainers":{"k:{\"name\":\"init\"}":{"f:resources":{"f:limits":{"f:a/b":{}}}}}}}}`
	}
	container := func(name, limits, requests string) string {
		return fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:image":{},"f:env":{".":{},"k:{\"name\":\"X\"}":{".":{}}},`+
			`"f:resources":{".":{},"f:limits":{".":{}%s},"f:requests":{".":{}%s}}}`, name, limits, requests)
	}
	many := ""
	for i := range 65 {
		many += fmt.Sprintf(`,"f:example.com/r%d":{}`, i)
	}
	type want = map[string][]string
	for _, c := range []struct {
		managed string
		want    want
	}{
		{`[` + entry(container("main", `,"f:nvidia.com/gpu":{},"f:cpu":{}`, `,"f:memory":{},"f:nvidia.com/gpu":{}`),
			container("web", `,"f:hugepages-2Mi":{},"f:x.kubernetes.io/y":{}`, "")) + `]`,
			want{"init": {"a/b"}, "main": {"nvidia.com/gpu"}}},
		{`[` + entry(container("main", "", `,"f:rdma/hca":{}`)) + `,{"subresource":"status","fieldsV1":{"f:status":{}}},` +
			entry(container("main", "", `,"f:nvidia.com/gpu":{}`), container("b", `,"f:deviceclass.resource.kubernetes.io/gpu":{}`, "")) +
			`]`, want{"init": {"a/b"}, "main": {"nvidia.com/gpu", "rdma/hca"}, "b": {"deviceclass.resource.kubernetes.io/gpu"}}},
		{`[{"fieldsV1":[]},{"fieldsV1":"x"},{},{"fieldsV1":{"f:spec":{"f:containers":{"v:1":{"f:resources":{"f:limits":{"f:a/b":{}}}},` +
			`"k:x":{},"k:{}":{"f:resources":{"f:limits":{"f:a/b":{}}}}}}}}]`, want{}},
		{`[` + entry(container("main", many, "")) + `]`, nil},
		{`[` + entry(container("main", `,"f:a/`+strings.Repeat("x", maxName)+`":{}`, "")) + `]`, nil},
		{`{}`, nil}, {`null`, want{}}, {``, nil},
	} {
		if got := ReadRequests([]byte(c.managed)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.managed, got, c.want)
		}
	}
}
