package tc

import (
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heartbed/testbed/testbedtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The golden files hold the very bytes for the kernel: not every kernel that
// this runs on has netem to try them.
func TestMessages(t *testing.T) {
	const device = 7
	for name, e := range map[string]egress{
		"delay": {peer: netip.MustParseAddr("10.0.0.2"), minor: 1, delay: 10 * time.Millisecond, limit: 1234},
		"all": {peer: netip.MustParseAddr("fd00::2"), minor: 258, delay: 10 * time.Millisecond, limit: 6000, seed: 42,
			link: Link{RTT: 20 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.01, RateBits: 1e8}},
		"fast": {peer: netip.MustParseAddr("192.168.1.200"), minor: 3, link: Link{RateBits: 1e11}, limit: 9000},
	} {
		var text strings.Builder
		for _, s := range []step{{"htb", addRoot(device)}, {"htb class", e.setClass(device)}, {"netem", e.setNetem(device)},
			{"u32 filter", e.addFilter(device)}, {"remove htb", deleteRoot(device)}} {
			s.request.Seq = 0
			fmt.Fprintf(&text, "%s\n%s\n", s.name, dump(s.request.Serialize()))
		}
		file := filepath.Join("testdata", "messages-"+name+".golden")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), text.String(), name)
	}
}

// dump is hex.Dump with a star for lines like the one above, of which the
// table of jitter has many.
func dump(b []byte) string {
	var text strings.Builder
	above := ""
	for line := range strings.Lines(hex.Dump(b)) {
		_, bytes, _ := strings.Cut(line, "  ")
		switch {
		case bytes != above:
			text.WriteString(line)
		case !strings.HasSuffix(text.String(), "*\n"):
			text.WriteString("*\n")
		}
		above = bytes
	}
	return text.String()
}

// The table is checked as the kernel reads it, a short for each value.
func TestJitterTable(t *testing.T) {
	raw := jitterTable()
	var values []float64
	for ; len(raw) > 0; raw = raw[2:] {
		values = append(values, float64(int16(binary.NativeEndian.Uint16(raw)))/8192)
	}
	requireUpperHalf(t, values, 0.01)
}

// What of the messages this kernel understands, it takes.
func TestTheKernelTakesHTBAndFilters(t *testing.T) {
	testbedtest.Require(t, "netns", Probe(t.Context()).NFQueue)
	require.NoError(t, inScratch(func() error {
		lo, err := netlink.LinkByName("lo")
		require.NoError(t, err)
		device := lo.Attrs().Index
		require.NoError(t, removeRoot(device), "nothing to remove")
		err = execute(step{"htb", addRoot(device)})
		testbedtest.Require(t, "htb", err)
		for i, peer := range []string{"10.0.0.2", "fd00::2"} {
			e := egress{peer: netip.MustParseAddr(peer), minor: uint16(i + 1), link: Link{RateBits: []float64{1e7, 1e11}[i]}}
			require.NoError(t, execute(step{"class", e.setClass(device)}, step{"filter", e.addFilter(device)}))
			e.link.RateBits = 2e7
			require.NoError(t, execute(step{"class again", e.setClass(device)}))
		}
		classes, err := netlink.ClassList(lo, netlink.MakeHandle(rootHandle, 0))
		require.NoError(t, err)
		require.Len(t, classes, 2)
		for _, c := range classes {
			require.EqualValues(t, 2e7/8, c.(*netlink.HtbClass).Rate)
		}
		filters, err := netlink.FilterList(lo, netlink.MakeHandle(rootHandle, 0))
		require.NoError(t, err)
		seen := map[uint32]bool{}
		for _, f := range filters {
			if u32, ok := f.(*netlink.U32); ok && u32.Sel != nil && u32.ClassId != 0 {
				seen[u32.ClassId] = true
			}
		}
		require.Equal(t, map[uint32]bool{netlink.MakeHandle(rootHandle, 1): true, netlink.MakeHandle(rootHandle, 2): true}, seen)
		require.NoError(t, clearRoots())
		require.NoError(t, clearRoots(), "again")

		other := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device, Handle: netlink.MakeHandle(9, 0), Parent: netlink.HANDLE_ROOT},
			Rate: 1e6, Limit: 1e5, Buffer: 1e4}
		require.NoError(t, netlink.QdiscAdd(other))
		require.ErrorContains(t, removeRoot(device), "not ours")
		require.NoError(t, clearRoots())
		return nil
	}))
}

func TestParseMessages(t *testing.T) {
	ip := append([]byte{0x45, 0, 0, 44}, make([]byte, 36)...)
	copy(ip[12:], []byte{10, 0, 0, 2})
	ack := make([]byte, headerBytes+16)
	putHeader(ack, unix.NLMSG_ERROR, 0, 0)
	b := append([]byte(nil), ack...)
	head := attr(attrPacketHeader, []byte{0, 0, 1, 2, 8, 0, 0})
	long := attr(attrLength, []byte{0, 0, 5, 0})
	for _, attrs := range [][]byte{append(head, attr(attrPayload, ip)...), append(append(long, attr(attrPayload, ip)...), head...), long} {
		m := append(make([]byte, headerBytes), attrs...)
		putHeader(m, msgPacket, 0, queueNumber)
		b = append(b, m...)
	}
	var got []arrival
	require.NoError(t, parseMessages(b, func(a arrival) { got = append(got, a) }))
	source := netip.MustParseAddr("10.0.0.2")
	require.Equal(t, []arrival{{id: 258, source: source, bytes: 40}, {id: 258, source: source, bytes: 1280}}, got)

	refused := append([]byte(nil), ack...)
	copy(refused[16:], []byte{0xea, 0xff, 0xff, 0xff}) // -EINVAL on a little-endian machine
	require.ErrorIs(t, parseMessages(refused, nil), unix.EINVAL)
}

func FuzzParseMessages(f *testing.F) {
	m := append(make([]byte, headerBytes), attr(attrPacketHeader, []byte{0, 0, 1, 2})...)
	putHeader(m, msgPacket, 0, 1)
	f.Add(m)
	f.Add(m[:21])
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_ = parseMessages(b, func(arrival) { n++ })
		require.LessOrEqual(t, n, len(b)/headerBytes)
	})
}
