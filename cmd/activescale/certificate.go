package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// certificateLife is long, for only a start renews a certificate.
	certificateLife = 10 * 365 * 24 * time.Hour
	// renewBefore its end a start makes another one.
	renewBefore = 365 * 24 * time.Hour
	bundleKey   = "ca.crt"
)

// shared is the API's certificate, which all replicas have from one Secret. The
// first one to come makes it. It signs itself, so that the API server, which is
// given it as an authority, trusts it and nothing else.
type shared struct {
	secrets typedcorev1.SecretInterface
	name    string // of the Secret, which exists
	host    string // NAME.NAMESPACE.svc of the Service
}

// pair gives certificate and key as PEM, made anew where the Secret has none
// that is good for a year.
func (s shared) pair(ctx context.Context, now time.Time) (certificate, key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	for ctx.Err() == nil {
		secret, err := s.read(ctx)
		if err != nil {
			return nil, nil, err
		}
		good, err := s.isGood(secret, now)
		if err != nil {
			return nil, nil, err
		}
		if !good {
			if secret, err = s.renew(ctx, secret, now); apierrors.IsConflict(err) {
				continue // another replica was first
			} else if err != nil {
				return nil, nil, fmt.Errorf("share the API's certificate: %w", err)
			}
		}
		return secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], nil
	}
	return nil, nil, fmt.Errorf("share the API's certificate in Secret %s: %w", s.name, ctx.Err())
}

// bundle gives the authorities to be trusted: this certificate, and those before
// it that a replica may still serve with.
func (s shared) bundle(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	secret, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if len(secret.Data[bundleKey]) == 0 {
		return nil, fmt.Errorf("secret %s has no %s any more: the next start of a replica makes one", s.name, bundleKey)
	}
	return secret.Data[bundleKey], nil
}

func (s shared) read(ctx context.Context) (*corev1.Secret, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the API's certificate (--certificate-secret): %w", err)
	}
	return secret, nil
}

// isGood says whether the certificate can be served with. What cannot be read
// is an error: somebody else has written it.
func (s shared) isGood(secret *corev1.Secret, now time.Time) (bool, error) {
	if len(secret.Data[corev1.TLSCertKey]) == 0 {
		return false, nil
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return false, fmt.Errorf("certificate in Secret %s: %w; empty the Secret, and a start makes another one", s.name, err)
	}
	return pair.Leaf.VerifyHostname(s.host) == nil && pair.Leaf.NotAfter.Sub(now) > renewBefore, nil
}

// renew puts a new certificate into the Secret, unless another replica does.
func (s shared) renew(ctx context.Context, secret *corev1.Secret, now time.Time) (*corev1.Secret, error) {
	certificate, key, err := selfSigned(s.host, now)
	if err != nil {
		return nil, err
	}
	secret.Data = map[string][]byte{
		corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key,
		bundleKey: append(bytes.Clone(certificate), stillValid(secret.Data[bundleKey], now)...),
	}
	return s.secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: "activescale"})
}

// stillValid leaves out the authorities that have ended.
func stillValid(bundle []byte, now time.Time) []byte {
	var kept []byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(now) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
	}
	return kept
}

// selfSigned makes a certificate for a host, and its key.
func selfSigned(host string, now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		// a name that tells two certificates of one host apart
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", host, now.Unix())}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), nil
}

// writePair puts certificate and key into files, which is what Kubernetes'
// server reads. remove takes them away.
func writePair(certificate, key []byte) (certificateFile, keyFile string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "activescale-")
	if err != nil {
		return "", "", nil, err
	}
	certificateFile, keyFile = filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey)
	if err := errors.Join(os.WriteFile(certificateFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return "", "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return certificateFile, keyFile, func() error { return os.RemoveAll(dir) }, nil
}
