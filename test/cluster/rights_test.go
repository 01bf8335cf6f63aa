package cluster_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs are checked on every resource, in addition to its own.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate",
	"state", "approve", "sign"}

// may is all that a service account may do, in one namespace or in all: "list pods", and "get /metrics" for paths.
func (p *plane) may(t *testing.T, namespace, account string, everywhere bool) []string {
	t.Helper()
	_, lists, err := p.client.Discovery().ServerGroupsAndResources()
	noErr(t, err)
	type question struct {
		text string
		spec authorizationv1.SubjectAccessReviewSpec
	}
	var permissions []question
	in := namespace
	if everywhere {
		in = ""
	}
	user := authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	ask := func(verb, group, resource string) {
		s := user
		resource, sub, _ := strings.Cut(resource, "/")
		s.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: in, Verb: verb, Group: group, Resource: resource,
			Subresource: sub}
		permissions = append(permissions, question{strings.TrimSuffix(verb+" "+resource+"/"+sub, "/") + strings.TrimSuffix(" of "+group,
			" of "), s})
	}
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		if !grouped {
			group = ""
		}
		for _, r := range list.APIResources {
			for _, verb := range verbs {
				ask(verb, group, r.Name)
			}
			for _, verb := range r.Verbs {
				if !slices.Contains(verbs, verb) {
					ask(verb, group, r.Name)
				}
			}
		}
	}
	for _, r := range []string{"users", "groups", "uids"} {
		ask("impersonate", "", r)
	}
	ask("state", "security.openshift.io", "securitycontextconstraints")
	ask("*", "*", "*")
	for _, path := range []string{"/metrics", "/logs/", "/debug/pprof/", "/configz", "/statusz", "/flagz", "/version", "/openapi/v2",
		"/*"} {
		s := user
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}
		permissions = append(permissions, question{"get " + path, s})
	}

	allowed := map[string]bool{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	next := make(chan question)
	for range 8 {
		wait.Go(func() {
			for q := range next {
				r, err := p.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
					&authorizationv1.SubjectAccessReview{Spec: q.spec}, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("%s: %v", q.text, err)
					continue
				}
				if r.Status.Allowed {
					mu.Lock()
					allowed[q.text] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, q := range permissions {
		next <- q
	}
	close(next)
	wait.Wait()
	if len(permissions) < 1500 {
		t.Errorf("only %d permissions were checked", len(permissions))
	}
	return slices.Sorted(maps.Keys(allowed))
}

// without are the entries that others do not have.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// The service account may do exactly what its option names, beyond what every account of the cluster may.
func TestRights(t *testing.T) {
	p := startPlane(t, admission("privileged"))
	p.prepare(t, true)
	p.namespace(t, "elsewhere", "")
	p.account(t, "elsewhere", "nobody")
	for _, everywhere := range []bool{true, false} {
		nobody := p.may(t, "elsewhere", "nobody", everywhere)
		if !slices.Contains(nobody, "create selfsubjectaccessreviews of authorization.k8s.io") || len(nobody) > 30 {
			t.Errorf("every account has the permission %q", nobody)
		}
		for _, c := range []struct {
			name string
			args []string
			want []string
		}{
			{"default", nil, nil},
			{"everything but the pods", []string{"-f", cases(t)["everything"], "--set",
				"features.podMetadata=false,features.podLabels=null"}, []string{"list resourceslices of resource.k8s.io"}},
			{"everything", []string{"-f", cases(t)["everything"]},
				[]string{"list pods", "list resourceslices of resource.k8s.io", "watch pods"}},
			{"openshift", []string{"-f", cases(t)["openshift"]}, nil},
		} {
			p.namespace(t, "monitoring", "privileged")
			p.helm(t, append([]string{"upgrade", "--install", "--reset-values", "gpu-exporter", chart(), "-n", "monitoring"}, c.args...)...)
			// The server learns of a role a moment after it was made or taken away.
			eventually(t, fmt.Sprintf("%s: the service account may do what it should, everywhere: %v", c.name, everywhere), func() error {
				if got := without(p.may(t, "monitoring", "gpu-exporter", everywhere), nobody); !slices.Equal(got, c.want) {
					return fmt.Errorf("it may %q, and should %q", got, c.want)
				}
				return nil
			})
			// No other account has a permission, including the namespace's default account.
			p.account(t, "monitoring", "default")
			if got := without(p.may(t, "monitoring", "default", everywhere), nobody); len(got) > 0 {
				t.Errorf("%s: the account default may %q", c.name, got)
			}
		}
		p.helm(t, "upgrade", "--reset-values", "gpu-exporter", chart(), "-n", "monitoring", "-f", cases(t)["everything"])
	}

	// The same with the token itself, by the server's responses.
	p.pod(t, "elsewhere", "here", "node-1", nil, nil)
	p.pod(t, "elsewhere", "there", "node-2", nil, nil)
	token := p.token(t, "monitoring", "gpu-exporter")
	for _, c := range []struct {
		path  string
		code  int
		has   string
		lacks string
	}{
		{"/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", http.StatusOK, `"here"`, `"there"`},
		{"/api/v1/pods?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName%3Dnode-1", http.StatusOK, `"here"`, `"there"`},
		{"/api/v1/namespaces/elsewhere/pods/here", http.StatusForbidden, "cannot get resource", ""},
		{"/api/v1/namespaces/elsewhere/pods/here/log", http.StatusForbidden, "cannot get resource", ""},
		{"/api/v1/secrets", http.StatusForbidden, "cannot list resource", ""},
		{"/api/v1/namespaces/monitoring/secrets", http.StatusForbidden, "cannot list resource", ""},
		{"/api/v1/nodes", http.StatusForbidden, "cannot list resource", ""},
		{"/api/v1/namespaces", http.StatusForbidden, "cannot list resource", ""},
		{"/apis/apps/v1/daemonsets", http.StatusForbidden, "cannot list resource", ""},
	} {
		code, body, err := p.get(t, token, c.path, "application/json")
		if err != nil || code != c.code || !strings.Contains(body, c.has) || c.lacks != "" && strings.Contains(body, c.lacks) {
			t.Errorf("%s: %v %d %.400s", c.path, err, code, body)
		}
	}
}
