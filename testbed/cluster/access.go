package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// right is something that the user of the kubeconfig must be allowed to do.
type right struct {
	resource, subresource string
	verbs                 []string
	everywhere            bool // it is not of a namespace
}

// rights of every run.
var rights = []right{
	{resource: "nodes", verbs: []string{"list"}, everywhere: true},
	{resource: "namespaces", verbs: []string{"get"}},
	{resource: "pods", verbs: []string{"create", "patch", "list", "deletecollection"}},
	{resource: "pods", subresource: "portforward", verbs: []string{"create"}},
	{resource: "services", verbs: []string{"create", "patch", "list", "delete"}},
	{resource: "configmaps", verbs: []string{"create", "patch", "deletecollection"}},
}

// ownNamespace is what it takes besides to make the namespace, and to remove it.
var ownNamespace = right{resource: "namespaces", verbs: []string{"create", "delete"}, everywhere: true}

// checkRights names all that the user lacks, at once.
func (t target) checkRights(ctx context.Context) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	need := rights
	if _, err := t.client.CoreV1().Namespaces().Get(ctx, t.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		need = append(slices.Clone(rights), ownNamespace)
	} else if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("namespace %s: %w", t.namespace, err)
	}
	lacks := make([]string, len(need))
	reviews, ctx := errgroup.WithContext(ctx)
	for i, r := range need {
		reviews.Go(func() (err error) {
			lacks[i], err = t.review(ctx, r)
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return fmt.Errorf("ask for own rights: %w", err)
	}
	lacks = slices.DeleteFunc(lacks, func(s string) bool { return s == "" })
	if len(lacks) > 0 {
		return fmt.Errorf("context %s lacks the right to %s%w", t.context, strings.Join(lacks, "; to "), missing{})
	}
	return nil
}

// review gives the verbs of a right that the user lacks, as text.
func (t target) review(ctx context.Context, r right) (string, error) {
	var denied []string
	for _, verb := range r.verbs {
		attributes := authorization.ResourceAttributes{Verb: verb, Resource: r.resource, Subresource: r.subresource}
		if !r.everywhere {
			attributes.Namespace = t.namespace
		}
		if r.resource == "namespaces" {
			attributes.Name = t.namespace
		}
		got, err := t.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		if !got.Status.Allowed {
			denied = append(denied, verb)
		}
	}
	if len(denied) == 0 {
		return "", nil
	}
	what := strings.Join(denied, ", ") + " " + r.resource
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	if r.everywhere {
		return what, nil
	}
	return what + " in namespace " + t.namespace, nil
}
