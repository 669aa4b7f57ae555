package prom

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// client asks Prometheus and says in its errors what was asked where, and what
// may help.
type client struct {
	config  api.Config
	api     v1.API
	address string // without a password
	timeout time.Duration
}

func newClient(c Config) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // it costs both sides more CPU time than all else
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile: %s holds no certificate in PEM form", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	u, err := url.Parse(c.Address)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	config := api.Config{Address: c.Address, RoundTripper: &wire{next: transport, tokenFile: c.BearerTokenFile, limit: c.MaxBytes}}
	a, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{config: config, api: v1.NewAPI(a), address: u.Redacted(), timeout: time.Duration(c.Timeout)}, nil
}

// ask evaluates a query at a time of Prometheus's clock; the zero time = its
// now. Warnings name the query.
func (c *client) ask(ctx context.Context, query string, at time.Time) (model.Value, []string, error) {
	return c.query(ctx, c.api, query, at)
}

// stream is ask for a matrix: its series are taken one by one as they arrive,
// and the value that is left has none.
func (c *client) stream(ctx context.Context, query string, at time.Time, take func(series)) (model.Value, []string, error) {
	config := c.config
	config.RoundTripper = &sieve{next: config.RoundTripper, take: take}
	a, err := api.NewClient(config)
	if err != nil {
		return nil, nil, fmt.Errorf("address: %w", err)
	}
	return c.query(ctx, v1.NewAPI(a), query, at)
}

func (c *client) query(ctx context.Context, api v1.API, query string, at time.Time) (model.Value, []string, error) {
	// The server gives up, too; its parser knows no fractions of a second.
	limit := v1.WithTimeout((c.timeout + time.Second - 1).Truncate(time.Second))
	value, warnings, infos, err := api.Query(ctx, query, at, limit)
	var told []string
	for _, w := range append(warnings, infos...) {
		told = append(told, fmt.Sprintf("prometheus, query %s: %s", query, w))
	}
	if err != nil {
		return nil, told, fmt.Errorf("query %s at %s: %w%s", query, c.address, err, advice(err, c.timeout))
	}
	return value, told, nil
}

// advice says what may help against an error of a query.
func advice(err error, timeout time.Duration) string {
	var answer *v1.Error
	switch {
	case errors.Is(err, errTooLarge):
		return ": let the query select fewer series, or raise maxBytes"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf(": no answer within %v; is Prometheus overloaded, or timeout too short?", timeout)
	case errors.Is(err, context.Canceled):
		return ""
	case !errors.As(err, &answer):
		return ": is Prometheus running there and reachable from here?"
	}
	switch answer.Type {
	case v1.ErrBadData:
		return ": correct the query"
	case v1.ErrTimeout, v1.ErrCanceled, v1.ErrExec:
		return ": Prometheus could not evaluate it; let it select fewer series or raise Prometheus's query limits"
	case v1.ErrServer:
		return ": Prometheus is not ready or its storage fails; see its log"
	}
	if strings.HasSuffix(answer.Msg, "401") || strings.HasSuffix(answer.Msg, "403") {
		return ": access is refused; set bearerTokenFile"
	}
	return ": is this the address of a Prometheus, with its path prefix?"
}

var errTooLarge = errors.New("answer is larger than maxBytes")

// wire adds the token to requests and bounds answers.
type wire struct {
	next      http.RoundTripper
	tokenFile string
	limit     int64
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.tokenFile != "" {
		token, err := os.ReadFile(w.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("bearerTokenFile: %w", err)
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := w.next.RoundTrip(r)
	if err == nil {
		resp.Body = &bounded{ReadCloser: resp.Body, limit: w.limit, left: w.limit}
	}
	return resp, err
}

// bounded is a body that ends in an error where it exceeds the limit.
type bounded struct {
	io.ReadCloser
	limit, left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w (%d bytes)", errTooLarge, b.limit)
	}
	return n, err
}
