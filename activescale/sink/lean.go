package sink

import (
	"bytes"
	"fmt"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// leanCodec reads of the messages from proxies what the receiver needs: the
// identifier, the families whose names may count, and the first for its
// timestamp. A proxy sends a hundred families, or ten thousand, of which a
// handful count; to make objects of all is most of what a receiver would do,
// see BenchmarkStreams, and of a message of 32 MiB they would be several times
// that. Other messages it leaves to gRPC's own codec, whose name it has.
type leanCodec struct{ encoding.CodecV2 }

func newLeanCodec() leanCodec { return leanCodec{encoding.GetCodecV2("proto")} }

func (c leanCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*metrics.StreamMetricsMessage)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	proto.Reset(m)
	return unmarshalLean(b.ReadOnlyData(), m)
}

// The numbers of fields of StreamMetricsMessage and of MetricFamily.
const (
	identifierField = 1
	familyField     = 2
	nameField       = 1
)

// unmarshalLean fills in an empty message.
func unmarshalLean(b []byte, m *metrics.StreamMetricsMessage) error {
	return eachField(b, func(field protowire.Number, value []byte) error {
		switch field {
		case identifierField:
			if m.Identifier == nil {
				m.Identifier = &metrics.StreamMetricsMessage_Identifier{}
			}
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(value, m.Identifier)
		case familyField:
			counts, err := mayCount(value)
			if err != nil || !counts && len(m.EnvoyMetrics) > 0 {
				return err
			}
			family := &dto.MetricFamily{}
			m.EnvoyMetrics = append(m.EnvoyMetrics, family)
			return proto.Unmarshal(value, family)
		}
		return nil
	})
}

// mayCount says whether the name of a family ends as one that counts.
func mayCount(family []byte) (bool, error) {
	var name []byte
	err := eachField(family, func(field protowire.Number, value []byte) error {
		if field == nameField {
			name = value
		}
		return nil
	})
	return bytes.HasSuffix(name, []byte("downstream_rq_active")) || bytes.HasSuffix(name, []byte("downstream_rq_time")) ||
		bytes.HasSuffix(name, []byte("downstream_cx_active")), err
}

// eachField calls f for every field of a message that has a length, and skips
// the others.
func eachField(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("message: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
				return fmt.Errorf("field %d: %w", field, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("field %d: %w", field, protowire.ParseError(n))
		}
		if err := f(field, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
