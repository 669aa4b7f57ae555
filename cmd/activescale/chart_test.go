package main

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"heartbed/internal/chart"
)

// release is deploy/activescale as it is installed into a namespace.
func release(t *testing.T, values map[string]any) chart.Release {
	t.Helper()
	r, err := chart.Render("../../deploy/activescale", "activescale", "monitoring", values)
	require.NoError(t, err)
	return r
}

// one gives the release's object of a kind, the first whose name ends so.
func one(t *testing.T, r chart.Release, kind, suffix string) map[string]any {
	t.Helper()
	for _, u := range r.Objects {
		if u.GetKind() == kind && strings.HasSuffix(u.GetName(), suffix) {
			return u.Object
		}
	}
	t.Fatalf("the chart has no %s %s", kind, suffix)
	return nil
}

func count(r chart.Release, kind string) (n int) {
	for _, u := range r.Objects {
		if u.GetKind() == kind {
			n++
		}
	}
	return n
}

// field is a value at a path of an object.
func field(t *testing.T, object map[string]any, path ...string) any {
	t.Helper()
	v, found, err := unstructured.NestedFieldNoCopy(object, path...)
	require.NoError(t, err)
	require.True(t, found, path)
	return v
}

// arguments of the chart's container.
func arguments(t *testing.T, r chart.Release) []string {
	t.Helper()
	all := field(t, one(t, r, "Deployment", ""), "spec", "template", "spec", "containers").([]any)[0].(map[string]any)["args"].([]any)
	args := make([]string, len(all))
	for i, a := range all {
		args[i] = a.(string)
	}
	return args
}

// every value is set.
var every = map[string]any{
	"redis": "redis:6379", "redisUser": "u", "redisSecret": "s", "redisTLS": true, "redisCASecret": "c", "sinkTLSSecret": "k",
	"apiTLSSecret": "a", "apiCABundle": base64.StdEncoding.EncodeToString([]byte("pem")), "extraArgs": []any{"--tls-min-version=VersionTLS13"}, "hold": "30s", "nodeCosts": true,
}

// What the chart tells the program, the program understands.
func TestChartsFlagsAreKnown(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": nil, "every value": every} {
		t.Run(name, func(t *testing.T) {
			args := arguments(t, release(t, values))
			require.Equal(t, "serve", args[0])
			cmd, rest, err := rootCommand().Find(args)
			require.NoError(t, err)
			require.Equal(t, "serve", cmd.Name())
			require.NoError(t, cmd.ParseFlags(rest))
			require.Empty(t, cmd.Flags().Args())
		})
	}
}

func TestChart(t *testing.T) {
	r := release(t, nil)
	require.EqualValues(t, 1, field(t, one(t, r, "Deployment", ""), "spec", "replicas"), "a stream is pinned to one replica")
	require.EqualValues(t, 2, field(t, one(t, release(t, every), "Deployment", ""), "spec", "replicas"))
	require.Equal(t, 2, count(r, "APIService"))
	for _, name := range apiNames {
		a := one(t, r, "APIService", name)
		require.Equal(t, map[string]any{"namespace": "monitoring", "name": "activescale", "port": 443.}, field(t, a, "spec", "service"))
		require.NotContains(t, a["spec"], "insecureSkipTLSVerify")
		require.NotContains(t, a["spec"], "caBundle", "the server fills it in")
		require.Equal(t, every["apiCABundle"], field(t, one(t, release(t, every), "APIService", name), "spec", "caBundle"))
	}
	require.Equal(t, "kube-system", field(t, one(t, r, "RoleBinding", "-auth-reader"), "metadata", "namespace"))
	require.Equal(t, 0, count(release(t, every), "Secret"), "none where the user has one")
	require.Equal(t, 0, count(release(t, every), "Role"))
}

// Rights stand in the chart one by one: a new one is a decision.
func TestChartsRights(t *testing.T) {
	r := release(t, nil)
	require.Equal(t, []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get", "list", "watch"}},
		map[string]any{"apiGroups": []any{"apiregistration.k8s.io"}, "resources": []any{"apiservices"}, "verbs": []any{"get", "patch"}, "resourceNames": []any{apiNames[0], apiNames[1]}},
	}, field(t, one(t, r, "ClusterRole", ""), "rules"))
	require.Equal(t, []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get", "update"}, "resourceNames": []any{"activescale-api"}},
	}, field(t, one(t, r, "Role", ""), "rules"))
	require.Len(t, field(t, one(t, release(t, map[string]any{"nodeCosts": true}), "ClusterRole", ""), "rules"), 3, "and the nodes where they are wanted")
	require.Equal(t, 1, count(r, "ClusterRole"))
	require.Equal(t, 2, count(r, "ClusterRoleBinding"))
	require.Equal(t, 2, count(r, "RoleBinding"))
	require.Equal(t, "system:auth-delegator", field(t, one(t, r, "ClusterRoleBinding", "-auth-delegator"), "roleRef", "name"))
}
