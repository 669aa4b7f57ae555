package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/testbed/kube"
	"heartbed/testbed/live"
)

// Kinds of changes to a cluster; the Name of an entry is the run's.
const (
	kindNamespace live.Kind = "namespace" // that we made
	kindObjects   live.Kind = "objects"   // ours, in a namespace that was there
)

// runLabel is the label of everything of a run: its name.
const runLabel = "heartbed/run"

// lockName is the ConfigMap by which only one run is in a namespace.
const lockName = "heartbed-run"

// entry is a change to the target by a run.
func (t target) entry(k live.Kind, run string) live.Entry {
	return live.Entry{Kind: k, Name: run, Kubeconfig: t.kubeconfig, Context: t.context, Namespace: t.namespace}
}

// claim makes the namespace, with labels of its own, or makes sure that nobody
// else is in it.
func (t target) claim(ctx context.Context, j *live.Journal, run string, own map[string]string) error {
	labels := map[string]string{kube.ManagerLabel: kube.FieldManager, runLabel: run}
	core := t.client.CoreV1()
	found, err := core.Namespaces().Get(ctx, t.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if err := j.Add(t.entry(kindNamespace, run)); err != nil {
			return err
		}
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: maps.Clone(labels)}}
		maps.Copy(made.Labels, own)
		_, err := core.Namespaces().Create(ctx, made, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case found.DeletionTimestamp != nil:
		if err := live.Pause(ctx, time.Second); err != nil {
			return fmt.Errorf("namespace %s is being deleted: %w", t.namespace, err)
		}
		return t.claim(ctx, j, run, own)
	}
	if other := found.Labels[runLabel]; other != "" {
		return t.inUse(other)
	}
	pods, err := core.Pods(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := t.foreign(pods.Items); err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return t.inUse(pods.Items[0].Labels[runLabel])
	}
	if err := j.Add(t.entry(kindObjects, run)); err != nil {
		return err
	}
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: lockName, Labels: labels}}
	if _, err = core.ConfigMaps(t.namespace).Create(ctx, lock, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return t.inUse("that began just now")
	}
	return err
}

// foreign refuses a namespace with pods of somebody else.
func (t target) foreign(pods []corev1.Pod) error {
	for _, p := range pods {
		if p.Labels[runLabel] == "" {
			return input("namespace", "found pod %s of somebody else in %s, expected a namespace without any, or a new name", p.Name, t.namespace)
		}
	}
	return nil
}

func (t target) inUse(run string) error {
	return fmt.Errorf("namespace %s is in use by run %s; if that was killed, remove what it left with 'heartbed down' on the machine where it ran", t.namespace, run)
}

// remove undoes a change. What is gone already is no error; what has not the
// label of the run stays.
func remove(ctx context.Context, e live.Entry) error {
	if e.Kind != kindNamespace && e.Kind != kindObjects {
		return errors.New("kind is unknown")
	}
	if e.Name == "" || e.Namespace == "" {
		return errors.New("found an entry without a run or a namespace")
	}
	t, err := targetAt(e.Kubeconfig, e.Context, e.Namespace)
	if err == nil {
		err = kube.Patiently(ctx, t.ask, t.ask)
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w (if the cluster is gone, delete the journal of run %s)", e.Namespace, err, e.Name)
	}
	if err := t.removeObjects(ctx, e.Name); err != nil {
		return fmt.Errorf("namespace %s: %w", e.Namespace, err)
	}
	if e.Kind == kindNamespace {
		return t.removeNamespace(ctx, e.Name)
	}
	return nil
}

// removeObjects removes what has the run's label.
func (t target) removeObjects(ctx context.Context, run string) error {
	core := t.client.CoreV1()
	selector := metav1.ListOptions{LabelSelector: runLabel + "=" + run}
	if err := kube.RemovePods(ctx, t.client, t.namespace, selector.LabelSelector); err != nil {
		return err
	}
	services, err := core.Services(t.namespace).List(ctx, selector)
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if err := core.Services(t.namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	// The lock is one of them: last.
	return core.ConfigMaps(t.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, selector)
}

// removeNamespace removes the namespace if the run made it, and waits until it
// is gone.
func (t target) removeNamespace(ctx context.Context, run string) error {
	namespaces := t.client.CoreV1().Namespaces()
	for {
		found, err := namespaces.Get(ctx, t.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.Labels[runLabel] != run {
			return nil
		}
		if err == nil && found.DeletionTimestamp == nil {
			err = namespaces.Delete(ctx, t.namespace, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s: %w", t.namespace, err)
		}
		if err := live.Pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("namespace %s is still being deleted: %w", t.namespace, err)
		}
	}
}
