package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// A sample in Redis is
//
//	byte   0      version, 1
//	bytes  1-8    epoch, big endian as all numbers
//	bytes  9-16   flush
//	bytes 17-24   time of the sample, milliseconds since 1970, signed
//	byte  25      number of values, and for each of them, in order of names:
//	              length of the name, name, IEEE 754 double
//
// Some 100 bytes a pod. Order is compared inside Redis by bytes 1-16, which a
// later version must keep in place or else is overwritten unseen.
const (
	version = 1
	header  = 26 // bytes before the values
	epochAt = 1
	flushAt = 9
	timeAt  = 17
	countAt = 25
)

// errGarbage says that a key holds what no version of ours has written.
var errGarbage = errors.New("no sample")

// encode writes a sample that has passed check.
func encode(s Sample) []byte {
	b := make([]byte, 0, header+len(s.Values)*(1+24+8))
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, s.Epoch)
	b = binary.BigEndian.AppendUint64(b, s.Flush)
	b = binary.BigEndian.AppendUint64(b, uint64(s.At.UnixMilli()))
	b = append(b, byte(len(s.Values)))
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		b = append(b, byte(len(name)))
		b = append(b, name...)
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.Values[name]))
	}
	return b
}

// decode reads what encode has written, and nothing else: every accepted text
// encodes to itself. Its errors wrap errGarbage.
func decode(b []byte) (Sample, error) {
	if len(b) < header {
		return Sample{}, fmt.Errorf("%w: %d bytes", errGarbage, len(b))
	}
	if b[0] != version {
		return Sample{}, fmt.Errorf("%w: version %d", errGarbage, b[0])
	}
	s := Sample{
		Epoch:  binary.BigEndian.Uint64(b[epochAt:]),
		Flush:  binary.BigEndian.Uint64(b[flushAt:]),
		At:     time.UnixMilli(int64(binary.BigEndian.Uint64(b[timeAt:]))),
		Values: make(map[string]float64, b[countAt]),
	}
	rest, last := b[header:], ""
	for i := range int(b[countAt]) {
		name, value, tail, err := decodeValue(rest)
		if err != nil {
			return Sample{}, err
		}
		if i > 0 && name <= last {
			return Sample{}, fmt.Errorf("%w: names out of order", errGarbage)
		}
		s.Values[name], last, rest = value, name, tail
	}
	if len(rest) > 0 {
		return Sample{}, fmt.Errorf("%w: %d bytes too many", errGarbage, len(rest))
	}
	if err := s.check(); err != nil {
		return Sample{}, fmt.Errorf("%w: %w", errGarbage, err)
	}
	return s, nil
}

func decodeValue(b []byte) (name string, value float64, rest []byte, err error) {
	if len(b) < 1 || len(b) < 1+int(b[0])+8 {
		return "", 0, nil, fmt.Errorf("%w: cut short", errGarbage)
	}
	end := 1 + int(b[0])
	return nameOf(b[1:end]), math.Float64frombits(binary.BigEndian.Uint64(b[end:])), b[end+8:], nil
}

// nameOf gives the name without a copy for each pod, if it is one of ours.
func nameOf(b []byte) string {
	switch string(b) {
	case InboundActiveRequests:
		return InboundActiveRequests
	case OutboundActiveRequests:
		return OutboundActiveRequests
	case ActiveConnections:
		return ActiveConnections
	case InboundMeanRequests:
		return InboundMeanRequests
	}
	return string(b)
}
