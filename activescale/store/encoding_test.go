package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bytes are a contract with replicas of other versions.
func TestEncodingIsAsDocumented(t *testing.T) {
	s := Sample{Epoch: 0x0102030405, Flush: 7, At: time.UnixMilli(1), Values: map[string]float64{"b": 1, "a": -2}}
	want := "01" + "0000000102030405" + "0000000000000007" + "0000000000000001" + "02" +
		"0161" + "c000000000000000" + "0162" + "3ff0000000000000"
	require.Equal(t, want, hex.EncodeToString(encode(s)))
	back, err := decode(encode(s))
	require.NoError(t, err)
	require.Equal(t, s, back)
}

func TestGarbageIsNoSample(t *testing.T) {
	good := encode(Sample{Epoch: 1, Flush: 1, Values: map[string]float64{"a": 1, "b": 2}})
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"empty":          {},
		"text":           []byte(strings.Repeat("0.000000 ", 8)),
		"other version":  change(0, 2),
		"cut in header":  good[:header-1],
		"cut in value":   good[:len(good)-1],
		"too long":       append(bytes.Clone(good), 0),
		"count too big":  change(countAt, 3),
		"count too low":  change(countAt, 1),
		"epoch zero":     change(epochAt+7, 0),
		"flush zero":     change(flushAt+7, 0),
		"epoch too big":  change(epochAt, 0xff),
		"names repeated": change(header+10+1, 'a'),
		"not a number":   encode(Sample{Epoch: 1, Flush: 1, Values: map[string]float64{"a": math.NaN()}}),
	} {
		_, err := decode(b)
		require.ErrorIs(t, err, errGarbage, name)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(encode(sample(1, 2)))
	f.Add(encode(Sample{Epoch: maxEpoch, Flush: math.MaxUint64, Values: map[string]float64{"": 0, "a": math.Copysign(0, -1)}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			if !errors.Is(err, errGarbage) {
				t.Fatalf("error %v is not told as garbage", err)
			}
			return
		}
		if again := encode(s); !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %v, which is %x", b, s, again)
		}
	})
}
