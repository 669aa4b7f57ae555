package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// answer is what came back for a request.
type answer struct {
	ok    bool  // HTTP 2xx or 3xx, gRPC OK
	fault error // why not ok
	bytes int64
	last  bool // the connection carries no further request
}

// errAnswer marks an answer that is no HTTP/1.x.
var errAnswer = errors.New("malformed HTTP response")

// maxHead bounds the head of a response, as a server that streams headers
// without end would otherwise hold a connection for ever.
const maxHead = 1 << 20

// responseReader reads HTTP/1.x responses to GET requests and throws their
// bodies away (RFC 9112).
type responseReader struct {
	in   *bufio.Reader
	read int64 // bytes of the current response
}

// bufferSize holds the answers of small services in one read; a thousand
// connections take 4 MiB.
const bufferSize = 4 << 10

func newResponseReader(r io.Reader) *responseReader {
	return &responseReader{in: bufio.NewReaderSize(r, bufferSize)}
}

// head is the part of a response's head that decides where its body ends.
type head struct {
	status  int
	length  int64 // of the body; -1 = not given
	chunked bool
	coded   bool // another transfer coding than chunked is the last: the body ends with the connection
	last    bool
}

// next reads one final response. io.EOF means that the connection was closed
// before its first byte.
func (r *responseReader) next() (answer, error) {
	r.read = 0
	for {
		h, err := r.head()
		if err != nil {
			return answer{}, err
		}
		if h.status < 200 && h.status != 101 { // an interim response: the final one follows
			if r.read > maxHead {
				return answer{}, fmt.Errorf("%w: found no final response in %d bytes", errAnswer, r.read)
			}
			continue
		}
		if err := r.body(&h); err != nil {
			return answer{}, err
		}
		a := answer{ok: h.status >= 200 && h.status < 400, bytes: r.read, last: h.last || h.status == 101 || r.in.Buffered() > 0}
		if !a.ok {
			a.fault = fmt.Errorf("status %d", h.status)
		}
		return a, nil
	}
}

func (r *responseReader) head() (head, error) {
	h := head{length: -1}
	start := r.read
	line, err := r.line()
	if err != nil {
		if errors.Is(err, io.EOF) && r.read == 0 {
			return h, io.EOF
		}
		return h, cutShort(err)
	}
	if err := h.statusLine(line); err != nil {
		return h, err
	}
	for {
		line, err := r.line()
		switch {
		case err != nil:
			return h, cutShort(err)
		case len(line) == 0:
			return h, nil
		case r.read-start > maxHead:
			return h, fmt.Errorf("%w: found a head of more than %d bytes", errAnswer, maxHead)
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

// line reads a line without its end. Of one that is longer than the buffer
// only the beginning is returned; no header that matters here is that long.
func (r *responseReader) line() ([]byte, error) {
	start := r.read
	line, err := r.in.ReadSlice('\n')
	r.read += int64(len(line))
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && r.read-start <= maxHead {
			var rest []byte
			rest, err = r.in.ReadSlice('\n')
			r.read += int64(len(rest))
		}
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: found a line of more than %d bytes", errAnswer, maxHead)
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), err
}

// statusLine reads "HTTP/1.1 200 OK".
func (h *head) statusLine(line []byte) error {
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	status, ok := number(code, 10)
	if !bytes.HasPrefix(version, []byte("HTTP/1.")) || len(version) != 8 || len(code) != 3 || !ok || status < 100 {
		return fmt.Errorf("%w: found the first line %.40q", errAnswer, line)
	}
	h.status = int(status)
	h.last = version[7] == '0' // unless it says keep-alive
	return nil
}

// field reads a header field; those that say nothing about the framing of the
// message are skipped.
func (h *head) field(line []byte) error {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found {
		return fmt.Errorf("%w: found the header line %.40q", errAnswer, line)
	}
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, ok := number(value, 10)
		if !ok || h.length >= 0 && h.length != n {
			return fmt.Errorf("%w: found content-length %.40q", errAnswer, value)
		}
		h.length = n
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		codings := bytes.Split(value, []byte(","))
		h.chunked = bytes.EqualFold(bytes.TrimSpace(codings[len(codings)-1]), []byte("chunked"))
		h.coded = !h.chunked
	case bytes.EqualFold(name, []byte("Connection")):
		for option := range bytes.SplitSeq(value, []byte(",")) {
			option = bytes.TrimSpace(option)
			if bytes.EqualFold(option, []byte("close")) {
				h.last = true
				return nil
			}
			if bytes.EqualFold(option, []byte("keep-alive")) {
				h.last = false
			}
		}
	}
	return nil
}

// body reads and drops the body. One without a length ends with the connection.
func (r *responseReader) body(h *head) error {
	switch {
	case h.status == 101 || h.status == 204 || h.status == 304:
		return nil
	case h.chunked:
		return r.chunks()
	case h.length >= 0 && !h.coded:
		return r.discard(h.length)
	}
	h.last = true
	n, err := io.Copy(io.Discard, r.in)
	r.read += n
	return err
}

// chunks reads a chunked body and its trailer.
func (r *responseReader) chunks() error {
	for {
		line, err := r.line()
		if err != nil {
			return cutShort(err)
		}
		text, _, _ := bytes.Cut(line, []byte(";")) // extensions follow
		size, ok := number(bytes.TrimSpace(text), 16)
		if !ok {
			return fmt.Errorf("%w: found the chunk size %.40q", errAnswer, line)
		}
		if size == 0 {
			return r.trailer()
		}
		if err := r.discard(size); err != nil {
			return err
		}
		if line, err = r.line(); err != nil {
			return cutShort(err)
		} else if len(line) != 0 {
			return fmt.Errorf("%w: found %.40q after a chunk of %d bytes", errAnswer, line, size)
		}
	}
}

func (r *responseReader) trailer() error {
	for start := r.read; ; {
		line, err := r.line()
		switch {
		case err != nil:
			return cutShort(err)
		case len(line) == 0:
			return nil
		case r.read-start > maxHead:
			return fmt.Errorf("%w: found a trailer of more than %d bytes", errAnswer, maxHead)
		}
	}
}

func (r *responseReader) discard(n int64) error {
	for n > 0 {
		step, err := r.in.Discard(int(min(n, 1<<30)))
		r.read += int64(step)
		n -= int64(step)
		if err != nil {
			return cutShort(err)
		}
	}
	return nil
}

// cutShort makes the end of the connection inside a response an error of its own.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// number reads digits only: no sign, no spaces, no overflow.
func number(digits []byte, base int64) (int64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		var d int64
		switch {
		case c >= '0' && c <= '9':
			d = int64(c - '0')
		case base == 16 && c >= 'a' && c <= 'f':
			d = int64(c-'a') + 10
		case base == 16 && c >= 'A' && c <= 'F':
			d = int64(c-'A') + 10
		default:
			return 0, false
		}
		if n > (math.MaxInt64-d)/base {
			return 0, false
		}
		n = n*base + d
	}
	return n, true
}
