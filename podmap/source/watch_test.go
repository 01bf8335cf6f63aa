package source

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// apiServer is an API server that responds with what the test has put in it.
type apiServer struct {
	*httptest.Server
	ca, token string // files

	accepted string // the token
	list     http.HandlerFunc
	watch    http.HandlerFunc
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{accepted: "secret"}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.StartTLS()
	t.Cleanup(a.Close)
	dir := t.TempDir()
	a.ca, a.token = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	for file, data := range map[string][]byte{a.ca: cert, a.token: []byte("secret\n")} {
		must.OK(t, os.WriteFile(file, data, 0o600))
	}
	return a
}

func (a *apiServer) options() APIOptions {
	return APIOptions{Node: "n1", Server: a.URL + "/", TokenFile: a.token, CAFile: a.ca,
		Annotation: func(name string) bool { return name != "other" }, Jitter: func() float64 { return 0.5 }}
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	accept, handle := acceptList, a.list
	if r.URL.Query().Get("watch") == "true" {
		accept, handle = acceptWatch, a.watch
	}
	refuse := func(code int, text string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","code":%d,"message":%q}`, code, text)
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+a.accepted:
		refuse(401, "Unauthorized")
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" || r.Header.Get("Accept") != accept:
		refuse(400, "unexpected "+r.Method+" "+r.URL.Path+" "+r.Header.Get("Accept"))
	case r.URL.Query().Get("fieldSelector") != "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed":
		refuse(403, "the whole cluster's pods")
	default:
		handle(w, r)
	}
}

// respond sends a text.
func respond(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// apiPod renders a pod's metadata; words are "label:k=v" and "k=v" for annotations.
func apiPod(name, uid, version string, words ...string) string {
	namespace, name, _ := strings.Cut(name, "/")
	labels, annotations := map[string]string{}, map[string]string{}
	for _, word := range words {
		k, v, _ := strings.Cut(strings.TrimPrefix(word, "label:"), "=")
		if strings.HasPrefix(word, "label:") {
			labels[k] = v
		} else {
			annotations[k] = v
		}
	}
	out, _ := json.Marshal(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
		"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version, "labels": labels, "annotations": annotations,
		"managedFields": []any{map[string]any{"manager": "kubelet", "fieldsV1": map[string]any{"f:status": map[string]any{}}}},
		"ownerReferences": []any{map[string]any{"kind": "Node", "name": "n1"},
			map[string]any{"kind": "ReplicaSet", "name": "web-5d4f", "controller": true}}}})
	return string(out)
}

func apiList(version string, pods ...string) string {
	return `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"` + version + `"},"items":[` + strings.Join(pods, ",") + `]}`
}

func apiEvent(kind, object string) string { return `{"type":"` + kind + `","object":` + object + `}` }

// The server gets the token that is in the file now, encrypted, and the right requests for metadata.
func TestTheTokenIsRotated(t *testing.T) {
	a := newAPIServer(t)
	a.list, a.watch = respond(apiList("10", apiPod("a/p", "u", "7"))), respond(apiEvent("DELETED", apiPod("a/p", "u", "11")))
	w := NewWatch(a.options(), Options{Clock: time.Now})
	for _, c := range []struct{ file, accepted, want string }{{"secret\n", "secret", ""}, {"secret", "rotated", "HTTP 401: Unauthorized"},
		{"rotated", "rotated", ""}} {
		mustWrite(t, a.token, c.file)
		a.accepted = c.accepted
		version, err := w.list(t.Context())
		if err == nil && len(w.Pods().Names()) == 1 {
			version, err = w.watch(t.Context(), version)
		}
		if c.want == "" && (err != nil || version != "11" || len(w.Pods().Names()) != 0) ||
			c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%+v: version %s, %v", c, version, err)
		}
	}
	w.client.CloseIdleConnections()
}

func object(namespace, name string, annotations map[string]string) *apiObject {
	o := &apiObject{}
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.Annotations = namespace, name, "u", annotations
	return o
}

// A local proxy of the API server is spoken to in the clear, and gets no token.
func TestNoTokenInTheClear(t *testing.T) {
	token := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token <- r.Header.Get("Authorization")
		io.WriteString(w, apiList("1", apiPod("a/p", "u", "1")))
	}))
	defer server.Close()
	a := newAPIServer(t)
	o := a.options()
	o.Server, o.CAFile = server.URL, "/nowhere"
	w := NewWatch(o, Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if version, err := w.list(t.Context()); err != nil || version != "1" {
		t.Fatal(version, err)
	}
	if got := <-token; got != "" {
		t.Errorf("sent %q", got)
	}
	w.client.CloseIdleConnections()
}

// FuzzAPI reads any list and any event.
func FuzzAPI(f *testing.F) {
	f.Add([]byte(apiPod("a/p", "u", "1", "label:runai-gpu-group=g", "hami.io/vgpu-devices-allocated=x")))
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"n","labels":null,"ownerReferences":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o apiObject
		if json.Unmarshal(data, &o) != nil {
			return
		}
		w := NewWatch(APIOptions{Annotation: func(string) bool { return true }}, Options{Clock: time.Now})
		for _, kind := range []string{"ADDED", "DELETED"} {
			table, err := w.apply(kind, &o)
			if err != nil {
				continue
			}
			for _, name := range table.Names() {
				p := table.Get(name)
				if name.Pod == "" || len(p.Labels) > maxLabels || len(p.Annotations) > maxItems {
					t.Fatalf("%+v %+v", name, p)
				}
			}
		}
	})
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ text, secret, want string }{
		{"not with Bearer abcdefghij, abcdefghij", "abcdefghij", "not with Bearer [token], [token]"},
		{"cut off at abcdefgh", "abcdefghij", "cut off at [token]"},
		{"cut off at abcdefghi", "abcdefghij", "cut off at [token]"},
		{"cut off at abcdefg", "abcdefghij", "cut off at abcdefg"},
		{"nothing of it", "abcdefghij", "nothing of it"},
		{"no token", "", "no token"},
	} {
		if got := without(c.text, c.secret); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.secret, got, c.want)
		}
	}
}
