package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
	"heartbed/tc"
	"heartbed/tc/tctest"
	"heartbed/testbed/testbedtest"
)

func TestShapeNamesWhatIsWrong(t *testing.T) {
	code, _, stderr := heartbed(t, "shape", "--rtt", "-1s", "--loss", "2", "--rate", "10", "--to", "10.0.0.2,here")
	require.Equal(t, cli.BadInput, code)
	for _, want := range []string{`--rate is "10"`, `--to is "here"`, "RTT: found -1s", "loss: found 2"} {
		require.Contains(t, stderr, want)
	}
	code, _, stderr = heartbed(t, "shape")
	require.Equal(t, cli.BadInput, code)
	require.Contains(t, stderr, "--to is missing")
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "9600bit": 9600, "2kbit": 2e3, "1.5Mbit": 1.5e6, "10gbit": 1e10} {
		got, err := parseRate(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"x", "1", "mbit", "-1mbit", "0bit", "NaNbit", "1mb"} {
		_, err := parseRate(text)
		require.Error(t, err, text)
	}
}

func TestShapeUntilInterrupted(t *testing.T) {
	testbedtest.Require(t, "netns", tc.Probe(t.Context()).NFQueue)
	p, err := tctest.NewPair()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	middle := func() time.Duration {
		times, err := p.Ping(21, time.Millisecond, time.Second)
		require.NoError(t, err)
		require.Len(t, times, 21)
		return times[10].Took
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stderr bytes.Buffer
	done := make(chan int)
	go func() {
		done <- Run(ctx, []string{"shape", "--ns", p.NS[0], "--to", p.Addr[1].String(), "--rtt", "20ms", "--method", "nfqueue"}, &stderr, &stderr)
	}()
	require.Eventually(t, func() bool { return middle() > 19*time.Millisecond }, 5*time.Second, 10*time.Millisecond)
	require.InDelta(t, 20, middle().Seconds()*1000, 2)
	interrupt()
	require.Equal(t, cli.Done, <-done, stderr.String())
	require.Contains(t, stderr.String(), " 0 dropped")
	require.Less(t, middle(), 10*time.Millisecond)
	code, _, out := heartbed(t, "shape", "--ns", p.NS[0], "--clear")
	require.Equal(t, cli.Done, code, out)
}
