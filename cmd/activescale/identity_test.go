package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"heartbed/workloads/push"
)

// authority signs certificates, as that of a mesh does.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{certificate, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// sign gives certificate and key as PEM for an address, or for an identity.
func (a authority) sign(t *testing.T, address net.IP, identity string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if address != nil {
		template.IPAddresses = []net.IP{address}
	}
	if identity != "" {
		id, err := url.Parse(identity)
		require.NoError(t, err)
		template.URIs = []*url.URL{id}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// client is how a pusher comes with an identity; with none it shows no
// certificate.
func (a authority) client(t *testing.T, identity string) grpc.DialOption {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.certificate)
	if identity != "" {
		pair, err := tls.X509KeyPair(a.sign(t, nil, identity))
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

// TestIdentity: with a client authority a proxy reports for the pods of its own
// service account, and nobody else for them.
func TestIdentity(t *testing.T) {
	l := newLive(t, nil)
	l.install(t)
	mesh, dir := newAuthority(t), t.TempDir()
	certificate, key := mesh.sign(t, l.outside.AsSlice(), "")
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	r := l.start(t, "--sink-tls-cert", file("tls.crt", certificate), "--sink-tls-key", file("tls.key", key), "--sink-client-ca", file("ca.crt", mesh.pem()))
	r.waitReady(t)
	names := map[string]push.Options{ // each tries to be a pod of the service account cart
		"good":      {Namespace: "shop", Dial: []grpc.DialOption{mesh.client(t, "spiffe://cluster.local/ns/shop/sa/cart")}},
		"account":   {Namespace: "shop", Dial: []grpc.DialOption{mesh.client(t, "spiffe://cluster.local/ns/shop/sa/web")}},
		"namespace": {Namespace: "shop", Dial: []grpc.DialOption{mesh.client(t, "spiffe://cluster.local/ns/other/sa/cart")}},
		"authority": {Namespace: "shop", Dial: []grpc.DialOption{newAuthority(t).client(t, "spiffe://cluster.local/ns/shop/sa/cart")}},
		"bare":      {Namespace: "shop", Dial: []grpc.DialOption{mesh.client(t, "")}},
		"plaintext": {Namespace: "shop"},
	}
	for name := range names {
		l.serving(t, name, "cart")
	}
	for name, o := range names {
		o.Target, o.Pod, o.Every, o.First = r.grpc, name, flushEvery, 10*time.Millisecond
		pushWith(t, o, 5)
	}
	soon(t, "the good one", r.log, func() bool {
		found, _ := l.values(t, "inbound_active_requests", "")
		return found["good"].Value == "5"
	})
	// two have shown a certificate of the mesh, and were sent away for what it says
	soon(t, "two refused streams", r.log, func() bool {
		_, text := r.page(t, "/metrics")
		for line := range strings.Lines(text) {
			if count, is := strings.CutPrefix(line, `activescale_sink_rejected_total{reason="identity"} `); is {
				return strings.TrimSpace(count) >= "2"
			}
		}
		return false
	})
	found, err := l.values(t, "inbound_active_requests", "")
	require.NoError(t, err)
	require.Len(t, found, 1)
	status, text := r.page(t, "/readyz")
	require.Equal(t, http.StatusOK, status, text)
}
