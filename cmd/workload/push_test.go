package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads/service"
)

func TestPushes(t *testing.T) {
	t.Setenv("POD_NAME", "web-0")
	t.Setenv("POD_NAMESPACE", "shop")
	t.Setenv("POD_IP", "10.1.2.3")
	env := service.Push{Pod: "web-0", Namespace: "shop", IP: "10.1.2.3"}
	require.Equal(t, env, pushes(service.Push{}, service.Push{}))
	described := service.Push{To: "a:1", Every: time.Second, Pod: "p", Namespace: "n", IP: "i"}
	require.Equal(t, described, pushes(described, service.Push{}))
	want := described
	want.To, want.Every = "b:2", time.Minute
	require.Equal(t, want, pushes(described, service.Push{To: "b:2", Every: time.Minute}))
}
