package sink

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"heartbed/activescale/store"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key}
}

// issue writes a certificate with the URIs and its key to two files.
func (a authority) issue(t *testing.T, uris ...string) (cert, key string) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		require.NoError(t, err)
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &secret.PublicKey, a.key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(secret)
	require.NoError(t, err)
	dir := t.TempDir()
	return write(t, filepath.Join(dir, "tls.crt"), "CERTIFICATE", der), write(t, filepath.Join(dir, "tls.key"), "PRIVATE KEY", pkcs8)
}

// file writes the authority's own certificate.
func (a authority) file(t *testing.T) string {
	return write(t, filepath.Join(t.TempDir(), "ca.crt"), "CERTIFICATE", a.cert.Raw)
}

func write(t *testing.T, path, kind string, der []byte) string {
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// dialTLS makes clients show the certificate, "" = none, and trust a.
func (a authority) dialTLS(t *testing.T, cert, key string) grpc.DialOption {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	c := &tls.Config{RootCAs: roots}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(c))
}

// TestIdentityIsChecked: what a client may report for follows from its
// certificate.
func TestIdentityIsChecked(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t)
	files, err := TLSFiles(cert, key, a.file(t))
	require.NoError(t, err)
	r := receive(t, Options{Verify: func(_ context.Context, id SPIFFE, pod store.Pod) error {
		if id.ServiceAccount != "web" || pod != web || id.TrustDomain != "cluster.local" {
			return errors.New("pods of this account have other names")
		}
		return nil
	}}, Transport{TLS: files})
	for name, c := range map[string]struct {
		uris []string
		want codes.Code
	}{
		"its own":           {[]string{"spiffe://cluster.local/ns/shop/sa/web"}, codes.OK},
		"another account":   {[]string{"spiffe://cluster.local/ns/shop/sa/db"}, codes.PermissionDenied},
		"another namespace": {[]string{"spiffe://cluster.local/ns/bank/sa/web"}, codes.PermissionDenied},
		"another domain":    {[]string{"spiffe://other/ns/shop/sa/web"}, codes.PermissionDenied},
		"no identity":       {nil, codes.PermissionDenied},
		"no SPIFFE":         {[]string{"https://cluster.local/ns/shop/sa/web"}, codes.PermissionDenied},
		"two identities":    {[]string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/bank/sa/web"}, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			before := testutil.ToFloat64(r.counts.rejected.WithLabelValues(foreign))
			cert, key := a.issue(t, c.uris...)
			stream := client(t, r.addr, a.dialTLS(t, cert, key))
			require.NoError(t, stream.Send(named(t, web, gauge(inbound, 1, 1000))))
			if c.want == codes.OK {
				r.has(web, store.InboundActiveRequests, 1)
				require.NoError(t, stream.CloseSend())
			}
			require.Equal(t, c.want, ends(stream))
			if c.want != codes.OK {
				require.Equal(t, before+1, testutil.ToFloat64(r.counts.rejected.WithLabelValues(foreign)))
			}
		})
	}
}

// TestVerifyNeedsTLS: without certificates nobody is who they say.
func TestVerifyNeedsTLS(t *testing.T) {
	r := receive(t, Options{Verify: func(context.Context, SPIFFE, store.Pod) error { return nil }}, Transport{})
	stream := client(t, r.addr)
	require.NoError(t, stream.Send(named(t, web)))
	require.Equal(t, codes.PermissionDenied, ends(stream))
}

// TestClientsNeedACertificate of the right authority, if there is one.
func TestClientsNeedACertificate(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	cert, key := a.issue(t)
	files, err := TLSFiles(cert, key, a.file(t))
	require.NoError(t, err)
	r := receive(t, Options{}, Transport{TLS: files})
	wrong, wrongKey := stranger.issue(t, "spiffe://cluster.local/ns/shop/sa/web")
	for _, option := range []grpc.DialOption{a.dialTLS(t, "", ""), a.dialTLS(t, wrong, wrongKey)} {
		conn, err := grpc.NewClient(r.addr, option)
		require.NoError(t, err)
		require.Equal(t, codes.Unavailable, greeting(t, conn))
		require.NoError(t, conn.Close())
	}
}

// greeting is the code with which a stream ends that is closed in order.
func greeting(t *testing.T, conn *grpc.ClientConn) codes.Code {
	stream, err := metrics.NewMetricsServiceClient(conn).StreamMetrics(t.Context())
	if err != nil {
		return status.Code(err)
	}
	_ = stream.Send(named(t, web)) // CloseAndRecv says why not
	_, err = stream.CloseAndRecv()
	return status.Code(err)
}

// TestCertificatesAreReadAgain when their files have changed, and kept when
// what is there now cannot be read.
func TestCertificatesAreReadAgain(t *testing.T) {
	a, next := newAuthority(t), newAuthority(t)
	cert, key := a.issue(t)
	files, err := TLSFiles(cert, key, "")
	require.NoError(t, err)
	r := receive(t, Options{}, Transport{TLS: files})
	answers := func(a authority) codes.Code {
		conn, err := grpc.NewClient(r.addr, a.dialTLS(t, "", ""))
		require.NoError(t, err)
		defer conn.Close()
		return greeting(t, conn)
	}
	require.Equal(t, codes.OK, answers(a))
	replace(t, cert, []byte("nothing"), time.Hour)
	require.Equal(t, codes.OK, answers(a))
	newCert, newKey := next.issue(t)
	for _, f := range [][2]string{{newCert, cert}, {newKey, key}} {
		content, err := os.ReadFile(f[0])
		require.NoError(t, err)
		replace(t, f[1], content, 2*time.Hour)
	}
	require.Equal(t, codes.OK, answers(next))
	require.Equal(t, codes.Unavailable, answers(a))
}

// replace writes a file with a time of its own: that of the file system may be
// coarse.
func replace(t *testing.T, file string, content []byte, later time.Duration) {
	require.NoError(t, os.WriteFile(file, content, 0o600))
	require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(later)))
}

func TestTLSFilesNamesTheFault(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t)
	for _, c := range [][3]string{{"absent", key, ""}, {cert, "absent", ""}, {cert, cert, ""}, {cert, key, key}, {cert, key, "absent"}} {
		_, err := TLSFiles(c[0], c[1], c[2])
		require.ErrorContains(t, err, "read certificates: ")
	}
}
