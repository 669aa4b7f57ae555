package sink

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"heartbed/activescale/store"
)

// node makes a proxy's node of its id and of pairs of metadata.
func node(t testing.TB, id string, metadata map[string]any) *core.Node {
	fields, err := structpb.NewStruct(metadata)
	require.NoError(t, err)
	return &core.Node{Id: id, Metadata: fields}
}

func TestPodOf(t *testing.T) {
	const id = "sidecar~10.1.2.3~web-0.shop~shop.svc.cluster.local"
	web := store.Pod{Namespace: "shop", Name: "web-0"}
	for name, c := range map[string]struct {
		node *core.Node
		want store.Pod
		err  string
	}{
		"metadata":             {node(t, "x", map[string]any{"NAME": "web-0", "NAMESPACE": "shop"}), web, ""},
		"id":                   {node(t, id, nil), web, ""},
		"id of a gateway":      {node(t, "router~10.1.2.3~web-0.shop~shop.svc.cluster.local", nil), web, ""},
		"IPv6":                 {node(t, "sidecar~fd00::1~web-0.shop~shop.svc.cluster.local", nil), web, ""},
		"dots in the name":     {node(t, "sidecar~1.1.1.1~web.v1.0.shop~d", nil), store.Pod{Namespace: "shop", Name: "web.v1.0"}, ""},
		"metadata of one only": {node(t, id, map[string]any{"NAME": "other"}), web, ""},
		"metadata of no text":  {node(t, id, map[string]any{"NAME": 1, "NAMESPACE": true}), web, ""},
		"metadata goes first":  {node(t, id, map[string]any{"NAME": "b", "NAMESPACE": "c"}), store.Pod{Namespace: "c", Name: "b"}, ""},
		"no node":              {nil, store.Pod{}, "has no node"},
		"empty node":           {&core.Node{}, store.Pod{}, `node id: found ""`},
		"three parts":          {node(t, "sidecar~10.1.2.3~web-0.shop", nil), store.Pod{}, "expected type~ip~pod.namespace~domain"},
		"no namespace":         {node(t, "sidecar~10.1.2.3~web-0~x", nil), store.Pod{}, `pod: found ""`},
		"capitals":             {node(t, "x", map[string]any{"NAME": "Web", "NAMESPACE": "shop"}), store.Pod{}, `pod: found "Web"`},
		"slash":                {node(t, "x", map[string]any{"NAME": "a", "NAMESPACE": "b/c"}), store.Pod{}, `namespace: found "b/c"`},
		"too long":             {node(t, "x", map[string]any{"NAME": strings.Repeat("a", 254), "NAMESPACE": "b"}), store.Pod{}, "pod: found"},
		"control characters":   {node(t, "x", map[string]any{"NAME": "a\nb", "NAMESPACE": "b"}), store.Pod{}, `pod: found "a\nb"`},
	} {
		pod, err := podOf(c.node)
		if c.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.err, name)
		}
		require.Equal(t, c.want, pod, name)
	}
}

func TestParseSPIFFE(t *testing.T) {
	got, err := ParseSPIFFE("spiffe://cluster.local/ns/shop/sa/web")
	require.NoError(t, err)
	require.Equal(t, SPIFFE{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}, got)
	for _, id := range []string{
		"", "spiffe://", "spiffe://cluster.local", "https://cluster.local/ns/shop/sa/web", "SPIFFE://cluster.local/ns/shop/sa/web",
		"spiffe:///ns/shop/sa/web", "spiffe://cluster.local/ns/shop", "spiffe://cluster.local/ns/shop/sa/web/", "spiffe://cluster.local/ns//sa/web",
		"spiffe://cluster.local/ns/shop/sa/", "spiffe://cluster.local/sa/web/ns/shop", "spiffe://Cluster.local/ns/shop/sa/web",
		"spiffe://cluster.local:80/ns/shop/sa/web", "spiffe://me@cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/web?x=1",
		"spiffe://cluster.local/ns/shop/sa/web#x", "spiffe://cluster.local/ns/../sa/web", "spiffe://cluster.local/ns/sh%6Fp/sa/web",
		"spiffe://" + strings.Repeat("a", 256) + "/ns/shop/sa/web", " spiffe://cluster.local/ns/shop/sa/web",
	} {
		_, err := ParseSPIFFE(id)
		require.ErrorContains(t, err, "identity: found", id)
	}
}

// FuzzParseSPIFFE: what is accepted is exactly what it says.
func FuzzParseSPIFFE(f *testing.F) {
	f.Add("spiffe://cluster.local/ns/shop/sa/web")
	f.Add("spiffe://a/ns/b/sa/c.d")
	f.Fuzz(func(t *testing.T, id string) {
		if got, err := ParseSPIFFE(id); err == nil {
			require.Equal(t, id, got.String())
		} else {
			require.Zero(t, got)
		}
	})
}
