package tc

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

// started gives a delaying process with a link, in the thread's namespace.
func started(t *testing.T) *process {
	p, err := startProcess(Options{})
	require.NoError(t, err)
	require.NoError(t, p.Apply(t.Context(), map[netip.Addr]Link{somePeer: {RTT: time.Second}}))
	return p
}

func tables(t *testing.T) []*nftables.Table {
	conn, err := nftables.New()
	require.NoError(t, err)
	found, err := conn.ListTables()
	require.NoError(t, err)
	return found
}

// However this process ends, its socket closes.
func TestTheRulesGoWithTheProcess(t *testing.T) {
	testbedtest.Require(t, "netns", Probe(t.Context()).NFQueue)
	require.NoError(t, inScratch(func() error {
		p := started(t)
		require.Len(t, tables(t), 1)
		require.NoError(t, p.conn.Close())
		require.NoError(t, p.cmd.Wait())
		require.Empty(t, tables(t))
		return nil
	}))
}

func TestAKilledDelayIsNoticed(t *testing.T) {
	testbedtest.Require(t, "netns", Probe(t.Context()).NFQueue)
	require.NoError(t, inScratch(func() error {
		p := started(t)
		require.NoError(t, p.cmd.Process.Kill())
		_, err := p.Stats()
		require.ErrorContains(t, err, "that delays packets ended")
		require.Error(t, p.Close())
		require.ErrorIs(t, p.Close(), os.ErrClosed)
		require.Len(t, tables(t), 1)

		p = started(t) // takes over what is left
		require.Len(t, tables(t), 1)
		require.NoError(t, p.Close())
		require.Empty(t, tables(t))
		return nil
	}))
}
