package cluster_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// token is one of a service account, as a kubelet would mount it.
func (p *plane) token(t *testing.T, namespace, name string) string {
	t.Helper()
	seconds := int64(3600)
	r, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	noErr(t, err)
	return r.Status.Token
}

// exporter runs the real exporter on the demo's node with the fake driver, and returns its URL and log file.
func exporter(t *testing.T, flags ...string) (page, said string) {
	t.Helper()
	cmd := exec.Command("make", "build")
	cmd.Dir = repository()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	standin := built(t, ".", "./cmd/standin", "standin")
	at := address(t)
	args := append([]string{"--quiet", "--scenario=" + filepath.Join(repository(), "testdata", "scenarios", "demo.scenario"),
		"--pods=" + filepath.Join(repository(), "testdata", "kubelet", "demo.pods"), "--",
		filepath.Join(repository(), "bin", "gpu-exporter"),
		"--web.listen-address=" + at, "--poll.kubelet=1s"}, flags...)
	p, err := start(t.TempDir(), standin, args...)
	noErr(t, err)
	t.Cleanup(p.stop)
	t.Cleanup(func() {
		select {
		case <-p.done:
			t.Errorf("the exporter ended: %v", p.err)
		default:
		}
		if t.Failed() {
			t.Logf("log of the exporter:\n%s", p.output())
		}
	})
	return "http://" + at, p.log
}

// series returns the lines of a page of metrics that begin so, in order.
func series(t *testing.T, page, begins string) ([]string, error) {
	t.Helper()
	resp, err := http.Get(page + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), begins) {
			out = append(out, lines.Text())
		}
	}
	return out, lines.Err()
}

// shows waits until a series has all of the labels.
func shows(t *testing.T, page, begins string, labels ...string) {
	t.Helper()
	eventually(t, begins+" shows "+strings.Join(labels, " "), func() error {
		lines, err := series(t, page, begins)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) })
		}) {
			return nil
		}
		return fmt.Errorf("there is\n%s", strings.Join(lines, "\n"))
	})
}

// pod makes a pod on a node, as a scheduler would have put it there.
func (p *plane) pod(t *testing.T, namespace, name, node string, labels map[string]string, owner *unstructured.Unstructured) string {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "main", "image": "example.com/image"}}}}}
	o.SetLabels(labels)
	if owner != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	p.account(t, namespace, "default")
	got, err := p.resource(t, o).Create(t.Context(), o, metav1.CreateOptions{})
	noErr(t, err)
	return string(got.GetUID())
}

// statefulSet makes an owner. Its controller does not run here.
func (p *plane) statefulSet(t *testing.T, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o := parse(t, fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: %s, namespace: %s}\nspec: {serviceName: x, "+
		"selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: "+
		"example.com/image}]}}}\n", name, namespace))[0]
	got, err := p.apply(t, o)
	noErr(t, err)
	return got
}

// request is a line of the audit log.
type request struct {
	Verb, RequestURI string
	User             struct{ Username string }
	UserAgent        string
	ResponseStatus   struct{ Code int }
}

// requests are those of a user.
func (p *plane) requests(t *testing.T, user string) []request {
	t.Helper()
	f, err := os.Open(p.audit)
	noErr(t, err)
	defer f.Close()
	var out []request
	lines := json.NewDecoder(f)
	for {
		var r request
		if err := lines.Decode(&r); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if r.User.Username == user {
			out = append(out, r)
		}
	}
}

