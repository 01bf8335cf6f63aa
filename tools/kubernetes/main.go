// Command admit says what an API server would refuse of manifests: it reads them as the server does, fills in the defaults and runs
// Kubernetes' own validation. Kinds of other projects are left out by name.
//
//	admit [--skip=KIND,KIND] FILE...
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"
)

func main() {
	skip := flag.String("skip", "", "kinds of which Kubernetes knows nothing")
	flag.Parse()
	// As nearly every cluster: privileged containers are a matter of admission, not of validity.
	capabilities.Setup(true, 0)
	admitted, refused := 0, 0
	for _, path := range flag.Args() {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "admit: %v\n", err)
			os.Exit(2)
		}
		for _, doc := range strings.Split("\n"+string(text), "\n---") {
			kind, err := admit([]byte(doc), strings.Split(*skip, ","))
			switch {
			case err != nil:
				fmt.Printf("%s: %s: %v\n", path, kind, err)
				refused++
			case kind != "":
				admitted++
			}
		}
	}
	fmt.Printf("%d admitted, %d refused\n", admitted, refused)
	if refused > 0 {
		os.Exit(1)
	}
}

// admit returns the kind and name of an object, and why it would be refused. An empty document, and a kind that is left out, has neither.
func admit(doc []byte, skip []string) (string, error) {
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return "a document", err
	}
	if meta.Kind == "" || slices.Contains(skip, meta.Kind) {
		return "", nil
	}
	name := meta.Kind + " " + meta.Name
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	obj, _, err := strict.UniversalDeserializer().Decode(doc, nil, nil)
	if err != nil {
		return name, err
	}
	legacyscheme.Scheme.Default(obj)
	internal, err := legacyscheme.Scheme.ConvertToVersion(obj, runtime.InternalGroupVersioner)
	if err != nil {
		return name, err
	}
	errs, err := validate(internal)
	if err != nil {
		return name, err
	}
	return name, errs.ToAggregate()
}

func validate(obj runtime.Object) (field.ErrorList, error) {
	switch o := obj.(type) {
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, corevalidation.PodValidationOptions{}), nil
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobCreate(o, corevalidation.PodValidationOptions{}), nil
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o), nil
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o), nil
	case *core.ResourceQuota:
		return corevalidation.ValidateResourceQuota(o), nil
	case *core.Secret:
		return corevalidation.ValidateSecret(o), nil
	case *core.Service:
		// As the server's storage does before it looks.
		if o.Spec.ClusterIP != "" && len(o.Spec.ClusterIPs) == 0 {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		return corevalidation.ValidateServiceCreate(o), nil
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o), nil
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{}), nil
	case *rbac.ClusterRole:
		return rbacvalidation.ValidateClusterRole(o, rbacvalidation.ClusterRoleValidationOptions{}), nil
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(o), nil
	}
	return nil, errors.New("a kind that this program does not judge; add it")
}
