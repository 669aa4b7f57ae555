package sink

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/util/validation"

	"heartbed/activescale/store"
)

// podOf says which pod a proxy belongs to: by its metadata, or else by its id,
// which Istio makes of type~ip~pod.namespace~domain.
func podOf(node *core.Node) (store.Pod, error) {
	if node == nil {
		return store.Pod{}, errors.New("the first message of the stream has no node, expected one with the metadata NAME and NAMESPACE or with Istio's id")
	}
	pod := store.Pod{Namespace: text(node, "NAMESPACE"), Name: text(node, "NAME")}
	if pod.Namespace == "" || pod.Name == "" {
		parts := strings.Split(node.GetId(), "~")
		if len(parts) != 4 {
			return store.Pod{}, fmt.Errorf("node id: found %.100q, expected type~ip~pod.namespace~domain", node.GetId())
		}
		pod.Name, pod.Namespace = cutLast(parts[2], ".")
	}
	if faults := validation.IsDNS1123Subdomain(pod.Name); len(faults) > 0 {
		return store.Pod{}, fmt.Errorf("pod: found %.100q, expected the name of one: %s", pod.Name, faults[0])
	}
	if faults := validation.IsDNS1123Label(pod.Namespace); len(faults) > 0 {
		return store.Pod{}, fmt.Errorf("namespace: found %.100q, expected the name of one: %s", pod.Namespace, faults[0])
	}
	return pod, nil
}

// text is a string of the node's metadata, "" without.
func text(node *core.Node, key string) string {
	return node.GetMetadata().GetFields()[key].GetStringValue()
}

// intercepts says whether the proxy reports that connections to the pod are
// sent to it by iptables.
func intercepts(node *core.Node) bool {
	mode := text(node, "INTERCEPTION_MODE")
	return mode == "REDIRECT" || mode == "TPROXY"
}

// SPIFFE is the identity that Istio's certificates carry as the URI
// spiffe://domain/ns/namespace/sa/service-account.
type SPIFFE struct{ TrustDomain, Namespace, ServiceAccount string }

func (i SPIFFE) String() string {
	return "spiffe://" + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// ParseSPIFFE reads an identity, strictly: what it accepts is what String
// gives.
func ParseSPIFFE(id string) (SPIFFE, error) {
	const longest = 2048 // by the standard
	rest, ok := strings.CutPrefix(id, "spiffe://")
	parts := strings.Split(rest, "/")
	if !ok || len(id) > longest || len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return SPIFFE{}, fmt.Errorf("identity: found %.100q, expected spiffe://domain/ns/namespace/sa/service-account", id)
	}
	i := SPIFFE{TrustDomain: parts[0], Namespace: parts[2], ServiceAccount: parts[4]}
	if !trustDomain(i.TrustDomain) || len(validation.IsDNS1123Label(i.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(i.ServiceAccount)) > 0 {
		return SPIFFE{}, fmt.Errorf("identity: found %.100q, expected names in it", id)
	}
	return i, nil
}

// trustDomain says whether the name is one by the standard: at most 255 lower
// case letters, digits, dots, dashes and underscores.
func trustDomain(name string) bool {
	return name != "" && len(name) <= 255 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// verify compares the pod that a client reports with the certificate it has
// shown.
func verify(ctx context.Context, ask func(context.Context, SPIFFE, store.Pod) error, pod store.Pod) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("the client is unknown")
	}
	tls, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(tls.State.PeerCertificates) == 0 {
		return errors.New("the client has shown no certificate")
	}
	id, err := identity(tls.State.PeerCertificates[0])
	if err != nil {
		return err
	}
	if id.Namespace != pod.Namespace {
		return fmt.Errorf("%v may not report for pod %v of another namespace", id, pod)
	}
	return ask(ctx, id, pod)
}

// identity is the one that a certificate carries; the standard allows no
// second URI.
func identity(c *x509.Certificate) (SPIFFE, error) {
	if len(c.URIs) != 1 {
		return SPIFFE{}, fmt.Errorf("certificate: found %d URIs, expected one: %v", len(c.URIs), shown(c.URIs))
	}
	return ParseSPIFFE(c.URIs[0].String())
}

// shown lists some URIs for a message.
func shown(uris []*url.URL) []*url.URL { return uris[:min(len(uris), 3)] }
