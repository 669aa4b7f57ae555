package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
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

// shaping runs `heartbed shape` with a round trip of 20 ms and these flags, and
// waits until it shows. stop interrupts it and returns what it said.
func shaping(t *testing.T, p tctest.Pair, flags ...string) (stop func() string) {
	ctx, interrupt := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	done := make(chan int, 1)
	go func() {
		args := []string{"shape", "--ns", p.NS[0], "--to", p.Addr[1].String(), "--rtt", "20ms", "--method", "nfqueue"}
		done <- Run(ctx, append(args, flags...), &stderr, &stderr)
	}()
	stop = func() string {
		interrupt()
		require.Equal(t, cli.Done, <-done, stderr.String())
		return stderr.String()
	}
	require.Eventually(t, func() bool { return len(done) > 0 || middle(t, p) > 19*time.Millisecond }, 5*time.Second, 10*time.Millisecond)
	return stop
}

// middle is the median round trip.
func middle(t *testing.T, p tctest.Pair) time.Duration {
	times, err := p.Ping(21, time.Millisecond, 100*time.Millisecond)
	require.NoError(t, err)
	require.NotEmpty(t, times)
	slices.SortFunc(times, func(a, b tctest.Arrival) int { return cmp.Compare(a.Took, b.Took) })
	return times[len(times)/2].Took
}

func TestShapeUntilInterrupted(t *testing.T) {
	testbedtest.Require(t, "netns", tc.Probe(t.Context()).NFQueue)
	p, err := tctest.NewPair()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	ms := func() float64 { return middle(t, p).Seconds() * 1000 }

	stop := shaping(t, p)
	require.InDelta(t, 20, ms(), 2)
	require.Contains(t, stop(), " 0 dropped")
	require.Less(t, ms(), 10.0)

	// A ping of these is a packet of 44 bytes: 1,000 a second pass.
	stop = shaping(t, p, "--loss", "0.2", "--rate", "352kbit")
	times, err := p.Ping(300, time.Second/2000, 200*time.Millisecond)
	require.NoError(t, err)
	require.InDelta(t, 0.8*300, len(times), 35)
	require.InDelta(t, len(times)+20, times[len(times)-1].At.Seconds()*1000, 30, "as long as the rate asks for")
	said := stop()
	require.NotContains(t, said, " 0 lost as asked")
	require.Contains(t, said, " 0 dropped")

	stop = shaping(t, p, "--rate", "352kbit")
	times, err = p.Ping(600, time.Second/4000, 200*time.Millisecond)
	require.NoError(t, err)
	require.InDelta(t, 150+100, len(times), 30, "what passes in 150 ms, and the buffer")
	said = stop()
	require.Contains(t, said, fmt.Sprintf(" %d beyond the rate, 0 dropped", 600-len(times)))

	code, _, out := heartbed(t, "shape", "--ns", p.NS[0], "--clear")
	require.Equal(t, cli.Done, code, out)
}
