package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"heartbed/activescale/provider"
	"heartbed/activescale/sink"
)

// passwordVariable of the environment holds the password for Redis.
const passwordVariable = "REDIS_PASSWORD"

// settings of serve, besides those of Kubernetes' library.
type settings struct {
	kubeconfig string
	// service is one's own, NAMESPACE/NAME; certificateSecret is in the same
	// namespace.
	service, certificateSecret string
	listen, http               string        // host:port
	flush, hold, drain         time.Duration // flush is that of the proxies
	maxConnectionAge           time.Duration
	mean, nodeCosts            bool

	redis, redisUser, redisPasswordFile, redisCA, redisPrefix string
	redisTLS, redisCluster                                    bool

	sinkCert, sinkKey, sinkClientCA string // files; none = plaintext
}

func (s *settings) addTo(f *pflag.FlagSet) {
	f.StringVar(&s.kubeconfig, "kubeconfig", "", kubeconfigHelp)
	f.StringVar(&s.service, "service", "", "the Service through which the API server comes here, NAMESPACE/NAME: an API that points to another one is refused")
	f.StringVar(&s.certificateSecret, "certificate-secret", "", "a Secret in the Service's namespace with the API's certificate, which is made where it is missing and written into the APIServices (default: --tls-cert-file, or one that nobody trusts)")
	f.StringVar(&s.listen, "listen", ":9000", "host:port to which proxies push")
	f.StringVar(&s.http, "http", ":8080", "host:port of /metrics, /healthz, /readyz and /streams")
	f.DurationVar(&s.flush, "flush", sink.DefaultEvery, "how often proxies push; a sample is forgotten after four of these")
	f.DurationVar(&s.hold, "hold", 0, "how old the last sample of a silent pod, or of any pod while Redis fails, may get if more than four flushes; it is served with its own time")
	f.BoolVar(&s.mean, "mean", false, "serve inbound_mean_requests too, by the proxies' histograms")
	f.BoolVar(&s.nodeCosts, "node-costs", false, "weigh capacity_weighted_active_requests by the annotation "+provider.CostAnnotation+" of nodes, too (needs the right to read them)")
	f.DurationVar(&s.maxConnectionAge, "max-connection-age", sink.DefaultMaxAge, "after which a stream is closed, so that it may come to another replica")
	f.DurationVar(&s.drain, "drain", 5*time.Second, "how long to serve on, not ready, after a request to end")
	f.StringVar(&s.redis, "redis", "", "host:port of Redis, through which replicas share samples; several, with commas between, are one cluster (default: samples are kept in this process)")
	f.BoolVar(&s.redisCluster, "redis-cluster", false, "the one address of --redis is of a cluster, too")
	f.StringVar(&s.redisUser, "redis-user", "", "user name for Redis")
	f.StringVar(&s.redisPasswordFile, "redis-password-file", "", "file with the password for Redis (default: environment variable "+passwordVariable+")")
	f.BoolVar(&s.redisTLS, "redis-tls", false, "TLS to Redis")
	f.StringVar(&s.redisCA, "redis-ca", "", "file with the authorities that Redis' certificate may be signed by (default: the system's)")
	f.StringVar(&s.redisPrefix, "redis-prefix", "activescale:", "begin of every key; installations that share a Redis need different ones")
	f.StringVar(&s.sinkCert, "sink-tls-cert", "", "file with the certificate shown to proxies (default: plaintext); the files of this and the two below are read again when they change")
	f.StringVar(&s.sinkKey, "sink-tls-key", "", "file with its key")
	f.StringVar(&s.sinkClientCA, "sink-client-ca", "", "file with the authorities of proxies' certificates, which have to name the namespace and service account of the pod that is reported")
}

// validate joins all faults.
func (s *settings) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := parseService(s.service); err != nil {
		errs = append(errs, err)
	}
	if s.certificateSecret != "" && s.service == "" {
		fault("--certificate-secret: found %q without --service, in whose namespace it is", s.certificateSecret)
	}
	for flag, address := range map[string]string{"--listen": s.listen, "--http": s.http} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			fault("%s: found %q, expected host:port", flag, address)
		}
	}
	for _, a := range strings.Split(s.redis, ",") {
		if _, _, err := net.SplitHostPort(strings.TrimSpace(a)); err != nil && s.redis != "" {
			fault("--redis: found %q, expected host:port", a)
		}
	}
	if s.redis == "" && (s.redisTLS || s.redisCluster || s.redisUser != "" || s.redisPasswordFile != "" || s.redisCA != "") {
		fault("--redis: found none beside flags of Redis, expected host:port")
	}
	if s.redisCA != "" && !s.redisTLS {
		fault("--redis-ca: found %q without --redis-tls", s.redisCA)
	}
	// Envoy flushes once in a millisecond to five minutes.
	if s.flush < 100*time.Millisecond || s.flush > 5*time.Minute {
		fault("--flush: found %v, expected 100ms to 5m", s.flush)
	}
	if s.maxConnectionAge < time.Second {
		fault("--max-connection-age: found %v, expected 1s or more", s.maxConnectionAge)
	}
	for flag, d := range map[string]time.Duration{"--hold": s.hold, "--drain": s.drain} {
		if d < 0 {
			fault("%s: found %v, expected 0 or more", flag, d)
		}
	}
	if (s.sinkCert == "") != (s.sinkKey == "") {
		fault("--sink-tls-cert and --sink-tls-key: found one, expected both or none")
	}
	if s.sinkClientCA != "" && s.sinkCert == "" {
		fault("--sink-client-ca: found %q without --sink-tls-cert: in plaintext nobody shows a certificate", s.sinkClientCA)
	}
	return errors.Join(errs...)
}

// ttl is how long a sample is fresh.
func (s *settings) ttl() time.Duration { return 4 * s.flush }

// password for Redis, "" when there is none.
func (s *settings) password() (string, error) {
	if s.redisPasswordFile == "" {
		return os.Getenv(passwordVariable), nil
	}
	raw, err := os.ReadFile(s.redisPasswordFile)
	if err != nil {
		return "", fmt.Errorf("read Redis' password: %w", err)
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}

// redisSecurity is the TLS to Redis, nil without.
func (s *settings) redisSecurity() (*tls.Config, error) {
	if !s.redisTLS {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.redisCA != "" {
		pool, err := readAuthorities(s.redisCA)
		if err != nil {
			return nil, fmt.Errorf("--redis-ca: %w", err)
		}
		config.RootCAs = pool
	}
	return config, nil
}

// sinkSecurity is the TLS of the port that proxies push to, nil for plaintext.
func (s *settings) sinkSecurity() (*tls.Config, error) {
	if s.sinkCert == "" {
		return nil, nil
	}
	config, err := sink.TLSFiles(s.sinkCert, s.sinkKey, s.sinkClientCA)
	if err != nil {
		return nil, fmt.Errorf("--sink-tls-cert, --sink-tls-key, --sink-client-ca: %w", err)
	}
	return config, nil
}

func readAuthorities(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}
