package live

import (
	"context"
	"net"
	"net/netip"

	"heartbed/tc"
)

// DialIn opens TCP connections from inside a network namespace, a name or a
// path as in tc.Options.NS.
func DialIn(namespace string) DialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		var conn net.Conn
		err := tc.InNamespace(namespace, func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", addr)
			return err
		})
		return conn, err
	}
}

// ListenIn opens a TCP port inside a network namespace.
func ListenIn(namespace string, addr netip.AddrPort) (net.Listener, error) {
	var l net.Listener
	err := tc.InNamespace(namespace, func() (err error) {
		l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
		return err
	})
	return l, err
}
