// Package cluster_test installs what deploy/ ships into a control plane made of Kubernetes itself: its kube-apiserver and
// kube-controller-manager with a real etcd, each built from the modules of one release. Every object is applied and read back, the
// pods are admitted or refused, Helm installs, upgrades and removes, every permission of the service account is checked, and the
// exporter watches its node's pods; a pod is only an object in these tests. TestCluster adds a scheduler and two nodes, each with a real
// kubelet and containerd, on which the pods run.
//
// It is a module of its own and not in `make check`, because building Kubernetes takes minutes: run make check-cluster.
package cluster_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// adminToken is that of the user who installs.
const adminToken = "admin-of-a-control-plane-that-lives-for-one-test"

// release is the version of Kubernetes that the programs are built from, and the file that pins it.
func release() (name, modfile string, err error) {
	switch name := os.Getenv("KUBERNETES"); name {
	case "", "1.37":
		return "1.37", "go.mod", nil
	case "1.36", "1.34":
		return name, "kubernetes-" + name + ".mod", nil
	default:
		return "", "", fmt.Errorf("KUBERNETES=%s: 1.37, 1.36 and 1.34 are pinned here", name)
	}
}

// repository is the directory of the repository.
func repository() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
}

// programs builds the control plane and kubectl once, and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	name, modfile, err := release()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(repository(), "bin", "kubernetes-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	version, err := exec.Command("go", "list", "-modfile="+modfile, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("version of Kubernetes in %s: %w", modfile, err)
	}
	// The server's version is stamped, as in its own build: charts query it.
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
	for program, pkg := range map[string]string{"etcd": "go.etcd.io/etcd/server/v3",
		"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
		"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager", "kubectl": "k8s.io/kubernetes/cmd/kubectl",
		"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler", "kubelet": "k8s.io/kubernetes/cmd/kubelet"} {
		cmd := exec.Command("go", "build", "-trimpath", "-modfile="+modfile, "-ldflags="+flags, "-o", filepath.Join(dir, program), pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s of Kubernetes %s: %w\n%s", program, name, err, out)
		}
	}
	return dir, nil
})

