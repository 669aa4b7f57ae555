package loadgen

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestResponseReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*bufferSize)
	cases := []struct {
		name, text string
		ok, last   bool
	}{
		{"content-length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true, false},
		{"any case and no space", "HTTP/1.1 204\r\ncontent-LENGTH:0\r\n\r\n", true, false},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", true, false},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", true, false},
		{"not found", "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", false, false},
		{"not modified has no body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", true, false},
		{"closing", "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok", true, true},
		{"closing among others", "HTTP/1.1 200 OK\r\nConnection: foo, close\r\nContent-Length: 2\r\n\r\nok", true, true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", true, true},
		{"HTTP/1.0 kept alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", true, false},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nwhatever", true, true},
		{"other coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nwhatever", true, true},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", true, false},
		{"chunked wins over a length", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true, false},
		{"trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\nC: d\r\n\r\n", true, false},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, false},
		{"header longer than the buffer", "HTTP/1.1 200 OK\r\nSet-Cookie: " + long + "\r\nContent-Length: 2\r\n\r\nok", true, false},
		{"body longer than the buffer", "HTTP/1.1 200 OK\r\nContent-Length: 12288\r\n\r\n" + long, true, false},
		{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", true, false},
	}
	for _, c := range cases {
		// Whole, and byte by byte as a slow network delivers it.
		for _, in := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
			a, err := newResponseReader(in).next()
			require.NoError(t, err, c.name)
			require.Equal(t, c.ok, a.ok, c.name)
			require.Equal(t, c.last, a.last, c.name)
			require.Equal(t, int64(len(c.text)), a.bytes, c.name)
			require.Equal(t, c.ok, a.fault == nil, c.name)
		}
	}
}

func TestResponseReaderKeepsTheConnection(t *testing.T) {
	t.Parallel()
	one := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	two := "HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nbad"
	r := newResponseReader(iotest.OneByteReader(strings.NewReader(one + two)))
	a, err := r.next()
	require.NoError(t, err)
	require.True(t, a.ok)
	a, err = r.next()
	require.NoError(t, err)
	require.ErrorContains(t, a.fault, "500")
	_, err = r.next()
	require.Equal(t, io.EOF, err, "closed between two responses")
}

// Bytes that no request asked for would be taken for the next answer.
func TestResponseReaderGivesUpAConnectionOutOfStep(t *testing.T) {
	t.Parallel()
	a, err := newResponseReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more")).next()
	require.NoError(t, err)
	require.True(t, a.ok)
	require.True(t, a.last)
}

func TestResponseReaderRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"other protocol":   "SSH-2.0-OpenSSH\r\n\r\n",
		"HTTP/2":           "HTTP/2.0 200 OK\r\n\r\n",
		"no status":        "HTTP/1.1 OK\r\n\r\n",
		"low status":       "HTTP/1.1 099 x\r\n\r\n",
		"signed length":    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
		"huge length":      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
		"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"no colon":         "HTTP/1.1 200 OK\r\nfoo\r\n\r\n",
		"chunk size":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"chunk end":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
		"endless line":     "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 2*maxHead),
		"endless head":     "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxHead/5),
		"endless trailer":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", maxHead/5),
		"endless first":    strings.Repeat("HTTP/1.1 ", maxHead/4),
		"negative in hex":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
		"overflowing hex":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"endless interim":  strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxHead/20),
		"empty chunk size": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
	} {
		_, err := newResponseReader(strings.NewReader(text)).next()
		require.ErrorIs(t, err, errAnswer, name)
	}
	whole := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	for n := 1; n < len(whole); n++ {
		_, err := newResponseReader(strings.NewReader(whole[:n])).next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut after %d bytes", n)
	}
}

// What both this reader and net/http accept has the same status, ends at the
// same byte, and leaves the connection in the same state.
func FuzzResponseReader(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nx",
		"HTTP/1.1 304 x\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(seed), byte(0))
		f.Add([]byte(seed), byte(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, split byte) {
		var in io.Reader = bytes.NewReader(data)
		if split%2 == 1 {
			in = iotest.OneByteReader(in)
		}
		a, err := newResponseReader(in).next()
		if err != nil {
			return
		}
		if a.bytes < 0 || a.bytes > int64(len(data)) {
			t.Fatalf("read %d of %d bytes", a.bytes, len(data))
		}
		body, theirs, err := standardLibrary(data)
		if err != nil {
			return // it is stricter about names and values
		}
		if a.ok != (theirs.StatusCode >= 200 && theirs.StatusCode < 400) {
			t.Fatalf("ok %v, net/http says %s", a.ok, theirs.Status)
		}
		if !bytes.HasSuffix(data[:a.bytes], body) && theirs.TransferEncoding == nil {
			t.Fatalf("the body ends elsewhere: %q", body)
		}
		if theirs.Close && !a.last {
			t.Fatalf("net/http closes the connection, we keep it")
		}
	})
}

// standardLibrary reads the first final response as net/http does.
func standardLibrary(data []byte) ([]byte, *http.Response, error) {
	in := bufio.NewReader(bytes.NewReader(data))
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
		if err != nil {
			return nil, nil, err
		}
		if r.StatusCode >= 100 && r.StatusCode < 200 && r.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(r.Body)
		return body, r, err
	}
}
