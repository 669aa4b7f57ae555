package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	registrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apimetrics "sigs.k8s.io/custom-metrics-apiserver/pkg/apiserver/metrics"
	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"

	"heartbed/activescale/provider"
	"heartbed/activescale/sink"
	"heartbed/activescale/store"
	"heartbed/cmd/internal/cli"
)

// stopTime bounds the end of the streams, and that of the HTTP server.
const stopTime = 5 * time.Second

// server is the program's state.
type server struct {
	settings
	adapter  *basecmd.AdapterBase
	log      *slog.Logger
	registry *prometheus.Registry

	pods         *pods
	registration *registration
	store        store.Store
	shared       *store.Shared // nil without Redis
	sink         *sink.Server
	grpc         *grpc.Server
	coverage     *coverage

	ending, serving atomic.Bool
	cleanup         []func() error // at the very end, the last first
}

// newServer makes all parts, and starts none. It refuses an API that belongs to
// somebody else.
func newServer(ctx context.Context, settings settings, adapter *basecmd.AdapterBase, log *slog.Logger) (_ *server, err error) {
	config, err := adapter.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: find the cluster (outside of one: --kubeconfig): %w", cli.ErrInput, err)
	}
	client, err := compact(config)
	if err != nil {
		return nil, err
	}
	s := &server{settings: settings, adapter: adapter, log: log, registry: prometheus.NewRegistry(), pods: newPods(client, settings.nodeCosts)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.clean())
		}
	}()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := s.register(ctx, config, client); err != nil {
		return nil, err
	}
	if err := reachPods(ctx, client); err != nil {
		return nil, err
	}
	if err := s.openStore(); err != nil {
		return nil, err
	}
	if err := s.openSink(); err != nil {
		return nil, err
	}
	s.coverage = newCoverage(s.pods, s.store, s.ttl(), s.registry)
	if err := s.openAPI(); err != nil {
		return nil, err
	}
	return s, nil
}

// register looks whose the API is, and prepares the certificate.
func (s *server) register(ctx context.Context, config *rest.Config, client kubernetes.Interface) error {
	own, err := parseService(s.service)
	if err != nil {
		return err
	}
	registrations, err := registrationclient.NewForConfig(config)
	if err != nil {
		return err
	}
	all, err := readAPIs(ctx, registrations.APIServices())
	if err != nil {
		return err
	}
	if err := foreign(all, own); err != nil {
		return err
	}
	var bundle func(context.Context) ([]byte, error)
	if s.certificateSecret != "" {
		shared := shared{client.CoreV1().Secrets(own.Namespace), s.certificateSecret, own.Name + "." + own.Namespace + ".svc"}
		certificate, key, err := shared.pair(ctx, time.Now())
		if err != nil {
			return err
		}
		certificateFile, keyFile, remove, err := writePair(certificate, key)
		if err != nil {
			return err
		}
		s.cleanup = append(s.cleanup, remove)
		serving := &s.adapter.SecureServing.ServerCert.CertKey
		serving.CertFile, serving.KeyFile = certificateFile, keyFile
		bundle = shared.bundle
	}
	s.registration = newRegistration(registrations.APIServices(), own, bundle, s.log)
	return nil
}