// built makes a program of another module of ours and returns its path.
func built(t *testing.T, module, pkg, name string) string {
	t.Helper()
	path := filepath.Join(repository(), "bin", name)
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = filepath.Join(repository(), module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// plane is a control plane on the loopback.
type plane struct {
	dir        string
	url        string
	ca         string // file
	kubeconfig string // file, of the admin
	audit      string // file, a line for each request
	config     *rest.Config
	client     *kubernetes.Clientset
	objects    *dynamic.DynamicClient
	mapper     *restmapper.DeferredDiscoveryRESTMapper

	server *process
	args   []string // of the server
}

// process is a program that runs until it is stopped.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once it ended; err is then how
	err  error
}

func start(dir, program string, args ...string) (*process, error) {
	return startAs(filepath.Base(program), dir, program, args...)
}

// startAs starts a program in a process group of its own; it ends with this process.
func startAs(name, dir, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = repository(), log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	return p, nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second): // the open watches of others hold a server longer
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// output is the end of the program's output.
func (p *process) output() string {
	text, _ := os.ReadFile(p.log)
	ending := "and runs"
	select {
	case <-p.done:
		ending = fmt.Sprintf("and ended: %v", p.err)
	default:
	}
	return string(text[max(0, len(text)-3000):]) + ending
}

// address is a free one of the loopback.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer l.Close()
	return l.Addr().String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// admission is the configuration of the admission plugins: Pod Security enforces a level where a namespace names none, and the
// classes that are given are limited to namespaces whose quota allows them, as on GKE.
func admission(level string, limited ...string) string {
	text := `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: ` + level + `, warn: ` + level + `}
`
	if len(limited) > 0 {
		text += `- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [` + strings.Join(limited, ", ") + `]
`
	}
	return text
}

// controllers are those of the controller manager that have work without nodes. That of the nodes' life would find all of ours dead.
const controllers = "daemonset-controller,serviceaccount-controller,namespace-controller,garbage-collector-controller," +
	"resourcequota-controller,cronjob-controller,job-controller,root-ca-certificate-publisher-controller"

// layout is what a control plane with nodes has in addition.
type layout struct {
	dir, address, services string
	tokens                 string // lines of the file of tokens
	controllers            string
}

// startPlane runs a control plane on the loopback until the test ends.
func startPlane(t *testing.T, admission string) *plane {
	t.Helper()
	return startLayout(t, admission, layout{dir: t.TempDir(), address: address(t), services: "10.0.0.0/24", controllers: controllers})
}

func startLayout(t *testing.T, admission string, l layout) *plane {
	t.Helper()
	bin, err := programs()
	noErr(t, err)
	launched := time.Now()
	p := &plane{dir: l.dir}
	var running []*process
	t.Cleanup(func() {
		for _, r := range append(running, p.server) {
			if r == nil {
				continue
			}
			if t.Failed() && os.Getenv("VERBOSE") != "" {
				t.Logf("output of %s:\n%s", r.name, r.output())
			}
		}
		if p.server != nil {
			p.server.stop()
		}
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
	})

	listens, peers := "http://"+address(t), "http://"+address(t)
	etcd, err := start(p.dir, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(p.dir, "etcd"), "--listen-client-urls="+listens,
		"--advertise-client-urls="+listens,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers, "--unsafe-no-fsync",
		"--log-level=warn")
	noErr(t, err)
	running = append(running, etcd)

	host, port, err := net.SplitHostPort(l.address)
	noErr(t, err)
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	noErr(t, err)
	// The first block is the server's, the second that of the authority which signed it.
	_, authority := pem.Decode(certificate)
	p.ca = write(t, p.dir, "ca.crt", string(authority))
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	noErr(t, err)
	accounts := write(t, p.dir, "accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(signing)})))
	p.audit = filepath.Join(p.dir, "audit.log")
	p.url = "https://" + l.address
	p.args = []string{"--etcd-servers=" + listens, "--bind-address=" + host, "--secure-port=" + port, "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + write(t, p.dir, "server.crt", string(certificate)),
		"--tls-private-key-file=" + write(t, p.dir, "server.key", string(key)),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + accounts,
		"--service-account-signing-key-file=" + accounts,
		"--service-cluster-ip-range=" + l.services, "--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--token-auth-file=" + write(t, p.dir, "tokens.csv", adminToken+",admin,admin,system:masters\n"+l.tokens),
		"--admission-control-config-file=" + write(t, p.dir, "admission.yaml", admission),
		"--audit-policy-file=" + write(t, p.dir, "audit.yaml",
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"),
		"--audit-log-path=" + p.audit}

	p.config = &rest.Config{Host: p.url, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{CAFile: p.ca}, QPS: -1,
		WarningHandler: rest.NoWarnings{}}
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		t.Fatal(err)
	}
	if p.objects, err = dynamic.NewForConfig(p.config); err != nil {
		t.Fatal(err)
	}
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.client.Discovery()))
	p.kubeconfig = filepath.Join(p.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "test",
		Clusters:  map[string]*clientcmdapi.Cluster{"test": {Server: p.url, CertificateAuthority: p.ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"admin": {Token: adminToken}},
		Contexts:  map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "admin"}}}, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	p.serve(t)

	manager, err := start(p.dir, filepath.Join(bin, "kube-controller-manager"), "--kubeconfig="+p.kubeconfig,
		"--controllers="+l.controllers,
		"--leader-elect=false",
		"--secure-port=0", "--service-account-private-key-file="+accounts, "--root-ca-file="+p.ca, "--kube-api-qps=500",
		"--kube-api-burst=500")
	noErr(t, err)
	running = append(running, manager)
	t.Logf("the control plane was up after %.1f s", time.Since(launched).Seconds())
	return p
}

// serve starts the API server and waits until it is ready.
func (p *plane) serve(t *testing.T) {
	t.Helper()
	bin, err := programs()
	noErr(t, err)
	if p.server, err = start(p.dir, filepath.Join(bin, "kube-apiserver"), p.args...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server is ready", func() error {
		select {
		case <-p.server.done:
			t.Fatalf("kube-apiserver exited:\n%s", p.server.output())
		default:
		}
		return p.client.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
}

// eventually retries until there is no error: controllers and the exporter act asynchronously.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within 90 s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// command runs a program as the admin of the plane and returns what it writes; what it complains of is the error.
func (p *plane) command(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	home := filepath.Join(p.dir, "home")
	cmd.Dir = repository()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, complaint.String())
	}
	return out.String(), nil
}

func (p *plane) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	bin, err := programs()
	noErr(t, err)
	out, err := p.command(t, filepath.Join(bin, "kubectl"), args...)
	noErr(t, err)
	return out
}

// helmTool is Helm, as tools/helm pins it.
func helmTool(t *testing.T) string {
	t.Helper()
	return built(t, "tools/helm", "helm.sh/helm/v4/cmd/helm", "helm")
}

// helm runs Helm, with the one value that every user has to name: no image is published.
func (p *plane) helm(t *testing.T, args ...string) string {
	t.Helper()
	if slices.Contains([]string{"install", "upgrade", "template"}, args[0]) {
		args = append(args, "--set", "image.repository=registry.example.com/gpu-exporter")
	}
	out, err := p.command(t, helmTool(t), args...)
	noErr(t, err)
	return out
}

// get requests a path of the API server with a bearer token.
func (p *plane) get(t *testing.T, token, path, accept string) (int, string, error) {
	t.Helper()
	config := rest.AnonymousClientConfig(p.config)
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	return resp.StatusCode, body.String(), err
}

var errNotYet = errors.New("not yet")
