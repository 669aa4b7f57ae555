package service

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// BenchmarkHop calls a, which calls b; both burn next to nothing:
// cpu-us/hop is what a call costs besides its work, client and server, one
// after another (closed) and at 100 a second (paced), where each wakes an idle
// machine up.
func BenchmarkHop(b *testing.B) {
	for _, c := range []struct {
		name string
		gap  time.Duration
	}{{"closed", 0}, {"paced", 10 * time.Millisecond}} {
		b.Run(c.name, func(b *testing.B) {
			app := chain(burns(0.001))
			app.Components[0].Steps[0] = burns(0.001)
			callee := start(b, Config{Component: "b", App: app})
			caller := start(b, Config{Component: "a", App: app, Targets: map[string]string{"b": "passthrough:///" + callee.Addr().String()}})
			conn, err := grpc.NewClient("passthrough:///"+caller.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(b, err)
			defer conn.Close()
			require.NoError(b, call(b.Context(), conn))
			before := processCPU()
			for b.Loop() {
				require.NoError(b, call(b.Context(), conn))
				time.Sleep(c.gap)
			}
			b.ReportMetric((processCPU()-before)*1e6/float64(b.N)/2, "cpu-us/hop")
		})
	}
}