func (s *server) openStore() error {
	measures := store.NewMeasures(s.registry)
	if s.redis == "" {
		s.store = measures.Around(store.NewLocal(s.ttl()), "local")
		return nil
	}
	password, err := s.password()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	security, err := s.redisSecurity()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	remote, err := store.NewRedis(store.RedisOptions{
		Address: s.redis, Cluster: s.redisCluster, Username: s.redisUser, Password: password, TLS: security, Prefix: s.redisPrefix, TTL: s.ttl(), Measures: measures,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	s.shared = store.NewShared(remote)
	s.store = measures.Around(s.shared, "shared")
	s.cleanup = append(s.cleanup, s.store.Close)
	return nil
}

func (s *server) openSink() (err error) {
	security, err := s.sinkSecurity()
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	options := sink.Options{Store: s.store, Mean: s.mean, Every: s.flush, Metrics: s.registry, Log: s.log}
	if s.sinkClientCA != "" {
		options.Verify = s.verify
	}
	if s.sink, err = sink.New(options); err != nil {
		return err
	}
	s.grpc = grpc.NewServer(sink.ServerOptions(sink.Transport{TLS: security, MaxAge: s.maxConnectionAge})...)
	s.sink.Register(s.grpc)
	return nil
}

// verify lets a proxy report for the pods of its own service account: a
// certificate says no more. Its namespace has been compared already.
func (s *server) verify(_ context.Context, id sink.SPIFFE, pod store.Pod) error {
	p, err := s.pods.lister.Pods(pod.Namespace).Get(pod.Name)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no pod %v, or it is not known yet", pod)
	} else if err != nil {
		return err
	}
	if p.Spec.ServiceAccountName != id.ServiceAccount {
		return fmt.Errorf("%v may not report for pod %v, whose service account is %q", id, pod, p.Spec.ServiceAccountName)
	}
	return nil
}

// openAPI puts the provider into Kubernetes' server.
func (s *server) openAPI() error {
	options := provider.Options{Store: s.store, Pods: s.pods.lister, Synced: s.pods.synced, Mean: s.mean, Hold: s.hold, Registerer: s.registry}
	if s.nodeCosts {
		options.Cost = s.pods.cost
	}
	s.adapter.WithCustomMetrics(provider.New(options))
	// a second server of one process, in a test, finds it registered
	_ = apimetrics.RegisterMetrics(legacyregistry.Register)
	api, err := s.adapter.Server()
	if err != nil {
		return fmt.Errorf("prepare the API: %w", err)
	}
	return api.GenericAPIServer.AddPostStartHook("activescale-serves", func(genericapiserver.PostStartHookContext) error {
		s.serving.Store(true)
		return nil
	})
}

// run serves until ctx ends, which is no error.
func (s *server) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.clean()) }()
	pushes, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	own, err := net.Listen("tcp", s.http)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), pushes.Close())
	}
	s.log.Info("listening", "proxies", pushes.Addr().String(), "http", own.Addr().String(), "api", s.adapter.SecureServing.BindPort)
	s.pods.start()
	defer s.pods.stop()

	// What serves lives longer than ctx, by the time that it takes to drain.
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, failing := errgroup.WithContext(work)
	group.Go(func() error { return s.grpc.Serve(pushes) })
	group.Go(func() error { return serveHTTP(failing, own, s.handler()) })
	group.Go(func() error { s.registration.keep(failing); return nil })
	group.Go(func() error { s.coverage.keep(failing); return nil })
	group.Go(func() error { return s.serveAPI(failing) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			s.drainStreams(failing)
		case <-failing.Done():
			s.stopStreams()
		}
		end()
		return nil
	})
	err = group.Wait()
	s.log.Info("ended")
	return err
}

func (s *server) serveAPI(ctx context.Context) error {
	if err := s.adapter.Run(ctx); err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	if ctx.Err() == nil {
		return errors.New("serve the API: ended by itself")
	}
	return nil
}

// drainStreams serves on until nobody is sent here any more, or ctx ends, and
// then lets go of the streams: their proxies open others elsewhere at their next
// flush.
func (s *server) drainStreams(ctx context.Context) {
	s.ending.Store(true)
	s.log.Info("ending", "drain", s.drain.String())
	select {
	case <-ctx.Done():
	case <-time.After(s.drain):
	}
	s.stopStreams()
}

// stopStreams ends the streams: in order where the proxies do it themselves,
// which Envoy does not.
func (s *server) stopStreams() {
	forced := time.AfterFunc(time.Second, s.grpc.Stop)
	defer forced.Stop()
	s.grpc.GracefulStop()
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: stopTime}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := server.Shutdown(limited)
	<-failed // http.ErrServerClosed
	return err
}

// clean undoes what newServer has done.
func (s *server) clean() error {
	var errs []error
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, s.cleanup[i]())
	}
	s.cleanup = nil
	return errors.Join(errs...)
}