// The exporter watches the pods of its own node only, with the token and the permissions of the chart.
func TestExporterWatchesItsPods(t *testing.T) {
	p := startPlane(t, admission("privileged"))
	p.namespace(t, "monitoring", "")
	p.helm(t, "install", "gpu-exporter", chart(), "-n", "monitoring", "--set", "features.podMetadata=true")
	user := "system:serviceaccount:monitoring:gpu-exporter"
	tokenFile := write(t, p.dir, "token", p.token(t, "monitoring", "gpu-exporter"))

	for _, n := range []string{"ml-training", "notebooks", "research"} {
		p.namespace(t, n, "")
	}
	owner := p.statefulSet(t, "ml-training", "llama-pretrain")
	uid := p.pod(t, "ml-training", "llama-pretrain-0", "gpu-node-1", map[string]string{"team": "language", "secret-plan": "x"}, owner)
	// The demo's kubelet lists these too, but according to the API server they are on another node, or on none.
	p.pod(t, "notebooks", "jupyter-amira", "gpu-node-2", map[string]string{"team": "elsewhere"}, nil)
	p.pod(t, "notebooks", "jupyter-bo", "", map[string]string{"team": "nowhere"}, nil)
	flags := []string{"--node-name=gpu-node-1", "--kubernetes.pods", "--kubernetes.pod-label=team", "--kubernetes.api-server=" + p.url,
		"--kubernetes.token-file=" + tokenFile, "--kubernetes.ca-file=" + p.ca}
	page, said := exporter(t, flags...)

	const up = `gpu_exporter_source_up{`
	shows(t, page, up, `source="api"`, "} 1")
	training := `gpu_pod_info{`
	shows(t, page, training, `pod="llama-pretrain-0"`, `pod_uid="`+uid+`"`, `workload="llama-pretrain"`, `workload_type="StatefulSet"`,
		`label_team="language"`)

	// Changes are followed: a label, a new pod, a pod recreated under the same name.
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "llama-pretrain-0", "namespace": "ml-training"}}}
	p.patch(t, pod, `{"metadata":{"labels":{"team":"speech"}}}`)
	shows(t, page, training, `pod="llama-pretrain-0"`, `pod_uid="`+uid+`"`, `label_team="speech"`)
	late := p.pod(t, "research", "abandoned-experiment-7f9c", "gpu-node-1", map[string]string{"team": "late"}, nil)
	shows(t, page, training, `pod="abandoned-experiment-7f9c"`, `pod_uid="`+late+`"`, `label_team="late"`)
	at := int64(0)
	noErr(t, p.resource(t, pod).Delete(t.Context(), pod.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &at}))
	again := p.pod(t, "ml-training", "llama-pretrain-0", "gpu-node-1", map[string]string{"team": "again"}, owner)
	shows(t, page, training, `pod="llama-pretrain-0"`, `pod_uid="`+again+`"`, `label_team="again"`)
	if again == uid {
		t.Error("the recreated pod has the UID of the old one")
	}

	// Nothing of another node's pods is exported, although the kubelet lists such names, nor a label that was not
	// requested.
	resp, err := http.Get(page + "/metrics")
	noErr(t, err)
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	noErr(t, err)
	for _, not := range []string{"elsewhere", "nowhere", "secret-plan", "secret_plan"} {
		if strings.Contains(string(text), not) {
			t.Errorf("the metrics contain %q", not)
		}
	}

	// None of its requests was refused.
	for _, r := range p.requests(t, user) {
		if r.ResponseStatus.Code != http.StatusOK {
			t.Errorf("the server answered %+v", r)
		}
	}

	// The server restarts. For a moment it has no roles and refuses requests.
	p.server.stop()
	shows(t, page, up, `source="api"`, "} 0")
	shows(t, page, training, `pod="llama-pretrain-0"`, `label_team="again"`) // the last answer is used meanwhile
	p.serve(t)
	shows(t, page, up, `source="api"`, "} 1")
	p.patch(t, pod, `{"metadata":{"labels":{"team":"after-the-restart"}}}`)
	shows(t, page, training, `pod="llama-pretrain-0"`, `label_team="after-the-restart"`)

	// Every request was one for the pods of this node.
	requests := p.requests(t, user)
	if len(requests) < 2 {
		t.Fatalf("the server's log has %d requests of %s", len(requests), user)
	}
	for _, r := range requests {
		u, err := url.Parse(r.RequestURI)
		noErr(t, err)
		if selector := u.Query().Get("fieldSelector"); u.Path != "/api/v1/pods" ||
			!slices.Contains(strings.Split(selector, ","), "spec.nodeName=gpu-node-1") ||
			(r.Verb != "list" && r.Verb != "watch") || r.UserAgent != "gpu-exporter" {
			t.Errorf("the exporter requested %+v", r)
		}
	}
	// The response has the metadata of this node's pods only.
	code, body, err := p.get(t, p.token(t, "monitoring", "gpu-exporter"), requests[0].RequestURI,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if err != nil || code != http.StatusOK || !strings.Contains(body, `"kind":"PartialObjectMetadataList"`) {
		t.Errorf("the request of the exporter, made again: %v %d %.300s", err, code, body)
	}
	for _, want := range []string{`"llama-pretrain-0"`, `"abandoned-experiment-7f9c"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the response has no %s", want)
		}
	}
	for _, not := range []string{`"spec":{`, "jupyter"} {
		if strings.Contains(body, not) {
			t.Errorf("the response has %s", not)
		}
	}

	// Without the role the exporter logs what to grant, continues with the kubelet's data, and uses the role once it
	// exists.
	binding := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "gpu-exporter"}}}
	kept, err := p.read(t, binding)
	noErr(t, err)
	noErr(t, p.resource(t, binding).Delete(t.Context(), binding.GetName(), metav1.DeleteOptions{}))
	p.server.stop() // an open watch would go on
	p.serve(t)
	logged(t, said, "forbidden: grant the service account list and watch on pods by a ClusterRole")
	shows(t, page, up, `source="api"`, "} 0")
	shows(t, page, "gpu_container_allocation_ratio{", `pod="llama-pretrain-0"`)
	kept.SetResourceVersion("")
	kept.SetManagedFields(nil)
	kept.SetUID("")
	if _, err := p.apply(t, kept); err != nil {
		t.Fatal(err)
	}
	shows(t, page, up, `source="api"`, "} 1")

	// An invalid token, then a valid one: the file is read again.
	write(t, p.dir, "token", "not-a-token")
	p.server.stop()
	p.serve(t)
	logged(t, said, "token refused: mount a current token")
	shows(t, page, up, `source="api"`, "} 0")
	write(t, p.dir, "token", p.token(t, "monitoring", "gpu-exporter"))
	shows(t, page, up, `source="api"`, "} 1")
	if text, err := os.ReadFile(said); err != nil || regexp.MustCompile(`eyJ[A-Za-z0-9_-]{20}|not-a-token`).Match(text) {
		t.Errorf("the log has a token: %v", err)
	}
}

// logged waits until a log contains a text.
func logged(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, "the exporter says "+want, func() error {
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("log:\n%s", text[max(0, len(text)-2000):])
		}
		return err
	})
}
