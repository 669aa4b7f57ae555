package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

// errDeposed ends the program, so that its successor begins with no memory of
// tables that another has replaced.
var errDeposed = errors.New("another process holds the lease, or the API server was out of reach for too long")

// The lease outlasts a restart of the API server, over which the leader keeps
// its memory. While nobody leads, the table in force stays. A leader that ends
// gives the lease back; only one that dies lets others wait for so long.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 4 * time.Second
)

// elect calls lead while this process holds the lease. It returns nil when ctx
// has ended.
func (c *controller) elect(ctx context.Context, lead func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this process: %w", err)
	}
	// The lease is given back after the step under way, not before.
	holding, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	var leading sync.Mutex
	defer context.AfterFunc(ctx, func() {
		leading.Lock()
		defer leading.Unlock()
		giveBack()
	})()
	me := fmt.Sprintf("%s-%d", cmp.Or(os.Getenv("POD_NAME"), host), os.Getpid())
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.config.Namespace, Name: c.config.Lease},
			Client:     c.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: me},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: c.config.Lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				leading.Lock()
				defer leading.Unlock()
				both, cancel := context.WithCancel(held)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				c.log.Info("leading")
				lead(both)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	c.log.Info("waiting for the lease", "lease", c.config.Namespace+"/"+c.config.Lease)
	elector.Run(holding)
	leading.Lock() // the last step is done
	defer leading.Unlock()
	if ctx.Err() == nil {
		return errDeposed
	}
	return c.release(me)
}

// release gives the lease back where the elector has not: its own attempt fails
// when it was renewing at that moment.
func (c *controller) release(me string) error {
	ctx, cancel := context.WithTimeout(context.Background(), applyTime)
	defer cancel()
	leases := c.client.CoordinationV1().Leases(c.config.Namespace)
	lease, err := leases.Get(ctx, c.config.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == me {
		*lease.Spec.HolderIdentity = ""
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("give back the lease: %w", err)
	}
	return nil
}

// free gives an error when another process holds the lease.
func (c *controller) free(ctx context.Context) error {
	lease, err := c.client.CoordinationV1().Leases(c.config.Namespace).Get(ctx, c.config.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", c.config.Namespace, c.config.Lease, err)
	}
	holder, renewed, lasts := lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	if holder == nil || *holder == "" || renewed == nil || lasts == nil {
		return nil
	}
	left := time.Until(renewed.Add(time.Duration(*lasts) * time.Second)).Round(time.Second)
	if left <= 0 {
		return nil
	}
	return fmt.Errorf("%s decides: it holds the lease %s/%s, for %v more unless it renews it", *holder, c.config.Namespace, c.config.Lease, left)
}

// removeLease deletes the lease, of which nothing is left to hold.
func (c *controller) removeLease(ctx context.Context) error {
	err := c.client.CoordinationV1().Leases(c.config.Namespace).Delete(ctx, c.config.Lease, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		fmt.Fprintln(c.out, "delete Lease", c.config.Lease)
	}
	return err
}

// events tell in the cluster when steps begin to fail and when they go well
// again. They are about the lease.
type events struct {
	recorder    record.EventRecorder
	broadcaster record.EventBroadcaster
	about       *corev1.ObjectReference
	failing     bool
}

func newEvents(client kubernetes.Interface, config Config) *events {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(config.Namespace)})
	return &events{
		recorder: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "heart"}), broadcaster: b,
		about: &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: config.Namespace, Name: config.Lease},
	}
}

func (e *events) stop() { e.broadcaster.Shutdown() }

func (e *events) step(err error) {
	switch {
	case err != nil && !e.failing:
		e.recorder.Event(e.about, corev1.EventTypeWarning, "StepFailed", "the routing table in force stays: "+err.Error())
	case err == nil && e.failing:
		e.recorder.Event(e.about, corev1.EventTypeNormal, "StepsGoOn", "a new routing table is in force")
	}
	e.failing = err != nil
}
