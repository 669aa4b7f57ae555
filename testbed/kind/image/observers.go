package image

import (
	"context"
	"time"
)

// prometheus finds its targets in Kubernetes, or has them in its configuration;
// the clients of a dozen other clouds are left out, and its pages, which are
// built with other tools than Go.
var prometheus = module{
	name: "prometheus", about: 300 * time.Second,
	pkg: "github.com/prometheus/prometheus/cmd/prometheus", tags: "remove_all_sd,enable_kubernetes_sd",
}

// Prometheus builds the program prometheus from its module, unless the cache
// has it, and gives its path, for Programs. Debian's cannot find pods.
func Prometheus(ctx context.Context, o Options) (file string, err error) {
	return buildProgram(ctx, o, prometheus)
}

// metricsServer serves the CPU time of pods, as an HPA asks for it.
var metricsServer = module{
	name: "metrics-server", about: 240 * time.Second,
	pkg: "sigs.k8s.io/metrics-server/cmd/metrics-server",
}

// MetricsServer builds the program metrics-server from its module, unless the
// cache has it, and gives its path, for Programs.
func MetricsServer(ctx context.Context, o Options) (file string, err error) {
	return buildProgram(ctx, o, metricsServer)
}

// buildProgram builds one program that is not part of the node image.
func buildProgram(ctx context.Context, o Options, m module) (file string, err error) {
	b, unlock, err := openBuilder(ctx, o)
	if err != nil {
		return "", err
	}
	defer unlock()
	steps := []step{b.compile(m)}
	if err := b.run(ctx, steps); err != nil {
		return "", err
	}
	return b.at(steps[0], m.name), prune(b.Cache, steps)
}
