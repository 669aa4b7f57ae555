package tc_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/tc/tctest"
)

// Many requests on one connection are on their way at once. Held where they
// leave, TCP small queues would let only two go until the first has arrived.
func TestAConnectionIsNotHeldBack(t *testing.T) {
	p := scratchPair(t)
	shape(t, p, tc.Link{RTT: 50 * time.Millisecond}, tc.Options{})
	var l net.Listener
	require.NoError(t, tc.InNamespace(p.NS[1], func() (err error) {
		l, err = net.Listen("tcp4", p.Addr[1].String()+":0")
		return err
	}))
	defer l.Close()
	var client net.Conn
	require.NoError(t, tc.InNamespace(p.NS[0], func() (err error) {
		client, err = net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
		return err
	}))
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()

	const n = 10 // what TCP sends before the first acknowledgement
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Millisecond)))
			var b [8]byte
			binary.BigEndian.PutUint64(b[:], uint64(time.Since(start)))
			if _, err := client.Write(b[:]); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var arrivals []tctest.Arrival
	for i := range n {
		var b [8]byte
		_, err := io.ReadFull(server, b[:])
		require.NoError(t, err)
		arrivals = append(arrivals, tctest.Arrival{Seq: i, Took: time.Since(start) - time.Duration(binary.BigEndian.Uint64(b[:]))})
	}
	require.NoError(t, <-sent)
	require.InDelta(t, 25, took(arrivals), 5)
}
