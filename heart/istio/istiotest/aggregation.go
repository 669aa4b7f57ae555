package istiotest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"testing"
	"time"
)

// aggregation are the flags by which the API server shows a server that it
// passes requests on to who it is and who asks, and goes to the endpoints of a
// Service itself: there is no kube-proxy.
func (c *Cluster) aggregation() []string {
	return []string{
		"--enable-aggregator-routing", "--proxy-client-cert-file", c.file("proxy.crt"), "--proxy-client-key-file", c.file("proxy.key"),
		"--requestheader-client-ca-file", c.file("proxy.crt"), "--requestheader-allowed-names", proxyName,
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
	}
}

const proxyName = "front-proxy"

// writeProxyPair makes the certificate by which the API server comes to such a
// server. It signs itself.
func (c *Cluster) writeProxyPair(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: proxyName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	certificate, errC := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	der, errK := x509.MarshalECPrivateKey(key)
	if err := errors.Join(errC, errK,
		os.WriteFile(c.file("proxy.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(c.file("proxy.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}

// Controllers runs these of Kubernetes' own controllers until the end of the
// test, or until Stop. flags are more of kube-controller-manager's.
func (c *Cluster) Controllers(t testing.TB, names string, flags ...string) *Process {
	t.Helper()
	_, kube, err := servers()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"kube-controller-manager", "--kubeconfig", c.Kubeconfig, "--controllers", names, "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", ports(t, 1)[0], "--cert-dir", c.file("controllers")}
	return start(t, c.dir, "kube-controller-manager", nil, kube, append(args, flags...)...)
}
